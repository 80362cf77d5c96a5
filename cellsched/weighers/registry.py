# SPDX-License-Identifier: Apache-2.0
"""Loading of the configured weighers."""

from collections.abc import Iterable
import logging
from typing import Any

from oslo_config import cfg

from cellsched.conf import enabled
from cellsched.conf import filter_scheduler
from cellsched import exception
from cellsched import plugins
from cellsched.weighers import base


LOG = logging.getLogger(__name__)


def make(conf: cfg.ConfigOpts, names: Iterable[str]) -> list[base.Weigher]:
    """Return the weighers of these names, in this order.

    A name is that of an entry point, or the import path of a class.
    ``all_weighers`` means every installed weigher that is usable; a broken
    one is skipped, because installing it does not enable it. The options of
    the weighers are registered.

    :raises cellsched.exception.ConfigurationInvalid: a weigher is not usable
    :raises cellsched.exception.PluginNotFound: a weigher does not exist
    """
    weighers, skipped = _make_all(conf, names)
    for problem in skipped:
        LOG.error('Skipped a weigher of all_weighers: %s', problem)
    return weighers


def skipped(
    conf: cfg.ConfigOpts, names: Iterable[str]
) -> list[exception.ConfigurationInvalid]:
    """Return why weighers that ``all_weighers`` means are skipped.

    :raises cellsched.exception.CellschedException: as :func:`make`
    """
    return _make_all(conf, names)[1]


def _make_all(
    conf: cfg.ConfigOpts, names: Iterable[str]
) -> tuple[list[base.Weigher], list[exception.ConfigurationInvalid]]:
    weighers: dict[str, base.Weigher] = {}
    problems: list[exception.ConfigurationInvalid] = []
    for name in names:
        if name not in filter_scheduler.ALL_WEIGHERS:
            weighers[name] = weighers.get(name) or _make(conf, name)
            continue
        usable, broken = plugins.load_installed(
            plugins.WEIGHERS,
            lambda each: weighers.get(each) or _make(conf, each))
        weighers |= usable
        problems += broken.values()
    return [*weighers.values()], problems


def _make(conf: cfg.ConfigOpts, name: str) -> base.Weigher:
    option, expected = enabled.WEIGHERS_OPTION, 'a weigher that can be made'
    plugin = (plugins.load_path(name, option) if '.' in name
              else plugins.load(plugins.WEIGHERS, name, option))
    field = f'{option}: {name}'
    check(field, plugin)
    if issubclass(plugin, base.Weigher):
        enabled.register_plugin(conf, plugin, field)
        return plugins.attempt(
            field, expected, lambda: plugin(plugins.options(conf, plugin)),
            passed_on=(exception.ConfigurationInvalid,))
    return plugins.attempt(field, expected, lambda: base.RowWeigher(plugin()))


def check(field: str, plugin: Any) -> None:
    """Check that an object is a weigher.

    :param field: the name of the option in errors
    :raises cellsched.exception.ConfigurationInvalid: it is not a weigher
    """
    if isinstance(plugin, type):
        weigh = getattr(plugin, '_weigh_object', None)
        if issubclass(plugin, base.Weigher) or (
                callable(weigh)
                and weigh is not base.BaseHostWeigher._weigh_object):
            return plugins.check_complete(field, plugin)
    raise exception.ConfigurationInvalid(
        field=field,
        problem='it is not a weigher',
        expected=f'a subclass of {base.__name__}.Weigher, or a class that '
                 'defines _weigh_object(host_state, weight_properties)')
