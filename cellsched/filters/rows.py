# SPDX-License-Identifier: Apache-2.0
"""Filters that check one host at a time, as Nova's do."""

from collections.abc import Iterable
from typing import Any
from typing import ClassVar

import numpy as np

from cellsched.filters import base
from cellsched.hosts import state
from cellsched.hosts import view
from cellsched import objects


class BaseHostFilter:
    """The base class for filters written for Nova, with no other change.

    The filter accepts or rejects one host. It runs Python code for each
    host that passed the filters before it, so name it last in
    ``enabled_filters``.
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
    """Calls a class with ``host_passes`` for each remaining host.

    The verdict on a host must depend on that host alone.
    """

    local = True
    by_row = True

    def __init__(self, plugin: Any) -> None:
        super().__init__(options=None)
        self._plugin = plugin
        self.reason = getattr(plugin, 'reason', base.Filter.reason)
        self.hints = frozenset(getattr(plugin, 'hints', ()))
        # Without a declaration, the requirements that it reads are unknown.
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
