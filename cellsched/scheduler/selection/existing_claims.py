# SPDX-License-Identifier: Apache-2.0
"""Requests for instances that have claims already.

The request is either a retry after a lost answer, or a move. A moved instance
keeps its claim on the source host until that host reports that the instance is
gone. Until then its new claim has a consumer of its own.
"""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import copy
import dataclasses

import numpy as np

from cellsched.claims import base as claims_base
from cellsched import exception
from cellsched.filters import compute
from cellsched.hardware import units
from cellsched.hosts import view
from cellsched import migrations
from cellsched import objects
from cellsched.scheduler.decision import mandatory_stages
from cellsched.scheduler.decision.pipeline import Pipeline
from cellsched.scheduler.explanation import decision_record
from cellsched.scheduler.explanation import diagnosis
from cellsched.scheduler import request_validation

_TRIED = compute.RetryFilter()

#: Parts of a request that select hosts by name, not by a filter.
_WISHES = (mandatory_stages.RequestedCell(), mandatory_stages.RequestedHost(),
           mandatory_stages.ForcedHost(), mandatory_stages.IgnoredHost(),
           _TRIED)

Held = Mapping[str, Sequence[claims_base.Claim]]


@dataclasses.dataclass(frozen=True)
class InstanceLocations:
    """The locations of instances.

    :param nodes: compute node uuids of the request's instances, and of other
        instances
    :param kept: the request's instances that keep a suitable claim
    :param consumers: the consumers for new claims of the request's instances
        that hold a different claim
    :param stale: claims of failed builds by consumer, released with the answer
    :param claims: the claims of the instances in ``kept``
    :param asked: the other instances that were looked for
    """

    nodes: Mapping[str, str]
    kept: Mapping[str, str]
    consumers: Mapping[str, str]
    stale: Held = dataclasses.field(default_factory=dict)
    claims: Held = dataclasses.field(default_factory=dict)
    asked: frozenset[str] = frozenset()


NO_LOCATIONS = InstanceLocations({}, {}, {})


def has_tried(request: objects.RequestSpec) -> bool:
    """Return whether an earlier build attempt failed."""
    return _TRIED.applies(request)


def consumer_of_move(request: objects.RequestSpec, instance: str) -> str:
    """Return the consumer of an instance's claims on its destination.

    The requests of other services do not name the migration.
    """
    uuid: str | None = request.get('migration_uuid')
    return uuid or migrations.consumer(instance)


def locate(
    hosts: view.Hosts, request: objects.RequestSpec,
    instances: Sequence[str], held: Held,
    reported: Mapping[str, str] | None = None,
) -> InstanceLocations:
    """Separate instances with a suitable claim from instances to move.

    :param instances: the request's instances
    :param held: claims of all consumers of these instances, and of other
        instances
    :param reported: nodes of instances, as reported by their hosts
    """
    stale = _stale(hosts, request, instances, held, reported or {})
    held = {name: claims for name, claims in held.items()
            if name not in stale}
    nodes = {name: node_of(hosts, claims) for name, claims in held.items()}
    kept, consumers, kept_claims = {}, {}, {}
    for instance in instances:
        other = consumer_of_move(request, instance)
        for name in (instance, other):
            if name in held and _suits(hosts, request, held[name]) and not (
                    name == instance and _leaves_unknown_host(
                        hosts, request, held[name])):
                nodes[instance] = kept[instance] = nodes[name]
                kept_claims[instance] = held[name]
                break
        else:
            if instance in held or request.get('migration_uuid'):
                consumers[instance] = other
                # A claim on the host to leave is no location.
                nodes.pop(instance, None)
    return InstanceLocations(nodes, kept, consumers, stale, kept_claims)


def without_lost_members(
    hosts: view.Hosts, request: objects.RequestSpec, uuids: Sequence[str],
    down_s: float,
) -> tuple[objects.RequestSpec, frozenset[str]]:
    """Return a request without the affinity members on lost hosts.

    A member on a host that is down does not bind the others if another member
    is on a host that is up, if an operator forced the host down, or if the
    server of the request leaves this host. A host that is only silent may
    return, so it binds all other requests.

    :param hosts: the hosts, with the locations of the members
    :param uuids: the request's instances, which stay members
    :param down_s: seconds without a report after which a host is down
    :returns: the request, and the names of the hosts whose members were
        removed
    """
    group, hosts = request.instance_group, hosts.whole
    members = group.get('members') or []
    leaves = {name.lower() for name in request.get('ignore_hosts') or ()}
    # 1. Find the row of each member's host. A host that is not known any more
    # counts as the one that the server leaves.
    places = {uuid: hosts.rows_of([uuid]).tolist() for uuid in members
              if uuid not in uuids and hosts.placed([uuid])}
    unknown = [uuid for uuid, rows in places.items() if not rows]
    used = sorted({row for rows in places.values() for row in rows}.union(
        *(hosts.named(name) for name in group.get('hosts') or ())))
    names = dict(zip(used, map(str, hosts['host'][used])))
    # 2. Find the hosts that are down.
    forced, seen = hosts['forced_down'], hosts['last_seen_up']
    down = {row: name for row, name in names.items()
            if forced[row] or abs(hosts.now - seen[row]) > down_s}
    if len(down) == len(used) and not all(
            forced[row] or name.lower() in leaves
            for row, name in down.items()):
        return request, frozenset()
    gone = {uuid for uuid, rows in places.items() if down.keys() & rows}
    lost = frozenset(down.values())
    if leaves and unknown:
        gone.update(unknown)
        lost |= {*request.ignore_hosts}
    if not lost:
        return request, lost
    # 3. Remove the members from a copy of the request.
    request, group = copy.copy(request), copy.copy(group)
    group.members = [uuid for uuid in members if uuid not in gone]
    group.hosts = [name for name in group.get('hosts') or ()
                   if name not in lost]
    request.instance_group = group
    return request, lost


def _stale(
    hosts: view.Hosts, request: objects.RequestSpec,
    instances: Sequence[str], held: Held, reported: Mapping[str, str],
) -> Held:
    """Return the claims on hosts where the request's builds failed.

    A server that runs on such a host, where its resize failed, keeps its
    claim.
    """
    if not has_tried(request):
        return {}
    requested = totals(request)
    found = {}
    for instance in instances:
        for name in (instance, consumer_of_move(request, instance)):
            claims = held.get(name)
            if not claims or _sums(claims) != requested:
                continue
            node, row = node_of(hosts, claims), row_of(hosts, claims)
            if (row is not None and reported.get(name) != node
                    and not _TRIED.keep(
                        hosts.at(np.array([row])), request)[0]):
                found[name] = claims
    return found


def _suits(
    hosts: view.Hosts, request: objects.RequestSpec,
    claims: Sequence[claims_base.Claim],
) -> bool:
    """Return whether a claim satisfies the request."""
    row = row_of(hosts, claims)
    if row is None:
        # An unknown host cannot be excluded.
        return True
    if _sums(claims) != totals(request):
        return False
    return all(
        wish.keep(hosts.at(np.array([row])), request)[0]
        for wish in _WISHES if wish.applies(request))


def _leaves_unknown_host(
    hosts: view.Hosts, request: objects.RequestSpec,
    claims: Sequence[claims_base.Claim],
) -> bool:
    """Return whether a move leaves a host that is not known any more.

    The destination of a move has a consumer of its own.
    """
    return bool(request.get('ignore_hosts')) and row_of(hosts, claims) is None


def held_on(hosts: view.Hosts, host: str, held: Held) -> list[str]:
    """Return the consumers with a claim on a host."""
    rows = {*hosts.named(host)}
    return [name for name, claims in held.items()
            if row_of(hosts, claims) in rows]


def row_of(
    hosts: view.Hosts, claims: Sequence[claims_base.Claim]
) -> int | None:
    """Return the row of the host whose providers the claims are on.

    None means that no such host is known.
    """
    for each in claims:
        row = hosts.row_of_provider(each.provider)
        if row is not None:
            return row
    return None


def node_of(
    hosts: view.Hosts, claims: Sequence[claims_base.Claim]
) -> str:
    """Return the node whose providers the claims are on.

    For an unknown host the result is one of the providers.
    """
    row = row_of(hosts, claims)
    uuid: str = (claims[0].provider if row is None
                 else hosts.whole['uuid'][row])
    return uuid


def totals(request: objects.RequestSpec) -> dict[str, int]:
    """Return a server's total amounts on all providers, by class."""
    return _added([request.resources(), *(
        dict(group.resources) for group in request.group_demand().groups)])


def _sums(claims: Sequence[claims_base.Claim]) -> dict[str, int]:
    return _added([units.plain(each.resources) for each in claims])


def _added(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found = collections.Counter[str]()
    for each in amounts:
        found.update(each)
    return dict(found)


#: Used in place of an allocation request if nothing is claimed.
_NOTHING = 'null'


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of a rebuild check.

    :param places: for the one instance its host, if it suits the image
    :param why: the reason for a rejection, else None
    """

    places: list[list[objects.Selection]]
    why: diagnosis.Diagnosis | None
    decision: decision_record.Decision


def rebuilt_instance(
    request: objects.RequestSpec, uuids: Sequence[str] | None
) -> str:
    """Return the instance of a rebuild check.

    :param uuids: the instances that the caller named, if any
    :raises cellsched.exception.InvalidField: the request is not for one
        instance
    """
    uuid: str | None = request.get('instance_uuid')
    if (uuid is None or request.get('num_instances', 1) != 1
            or uuids is not None and list(uuids) != [uuid]):
        raise _refused()
    return uuid


def check(
    hosts: view.Hosts, pipeline: Pipeline,
    request: objects.RequestSpec, nodes: Iterable[str],
) -> Verdict:
    """Run the filters of a rebuild on the host of a server.

    :param nodes: the known nodes of the instance; a claim on a child provider
        counts for its host
    :raises cellsched.exception.InvalidField: the instance is not known to be
        on the host that the request is forced to
    """
    row = _row(hosts, request, frozenset(nodes))
    host = hosts.at(np.array([row]))
    found = pipeline.candidates(host, request, rebuild=True)
    decision = decision_record.of(host, found, ())
    if not len(found):
        return Verdict([], diagnosis.Diagnosis(
            1, pipeline.rejections(request, found)), decision)
    return Verdict([[_selection(hosts, row)]], None, decision)


def _row(
    hosts: view.Hosts, request: objects.RequestSpec, nodes: frozenset[str]
) -> int:
    names = hosts['host']
    places = {hosts.row_of_provider(uuid) for uuid in nodes}
    known = {names[row] for row in places if row is not None}
    forced, requested = request.get('force_hosts'), request.get('force_nodes')
    rows = hosts.named(forced[0]) if forced and len(forced) == 1 else []
    rows = [row for row in rows if names[row] in known
            and (not requested or hosts['nodename'][row] in requested)]
    if not rows:
        raise _refused()
    # If the host has several nodes, use the one with the claim.
    return next((row for row in rows if row in places), rows[0])


def _selection(hosts: view.Hosts, row: int) -> objects.Selection:
    return objects.Selection(
        compute_node_uuid=hosts['uuid'][row],
        service_host=hosts['host'][row], nodename=hosts['nodename'][row],
        cell_uuid=hosts.value('cell', hosts['cell'][row]),
        limits=objects.SchedulerLimits(
            numa_topology=None, vcpu=None, disk_gb=None, memory_mb=None),
        allocation_request=_NOTHING, allocation_request_version=None,
        availability_zone=hosts.value(
            'availability_zone', hosts['availability_zone'][row]))


def _refused() -> exception.InvalidField:
    return request_validation.invalid(
        f'spec_obj.scheduler_hints.{request_validation.REBUILD}',
        'one instance that has its claim on the host of force_hosts',
        'this request cannot be a rebuild')
