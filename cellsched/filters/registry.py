# SPDX-License-Identifier: Apache-2.0
"""From names in a configuration to filters."""

from collections.abc import Iterable
from typing import Any
from typing import ClassVar

import numpy as np
from oslo_config import cfg

from cellsched.conf import enabled
from cellsched.conf import filter_scheduler
from cellsched import exception
from cellsched.filters import base
from cellsched.hosts import state
from cellsched.hosts import view
from cellsched import objects
from cellsched import plugins


def make(conf: cfg.ConfigOpts, names: Iterable[str]) -> list[base.Filter]:
    """Return the filters of these names, in this order.

    A name is that of an entry point, or of a class that ``[filter_scheduler]
    available_filters`` names by its import path. Their options are
    registered.

    :raises cellsched.exception.ConfigurationInvalid: one cannot be used
    :raises cellsched.exception.PluginNotFound: one is not there
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
    """Return a filter of a class; one that works by rows is wrapped.

    :param field: what an error calls it
    :raises cellsched.exception.ConfigurationInvalid: it is no filter
    """
    check(field, plugin)
    expected = 'a filter that can be made'
    if issubclass(plugin, base.Filter):
        enabled.register_plugin(conf, plugin, field)
        return plugins.attempt(
            field, expected, lambda: plugin(plugins.options(conf, plugin)),
            passed_on=(exception.ConfigurationInvalid,))
    return plugins.attempt(
        field, expected, lambda: RowFilter(plugin()))


def check(field: str, plugin: Any) -> None:
    """Make sure that something is a filter.

    :param field: what an error calls it
    :raises cellsched.exception.ConfigurationInvalid: it is none
    """
    if isinstance(plugin, type):
        passes = getattr(plugin, 'host_passes', None)
        if issubclass(plugin, base.Filter) or (
                callable(passes)
                and passes is not BaseHostFilter.host_passes):
            return plugins.check_complete(field, plugin)
    raise exception.ConfigurationInvalid(
        field=field,
        expected=f'a subclass of {base.__name__}.Filter, or a class with '
                 'host_passes(host_state, spec_obj) of its own')


class BaseHostFilter:
    """A filter written for Nova needs this base and no other change.

    It says yes or no to one host. It costs Python's time for each host that
    is still in when its turn comes, so name it last in ``enabled_filters``.
    """

    #: See :class:`cellsched.filters.base.Filter`.
    reason = 'was rejected'
    run_filter_once_per_request = False
    RUN_ON_REBUILD = False
    hints: ClassVar[Iterable[str]] = ()
    reads: ClassVar[Iterable[str]] = ()

    def host_passes(
        self, host_state: state.HostState, filter_properties: Any
    ) -> bool:
        """Return whether a host may take the request.

        :param filter_properties: the request, a
            :class:`cellsched.objects.RequestSpec`
        """
        raise NotImplementedError()


class RowFilter(base.Filter):
    """Asks a class with ``host_passes`` about each host that is still in.

    The verdict on a host may depend on that host alone.
    """

    local = True
    by_row = True

    def __init__(self, plugin: Any) -> None:
        super().__init__(options=None)
        self._plugin = plugin
        self.reason = getattr(plugin, 'reason', base.Filter.reason)
        self.hints = frozenset(getattr(plugin, 'hints', ()))
        # What it reads cannot be known where it does not say so.
        self.reads = frozenset(getattr(plugin, 'reads', ()))
        self.run_filter_once_per_request = bool(
            getattr(plugin, 'run_filter_once_per_request', False))
        self.run_on_rebuild = bool(getattr(plugin, 'RUN_ON_REBUILD', False))

    @property
    def name(self) -> str:
        return type(self._plugin).__name__

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        passes = self._plugin.host_passes
        return np.fromiter(
            (passes(state.HostState(hosts, place), request)
             for place in range(len(hosts))), bool, len(hosts))
