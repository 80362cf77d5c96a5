# SPDX-License-Identifier: Apache-2.0
"""The claims that hosts offer to a request of Nova.

They come from the host itself, or from Placement's allocation candidates.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import random
from typing import Any

from nova import exception as nova_exception
from nova import objects as nova_objects
from nova.objects import base as nova_base
from nova.scheduler import request_filter
from nova.scheduler import utils
from oslo_serialization import jsonutils

from cellsched.claims import remote
from cellsched import clock
from cellsched.hardware import fit
from cellsched.hosts import view
from cellsched.scheduler.decision import allocation
from cellsched.scheduler.decision.allocation import ProviderAllocations
from cellsched.scheduler.decision.allocation import ProviderPart
from cellsched_nova import enabled_plugins
from cellsched_nova import placement

AllocationRequest = Mapping[str, Any]


def make_selection(
    hosts: view.Hosts, row: int, states: enabled_plugins.HostStates,
    request: AllocationRequest | None, limits: Mapping[str, Any],
    spec: Any = None,
) -> Any:
    """Return Nova's ``Selection`` of a selected host or an alternate.

    :param request: the claim on this host; None for a rebuild
    :param limits: the limits of filters on columns
    :param spec: Nova's request; None without limits
    """
    uuid, host, nodename, cell, zone = hosts.values_at(
        row, 'uuid', 'host', 'nodename', 'cell', 'availability_zone')
    state = states.get(uuid)
    return nova_objects.Selection(
        compute_node_uuid=uuid, service_host=host, nodename=nodename,
        cell_uuid=cell,
        limits=nova_objects.SchedulerLimits.from_dict(
            {**({} if state is None else state.limits),
             **_as_nova(limits, spec)}),
        allocation_request=jsonutils.dumps(request),
        allocation_request_version=(
            None if request is None else placement.CANDIDATES),
        availability_zone=zone)


def _as_nova(limits: Mapping[str, Any], spec: Any) -> dict[str, Any]:
    """Return limits with Nova's object of those of NUMA cells."""
    made = dict(limits)
    if 'numa_topology' in made:
        found = nova_base.NovaObject.obj_from_primitive(made['numa_topology'])
        made['numa_topology'] = found
        if 'network_metadata' in spec and spec.network_metadata:
            found.network_metadata = spec.network_metadata
    return made


def _with_hardware(
    hosts: view.Hosts, row: int, hardware: fit.Demand | None,
    found: ProviderAllocations,
) -> ProviderAllocations:
    """Return an allocation that counts CPUs, pages and devices of cells.

    Placement does not know them. If the host was forced and has too few, its
    compute refuses the server.
    """
    if hardware is None:
        return found
    return allocation.with_hardware(hosts, row, hardware, found) or found


@dataclasses.dataclass(frozen=True)
class WholeHosts:
    """Offers all resources from the host itself.

    :param resources: amounts by resource class
    :param spec: Nova's request
    :param states: Nova's host states
    :param hardware: the NUMA cells and devices, if filters on columns check
        them
    """

    resources: Mapping[str, int]
    spec: Any
    states: enabled_plugins.HostStates
    hardware: fit.Demand | None
    hosts: view.Hosts

    @property
    def is_parted(self) -> bool:
        return self.hardware is not None

    def allocate(self, row: int) -> ProviderAllocations:
        return _with_hardware(
            self.hosts, row, self.hardware, self.alternate(row))

    def alternate(self, row: int) -> ProviderAllocations:
        return allocation.whole(self.hosts['uuid'][row], self.resources)

    def kept(self, held: Mapping[str, Mapping[str, int]]) -> None:
        return None

    def taken(self, row: int, allocated: ProviderAllocations | None) -> None:
        _consume(self.states.get(self.hosts['uuid'][row]), self.spec)

    def selection(
        self, row: int, allocated: ProviderAllocations | None,
        limits: Mapping[str, int],
    ) -> Any:
        uuid = self.hosts['uuid'][row]
        return make_selection(self.hosts, row, self.states, {
            'allocations': {uuid: {'resources': dict(self.resources)}},
            'mappings': {'': [uuid]}}, limits, self.spec)


@dataclasses.dataclass(frozen=True)
class AllocationCandidates:
    """Offers the allocation candidates of Placement.

    :param by_provider: allocation requests by each of their providers, in
        Placement's order
    :param spec: Nova's request
    :param states: Nova's host states
    :param hardware: see :class:`WholeHosts`
    """

    by_provider: Mapping[str, Sequence[AllocationRequest]]
    spec: Any
    states: enabled_plugins.HostStates
    hardware: fit.Demand | None
    hosts: view.Hosts

    is_parted = True

    def allocate(self, row: int) -> ProviderAllocations | None:
        found = self.alternate(row)
        return found and _with_hardware(
            self.hosts, row, self.hardware, found)

    def alternate(self, row: int) -> ProviderAllocations | None:
        uuid = self.hosts['uuid'][row]
        state = self.states.get(uuid)
        # Filters of Nova may remove candidates from the host state.
        remaining = (self.by_provider.get(uuid, ()) if state is None
                     else state.allocation_candidates)
        return allocations_of(uuid, remaining[0]) if remaining else None

    def kept(self, held: Mapping[str, Mapping[str, int]]) -> None:
        return None

    def taken(self, row: int, allocated: ProviderAllocations | None) -> None:
        assert allocated is not None
        # For filters only: the conductor reads the selection.
        for group in self.spec.requested_resources:
            group.provider_uuids = allocated.mappings[group.requester_id]
        _consume(self.states.get(self.hosts['uuid'][row]), self.spec)

    def selection(
        self, row: int, allocated: ProviderAllocations | None,
        limits: Mapping[str, int],
    ) -> Any:
        assert allocated is not None
        return make_selection(self.hosts, row, self.states, {
            'allocations': {
                provider: {'resources': dict(resources)} for provider,
                resources in allocated.allocations.items()},
            'mappings': allocated.mappings}, limits, self.spec)


def allocations_of(
    host: str, request: AllocationRequest
) -> ProviderAllocations:
    """Return an allocation request of Placement in the product's form.

    A provider may serve several groups; the amounts are not split by group.

    :param host: uuid of the compute node
    """
    allocations = {provider: each['resources'] for provider, each
                   in request['allocations'].items()}
    mappings = request.get('mappings', {})
    groups: dict[str, list[str]] = {}
    for suffix, providers in mappings.items():
        for provider in providers:
            groups.setdefault(provider, []).append(suffix)
    return ProviderAllocations(
        dict(allocations.get(host, {})), allocations, mappings, [
            ProviderPart(', '.join(sorted(groups.get(provider, ()))),
                         provider, tuple(resources.items()))
            for provider, resources in allocations.items()])


def _consume(state: Any | None, spec: Any) -> None:
    """Count a claim in Nova's host state, if it was read."""
    if state is not None:
        state.consume_from_request(spec)


def find_candidates(
    context: Any, client: Any, host_manager: Any, spec: Any, fallback: bool,
    remaining_s: Callable[[], float] = lambda: 0.0,
) -> dict[str, list[AllocationRequest]]:
    """Return the allocation candidates of a request, requested as in Nova.

    Nova's request filters run before and modify the request.

    :param fallback: request virtual CPUs in place of pinned CPUs too, which
        hosts with an older configuration report
    :param remaining_s: returns the seconds that remain for retries
    :returns: allocation requests by each of their providers
    :raises nova.exception.NoValidHost: a request filter found no host
    :raises cellsched_nova.placement.PlacementUnavailable: Placement does not
        answer, or rejects the request as invalid
    """
    try:
        request_filter.process_reqspec(context, spec)
    except nova_exception.RequestFilterFailed as exc:
        raise nova_exception.NoValidHost(reason=exc.message) from exc
    found: list[AllocationRequest] = []
    for translated in (True, False):
        query = utils.resources_from_request_spec(
            context, spec, host_manager, enable_pinning_translate=translated)
        answer = _read_candidates(context, client, query, remaining_s())
        found.extend(answer['allocation_requests'])
        if not (query.cpu_pinning_requested and fallback):
            break
    by_provider: dict[str, list[AllocationRequest]] = {}
    for each in found:
        for uuid in each['allocations']:
            by_provider.setdefault(uuid, []).append(each)
    return by_provider


def _read_candidates(
    context: Any, client: Any, query: Any, timeout_s: float
) -> Mapping[str, Any]:
    """Return Placement's answer, with retries.

    Nova's own client does not report a missing answer.
    """
    reason = ''
    for _ in remote.attempts(clock.Clock(), random.Random(), timeout_s):
        try:
            answer: Mapping[str, Any] = placement.read(
                client, context,
                f'/allocation_candidates?{query.to_querystring()}')
        except placement.PlacementRefused:
            raise
        except placement.PlacementUnavailable as exc:
            reason = exc.kwargs['reason']
        else:
            return answer
    raise placement.PlacementUnavailable(reason=reason)
