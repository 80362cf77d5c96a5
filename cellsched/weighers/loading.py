# SPDX-License-Identifier: Apache-2.0
"""From names in a configuration to weighers."""

from collections.abc import Iterable

from oslo_config import cfg

from cellsched.conf import filter_scheduler
from cellsched import exception
from cellsched import plugins
from cellsched.weighers import base
from cellsched.weighers import rows


def make(conf: cfg.ConfigOpts, names: Iterable[str]) -> list[base.Weigher]:
    """Return the weighers of these names, in this order.

    A name is that of an entry point, or the import path of a class;
    ``all_weighers`` stands for every one that is installed. The options of
    those that are installed must be registered.

    :raises cellsched.exception.ConfigurationInvalid: one cannot be loaded
    :raises cellsched.exception.PluginNotFound: one is not there
    """
    wanted: dict[str, None] = {}
    for name in names:
        several = name in filter_scheduler.ALL_WEIGHERS
        wanted.update(dict.fromkeys(
            plugins.names(plugins.WEIGHERS) if several else [name]))
    return [_make(conf, name) for name in wanted]


def _make(conf: cfg.ConfigOpts, name: str) -> base.Weigher:
    by_path = '.' in name
    plugin = (plugins.load_path(name) if by_path
              else plugins.load(plugins.WEIGHERS, name))
    if isinstance(plugin, type) and issubclass(plugin, base.Weigher):
        if by_path:
            # Nobody knew of them before.
            conf.register_opts(plugin.opts(), group=plugins.group(plugin))
        return plugin(plugins.options(conf, plugin))
    if isinstance(plugin, type) and callable(
            getattr(plugin, '_weigh_object', None)):
        return rows.RowWeigher(plugin())
    raise exception.ConfigurationInvalid(
        field=f'[filter_scheduler] weight_classes: {name}',
        expected=f'a subclass of {base.__name__}.Weigher, or a class with '
                 '_weigh_object(host_state, weight_properties)')
