# SPDX-License-Identifier: Apache-2.0
"""Stages that every request has to pass, whichever filters are enabled.

They run before all filters, for forced requests, too. The first ones apply the
destinations that the request names. The rest apply Nova's request filters,
which Placement applies in Nova; options of ``[scheduler]`` enable most of
them.
"""

from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

import numpy as np

from cellsched import exception
from cellsched.filters import availability_zone
from cellsched.filters import base
from cellsched.filters import compute
from cellsched.hosts import aggregate
from cellsched.hosts import view
from cellsched import objects
from cellsched.objects import keys
from cellsched.scheduler.decision import required_traits


class _Stage(base.Filter):
    """A stage of the driver, always part of the pipeline."""

    run_filter_once_per_request = True


class SilentCell(_Stage):
    """Reject the hosts of a cell that did not answer for too long.

    The data on these hosts is too old for a decision.

    :param limit_s: seconds of silence that are tolerated
    """

    reason = 'is in a cell that does not answer'

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self._limit_s = limit_s

    def cache_key(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Hashable:
        return hosts.all_heard_within(self._limit_s) or None

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        if hosts.all_heard_within(self._limit_s):
            return None
        return hosts['cell_silent_s'] <= self._limit_s


class DisabledCell(_Stage):
    """Reject the hosts of a disabled cell, which takes no new servers.

    A request for hosts of one cell is a move of a server inside that cell, and
    is allowed.
    """

    reason = 'is in a disabled cell'

    def applies(self, request: objects.RequestSpec) -> bool:
        return not _STAYS_IN_CELL.applies(request)

    def cache_key(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Hashable:
        return frozenset(hosts.columns.snapshot.cells.disabled)

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        return ~hosts['cell_disabled'] if hosts.any_cell_disabled else None

    def internals(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> str | None:
        names = hosts.columns.snapshot.cells.disabled
        return exception.name_some(sorted({
            names[hosts.value('cell', code)]
            for code in np.unique(hosts['cell']).tolist()}))


class RequestedCell(_Stage):
    """Reject hosts outside of the requested cell.

    If the request allows moves across cells, the cell is only preferred.
    """

    reason = 'is in another cell'
    reads = frozenset({'requested_destination.cell'})

    def applies(self, request: objects.RequestSpec) -> bool:
        cell, crosses = _destination(request, 'cell', 'allow_cross_cell_move')
        return cell is not None and not crosses

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        cell = request.requested_destination.cell
        return hosts['cell'] == hosts.code('cell', cell.uuid)


_STAYS_IN_CELL = RequestedCell()


class RequestedHost(_Stage):
    """Reject all hosts and nodes except the requested one."""

    reason = 'is not the host that was requested'
    reads = frozenset({
        'requested_destination.host',
        'requested_destination.node'})

    def applies(self, request: objects.RequestSpec) -> bool:
        return any(_destination(request, 'host', 'node'))

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        host, node = _destination(request, 'host', 'node')
        mask = np.ones(len(hosts), dtype=bool)
        if host:
            mask &= _named(hosts, [host])
        if node:
            mask &= hosts['nodename'] == node
        return mask


class RequestedAggregates(_Stage):
    """Reject hosts outside of the requested aggregates.

    Each string of ``aggregates`` is a comma-separated list of uuids. A host
    must be in one aggregate of each list, and in none of
    ``forbidden_aggregates``.
    """

    reason = 'is outside of the requested aggregates'
    reads = frozenset({
        'requested_destination.aggregates',
        'requested_destination.forbidden_aggregates'})

    def applies(self, request: objects.RequestSpec) -> bool:
        return any(_destination(
            request, 'aggregates', 'forbidden_aggregates'))

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        inside, outside = _destination(
            request, 'aggregates', 'forbidden_aggregates')
        requested = [_uuids([text]) for text in inside or ()]
        forbidden = _uuids(outside or ())

        def passes(aggregates: Iterable[aggregate.HostAggregate]) -> bool:
            own = {each.uuid for each in aggregates}
            return (forbidden.isdisjoint(own)
                    and not any(own.isdisjoint(some) for some in requested))
        return hosts.each('aggregates', passes)


class ForcedHost(_Stage):
    """Reject all hosts except ``force_hosts`` and ``force_nodes``."""

    reason = 'is not among the forced hosts'
    reads = frozenset({'force_hosts', 'force_nodes'})

    def applies(self, request: objects.RequestSpec) -> bool:
        return bool(request.get('force_hosts') or request.get('force_nodes'))

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        mask = np.ones(len(hosts), dtype=bool)
        if request.get('force_hosts'):
            mask &= _named(hosts, request.force_hosts)
        if request.get('force_nodes'):
            # Compare codes: an array of names would be as wide as the longest.
            nodes = frozenset(request.force_nodes)
            mask &= np.fromiter(
                map(nodes.__contains__, hosts['nodename']), bool)
        return mask


class IgnoredHost(_Stage):
    """Reject ``ignore_hosts`` of the request."""

    reason = 'is among the ignored hosts'
    reads = frozenset({'ignore_hosts'})

    def applies(self, request: objects.RequestSpec) -> bool:
        return bool(request.get('ignore_hosts'))

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        return ~_named(hosts, request.ignore_hosts)


def destination_stages(silence_s: float) -> list[base.Filter]:
    """Return the stages for named destinations, in order.

    :param silence_s: seconds that a cell may be silent
    """
    return [SilentCell(silence_s), DisabledCell(), RequestedCell(),
            RequestedHost(), RequestedAggregates(), ForcedHost(),
            IgnoredHost(), compute.RetryFilter()]


def _destination(request: objects.RequestSpec, *names: str) -> list[Any]:
    """Return fields of the requested destination, or None for each."""
    target = request.get('requested_destination')
    if target is None:
        return [None] * len(names)
    return [target.get(name) for name in names]


def _named(hosts: view.Hosts, names: Iterable[str]) -> view.Mask:
    """Return the mask of hosts with one of these names, in any case."""
    mask = np.zeros(len(hosts.whole), dtype=bool)
    for name in dict.fromkeys(names):
        mask[hosts.named(name)] = True
    return mask if hosts.is_whole else mask[hosts.rows]


def _uuids(texts: Iterable[str]) -> set[str]:
    return {uuid.strip() for text in texts for uuid in text.split(',')}


#: Prefix of the metadata keys that name projects allowed on an aggregate.
TENANT_KEY = 'filter_tenant_id'


class DisabledCompute(_Stage):
    """Reject a host whose compute service an operator disabled."""

    reason = 'is disabled'

    def cache_key(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Hashable:
        return ()

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        some = hosts.memo('some are disabled', _some_disabled)
        return ~hosts['service_disabled'] if some else None


class TenantAggregate(_Stage):
    """Reject hosts outside of the aggregates of the request's project.

    A project without an aggregate may use all hosts, or none if
    ``placement_aggregate_required_for_tenants`` is set.
    """

    reason = "is outside of the project's aggregates"

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        project = request.get('project_id')

        def passes(aggregates: Iterable[aggregate.HostAggregate]) -> bool:
            return any(key.startswith(TENANT_KEY) and value == project
                       for each in aggregates
                       for key, value in each.metadata.items())
        everywhere = hosts.whole.each('aggregates', passes)
        if not (everywhere.any()
                or self.options.placement_aggregate_required_for_tenants):
            return None
        return everywhere if hosts.is_whole else everywhere[hosts.rows]


class IsolatedAggregate(_Stage):
    """Reject hosts of aggregates that require traits of a request.

    An aggregate with ``trait:NAME=required`` in its metadata accepts only
    requests that require all of these traits by name. The traits of a
    requested TPM count as named.
    """

    reason = 'is kept for servers that need its traits'

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        requested = (required_traits.named(request)
                     | required_traits.tpm(request))

        trait = required_traits.TRAIT

        def passes(aggregates: Iterable[aggregate.HostAggregate]) -> bool:
            return all(
                key.removeprefix(trait) in requested for each in aggregates
                for key, value in each.metadata.items()
                if key.startswith(trait) and value == 'required')
        return hosts.each('aggregates', passes)


class InvalidMetadata(_Stage):
    """Reject hosts of aggregates with an invalid value of a known key.

    Another program stored the value, as the API refuses it. The hosts may be
    kept for some servers, or have limits, that the value was meant to name.
    """

    reason = 'is in an aggregate with an invalid value in its metadata'

    def cache_key(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Hashable:
        return ()

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        found = hosts.memo('invalid metadata', _invalid_metadata)
        if not found:
            return None
        return hosts.each('aggregates', lambda aggregates: not any(
            each.uuid in found for each in aggregates))

    def reason_for(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> str:
        found = hosts.memo('invalid metadata', _invalid_metadata)
        names = sorted({found[each.uuid]
                        for code in np.unique(hosts['aggregates']).tolist()
                        for each in hosts.value('aggregates', code)
                        if each.uuid in found})
        return f'{self.reason} ({exception.name_some(names)})'


def _invalid_metadata(hosts: view.Hosts) -> dict[str, str]:
    """Return a key with an invalid value, by the uuid of its aggregate."""
    known = {each.uuid: each
             for code in np.unique(hosts['aggregates']).tolist()
             for each in hosts.value('aggregates', code)}
    found = {}
    for uuid, each in known.items():
        try:
            keys.METADATA.check(each.metadata, 'aggregate', 'metadata')
        except exception.InvalidField as exc:
            found[uuid] = exc.field.removeprefix('metadata.')
    return found


def _some_disabled(hosts: view.Hosts) -> bool:
    return bool(hosts['service_disabled'].any())


#: The stages for Nova's request filters, in order, and the options of
#: ``[scheduler]`` that enable some of them.
REQUEST_STAGES: Mapping[type[base.Filter], str | None] = {
    availability_zone.AvailabilityZoneFilter: None,
    TenantAggregate: 'limit_tenants_to_placement_aggregate',
    IsolatedAggregate: 'enable_isolated_aggregate_filtering',
    DisabledCompute: None,
    required_traits.Traits: None,
    required_traits.ImageTypeSupport: 'query_placement_for_image_type_support',
    required_traits.ImageMetadata: 'image_metadata_prefilter',
    required_traits.PackedVirtqueue: None,
    required_traits.EphemeralEncryption: None,
    required_traits.VirtioSound: None,
    required_traits.VTPM: None,
}


def request_stages(options: Any) -> list[base.Filter]:
    """Return the enabled stages for Nova's request filters, in order.

    :param options: the options of ``[scheduler]``
    """
    return [kind(options) for kind, option in REQUEST_STAGES.items()
            if option is None or getattr(options, option)]
