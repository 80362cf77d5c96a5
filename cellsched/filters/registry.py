# SPDX-License-Identifier: Apache-2.0
"""Loading of the configured filters."""

from collections.abc import Iterable
from typing import Any

from oslo_config import cfg

from cellsched.conf import enabled
from cellsched.conf import filter_scheduler
from cellsched import exception
from cellsched.filters import base
from cellsched import plugins


def make(conf: cfg.ConfigOpts, names: Iterable[str]) -> list[base.Filter]:
    """Return the filters of these names, in this order.

    A name is that of an entry point, or of a class that ``[filter_scheduler]
    available_filters`` names by its import path. The options of the filters
    are registered.

    :raises cellsched.exception.ConfigurationInvalid: a filter is not usable
    :raises cellsched.exception.PluginNotFound: a filter does not exist
    """
    by_path = filter_scheduler.filter_paths(conf)
    return [_make(conf, name, by_path) for name in dict.fromkeys(names)]


def hints(conf: cfg.ConfigOpts) -> frozenset[str] | None:
    """Return the scheduler hints that enabled filters read; None for any."""
    if conf.scheduler.unknown_hints == 'ignore':
        return None
    return frozenset[str]().union(*(
        each.hints
        for each in make(conf, conf.filter_scheduler.enabled_filters)))


def _make(
    conf: cfg.ConfigOpts, name: str, by_path: dict[str, str]
) -> base.Filter:
    option = enabled.FILTERS_OPTION
    plugin = (plugins.load_path(by_path[name], option) if name in by_path
              else plugins.load(plugins.FILTERS, name, option))
    return adapted(conf, f'{option}: {name}', plugin)


def adapted(conf: cfg.ConfigOpts, field: str, plugin: Any) -> base.Filter:
    """Return a filter of a class; a filter of single hosts is wrapped.

    :param field: the name of the option in errors
    :raises cellsched.exception.ConfigurationInvalid: it is not a filter
    """
    check(field, plugin)
    expected = 'a filter that can be made'
    if issubclass(plugin, base.Filter):
        enabled.register_plugin(conf, plugin, field)
        return plugins.attempt(
            field, expected, lambda: plugin(plugins.options(conf, plugin)),
            passed_on=(exception.ConfigurationInvalid,))
    return plugins.attempt(field, expected, lambda: base.RowFilter(plugin()))


def check(field: str, plugin: Any) -> None:
    """Check that an object is a filter.

    :param field: the name of the option in errors
    :raises cellsched.exception.ConfigurationInvalid: it is not a filter
    """
    if isinstance(plugin, type):
        passes = getattr(plugin, 'host_passes', None)
        if issubclass(plugin, base.Filter) or (
                callable(passes)
                and passes is not base.BaseHostFilter.host_passes):
            return plugins.check_complete(field, plugin)
    raise exception.ConfigurationInvalid(
        field=field,
        problem='it is not a filter',
        expected=f'a subclass of {base.__name__}.Filter, or a class that '
                 'defines host_passes(host_state, spec_obj)')
