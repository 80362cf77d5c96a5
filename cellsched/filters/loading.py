# SPDX-License-Identifier: Apache-2.0
"""From names in a configuration to filters."""

from collections.abc import Iterable
from typing import Any

from oslo_config import cfg

from cellsched.conf import filter_scheduler
from cellsched import exception
from cellsched.filters import base
from cellsched.filters import rows
from cellsched import plugins


def make(conf: cfg.ConfigOpts, names: Iterable[str]) -> list[base.Filter]:
    """Return the filters of these names, in this order.

    A name is that of an entry point, or of a class that ``[filter_scheduler]
    available_filters`` names by its import path. The options of those that
    are installed must be registered.

    :raises cellsched.exception.ConfigurationInvalid: one cannot be loaded
    :raises cellsched.exception.PluginNotFound: one is not there
    """
    paths = [path for path in conf.filter_scheduler.available_filters
             if path not in filter_scheduler.ALL_FILTERS]
    by_path = {path.rpartition('.')[2]: path for path in paths}
    return [_make(conf, name, by_path) for name in dict.fromkeys(names)]


def _make(
    conf: cfg.ConfigOpts, name: str, by_path: dict[str, str]
) -> base.Filter:
    if name in by_path:
        plugin = plugins.load_path(by_path[name])
        if isinstance(plugin, type) and issubclass(plugin, base.Filter):
            # Nobody knew of them before.
            conf.register_opts(plugin.opts(), group=plugins.group(plugin))
    else:
        plugin = plugins.load(plugins.FILTERS, name)
    return adapted(conf, name, plugin)


def adapted(conf: cfg.ConfigOpts, name: str, plugin: Any) -> base.Filter:
    """Return a filter of a class; one that works by rows is wrapped.

    :raises cellsched.exception.ConfigurationInvalid: it is no filter
    """
    if isinstance(plugin, type) and issubclass(plugin, base.Filter):
        return plugin(plugins.options(conf, plugin))
    if isinstance(plugin, type) and callable(
            getattr(plugin, 'host_passes', None)):
        return rows.RowFilter(plugin())
    raise exception.ConfigurationInvalid(
        field=f'[filter_scheduler] enabled_filters: {name}',
        expected=f'a subclass of {base.__name__}.Filter, or a class with '
                 'host_passes(host_state, spec_obj)')
