# SPDX-License-Identifier: Apache-2.0
"""Weighers that score one host at a time, as Nova's do."""

from typing import Any

import numpy as np

from cellsched.hosts import state
from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base


class BaseHostWeigher:
    """The base class for weighers written for Nova, with no other change.

    The weigher scores one host. It runs Python code for each host that
    passed.
    """

    minval: float | None = None
    maxval: float | None = None

    def weight_multiplier(self, host_state: state.HostState) -> float:
        """Return the multiplier of a host's score."""
        return 1.0

    def _weigh_object(
        self, host_state: state.HostState, weight_properties: Any
    ) -> float:
        """Return the score of a host.

        :param weight_properties: the request, a
            :class:`cellsched.objects.RequestSpec`
        """
        raise NotImplementedError()


class RowWeigher(base.Weigher):
    """Calls a class with ``_weigh_object`` for each host that passed.

    The score of a host must depend on that host alone.
    """

    multiplier_name = ''
    local = True
    by_row = True

    def __init__(self, plugin: Any) -> None:
        super().__init__(options=None)
        self._plugin = plugin
        self.minval = getattr(plugin, 'minval', None)
        self.maxval = getattr(plugin, 'maxval', None)

    @property
    def name(self) -> str:
        return type(self._plugin).__name__

    def multiplier(self, hosts: view.Hosts) -> float | view.Column:
        ask = getattr(self._plugin, 'weight_multiplier', None)
        if ask is None:
            return 1.0
        return np.fromiter(
            (ask(state.HostState(hosts, place))
             for place in range(len(hosts))), 'float64', len(hosts))

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        weigh = self._plugin._weigh_object
        return np.fromiter(
            (weigh(state.HostState(hosts, place), request)
             for place in range(len(hosts))), 'float64', len(hosts))
