# SPDX-License-Identifier: Apache-2.0
"""Adapters for filters and weighers that are written for Nova.

A plug-in receives Nova's own request. Its host states read columns where a
column has the same value, and Nova's own host state for all other attributes.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import copy
from typing import Any

import nova.conf
from nova import filters as nova_filters
from nova import weights as nova_weights
import numpy as np

from cellsched.filters import base as filters
from cellsched.hosts import state
from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base as weighers

#: Attributes of Nova's host state that have a column.
_COLUMNS = frozenset({
    'cell_uuid', 'cpu_allocation_ratio', 'disk_allocation_ratio',
    'disk_mb_used', 'failed_builds', 'free_disk_mb', 'free_ram_mb', 'host',
    'hypervisor_hostname', 'hypervisor_type', 'hypervisor_version',
    'nodename', 'num_instances', 'num_io_ops', 'ram_allocation_ratio',
    'total_usable_disk_gb', 'total_usable_ram_mb', 'uuid', 'vcpus_total',
    'vcpus_used'})


#: For some filters of Nova: the requests that they can reject hosts for.
_NEEDS: Mapping[str, Callable[[Any], bool]] = {
    'NUMATopologyFilter': lambda spec: spec.numa_topology is not None,
    'PciPassthroughFilter': lambda spec: bool(
        spec.pci_requests is not None and spec.pci_requests.requests),
}


#: The options with the multipliers of these weighers. With an option, the
#: multiplier needs no look at each host.
_MULTIPLIERS = {'ImagePropertiesWeigher': 'image_props_weight_multiplier'}


class HostStates:
    """Nova's host states for the plug-ins of one request.

    The first use reads them from the cells.

    :param read: returns Nova's host states of compute nodes, by their uuids
    :param candidates: allocation requests of Placement, by compute node
    :param aggregates: Nova's aggregates, by id
    """

    def __init__(
        self, read: Callable[[Sequence[str]], Iterable[Any]],
        candidates: Mapping[str, Sequence[Any]],
        aggregates: Mapping[int, Any] | None = None,
    ) -> None:
        self._read = read
        self._candidates = candidates
        self.aggregates = aggregates or {}
        self._known: dict[str, Any] = {}

    def load(self, uuids: Iterable[str]) -> None:
        """Read the missing host states of these compute nodes."""
        missing = [uuid for uuid in uuids if uuid not in self._known]
        if not missing:
            return
        for one in self._read(missing):
            one.allocation_candidates = copy.deepcopy(
                list(self._candidates.get(one.uuid, ())))
            self._known[one.uuid] = one

    def get(self, uuid: str) -> Any | None:
        """Return the host state of a compute node, or None if not read."""
        return self._known.get(uuid)


class _HostState:
    """A host with the attributes that Nova's plug-ins read and write."""

    def __init__(
        self, hosts: view.Hosts, place: int, states: HostStates
    ) -> None:
        vars(self).update(
            _row=state.HostState(hosts, place), _hosts=hosts, _states=states)

    def __getattr__(self, name: str) -> Any:
        if name in _COLUMNS:
            return getattr(self._row, name)
        if name == 'aggregates':
            known = self._states.aggregates
            return [known[each.id] for each in self._row.aggregates
                    if each.id in known]
        return getattr(self._nova(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._nova(), name, value)

    def __repr__(self) -> str:
        return repr(self._row)

    def _nova(self) -> Any:
        uuid = self._row.uuid
        if self._states.get(uuid) is None:
            # Read all hosts at once: the plug-in will read them next.
            self._states.load(self._hosts['uuid'])
        found = self._states.get(uuid)
        if found is None:
            raise LookupError(f'compute node {uuid} does not exist any more')
        return found


class NovaFilter(filters.Filter):
    """Runs a filter of Nova on each remaining host.

    :param plugin: Nova's filter
    :param spec: Nova's request
    """

    by_row = True

    def __init__(self, plugin: Any, spec: Any, states: HostStates) -> None:
        super().__init__(options=None)
        self._plugin = plugin
        self._spec = spec
        self._states = states
        # A filter that compares hosts overrides this method.
        self.local = (type(plugin).filter_all  # type: ignore[misc]
                      is nova_filters.BaseFilter.filter_all)
        self.run_filter_once_per_request = bool(
            plugin.run_filter_once_per_request)
        self.run_on_rebuild = bool(plugin.RUN_ON_REBUILD)

    @property
    def name(self) -> str:  # type: ignore[override]
        return type(self._plugin).__name__

    def applies(self, request: objects.RequestSpec) -> bool:
        needs = _NEEDS.get(self.name)
        return needs is None or needs(self._spec)

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        shown = [_HostState(hosts, place, self._states)
                 for place in range(len(hosts))]
        passed = {id(each) for each in self._plugin.filter_all(
            shown, self._spec) or ()}
        return np.fromiter((id(each) in passed for each in shown), bool,
                           len(shown))


class NovaWeigher(weighers.Weigher):
    """Runs a weigher of Nova on each remaining host."""

    multiplier_name = ''
    by_row = True

    def __init__(self, plugin: Any, spec: Any, states: HostStates) -> None:
        super().__init__(options=None)
        self._plugin = plugin
        self._spec = spec
        self._states = states
        self.minval = plugin.minval
        self.maxval = plugin.maxval
        self._option = _MULTIPLIERS.get(self.name)

    @property
    def name(self) -> str:  # type: ignore[override]
        return type(self._plugin).__name__

    def multiplier(self, hosts: view.Hosts) -> float | view.Column:
        if self._option is not None:
            return hosts.number(self._option, getattr(
                nova.conf.CONF.filter_scheduler, self._option))
        return np.fromiter(
            (self._plugin.weight_multiplier(
                _HostState(hosts, place, self._states))
             for place in range(len(hosts))), 'float64', len(hosts))

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        shown = [nova_weights.WeighedObject(
            _HostState(hosts, place, self._states), 0.0)
            for place in range(len(hosts))]
        return np.array(self._plugin.weigh_objects(shown, self._spec),
                        dtype='float64')
