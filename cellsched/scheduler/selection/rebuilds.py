# SPDX-License-Identifier: Apache-2.0
"""Checks of a host for a server that stays there and gets another image.

Nova asks for one by a hint, for which its scheduler claims nothing and asks
few filters. Users could send that hint as well, to be put past all checks
onto a host. So it is honoured only where it can be true: for a server that is
known to be on the host that the request is forced to.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses

import numpy as np

from cellsched.clock import Clock
from cellsched import exception
from cellsched.hosts import view
from cellsched import migrations
from cellsched import objects
from cellsched.scheduler.decision.pipeline import Pipeline
from cellsched.scheduler.explanation import decision_record
from cellsched.scheduler.explanation import diagnosis
from cellsched.scheduler import request_validation
from cellsched.scheduler.selection import claim_batching
from cellsched.scheduler.selection import placement_hosts

#: In place of an allocation request: nothing is claimed.
_NOTHING = 'null'


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The outcome of a check.

    :param places: for the one instance its host, if that does for the image
    :param why: why not, else None
    """

    places: list[list[objects.Selection]]
    why: diagnosis.Diagnosis | None
    decision: decision_record.Decision


def is_asked_for(request: objects.RequestSpec) -> bool:
    """Return whether a request is for such a check."""
    return bool(request.hint(request_validation.REBUILD))


class Rebuilds:
    """Checks hosts on the table of a loader, and takes nothing."""

    def __init__(
        self, loader: placement_hosts.PlacementHosts,
        claims: claim_batching.ClaimBatcher, clock: Clock,
    ) -> None:
        self._loader = loader
        self._claims = claims
        self._clock = clock

    def check(
        self, pipeline: Pipeline, request: objects.RequestSpec,
        uuids: Sequence[str] | None,
    ) -> Verdict:
        """Check the host of a request; see :func:`check`.

        :param uuids: the instances that its caller named, if any
        :raises cellsched.exception.InvalidField: its instance is not known to
            be there, or it is not about one
        """
        uuid = _instance(request, uuids)
        held = self._claims.claims_of(migrations.consumers([uuid]))
        nodes = {each.provider for claims in held.values() for each in claims}
        nodes.update(self._loader.reported_nodes([uuid]).values())
        hosts = self._loader.table.view(self._clock.steady())
        return check(hosts, pipeline, request, nodes)


def _instance(
    request: objects.RequestSpec, uuids: Sequence[str] | None
) -> str:
    uuid: str | None = request.get('instance_uuid')
    if (uuid is None or request.get('num_instances', 1) != 1
            or uuids is not None and list(uuids) != [uuid]):
        raise _refused()
    return uuid


def check(
    hosts: view.Hosts, pipeline: Pipeline,
    request: objects.RequestSpec, nodes: Iterable[str],
) -> Verdict:
    """Ask the filters that a rebuild asks about the host of its server.

    :param nodes: where its instance is known to be; what it holds of a child
        provider says so of the host
    :raises cellsched.exception.InvalidField: it is not known to be on the
        host that the request is forced to
    """
    row = _row(hosts, request, frozenset(nodes))
    found = pipeline.candidates(
        hosts.at(np.array([row])), request, rebuild=True)
    decision = decision_record.Decision(
        1, decision_record.counts(1, found.stages, found.filtered.steps), ())
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
    forced, wanted = request.get('force_hosts'), request.get('force_nodes')
    rows = hosts.named(forced[0]) if forced and len(forced) == 1 else []
    rows = [row for row in rows if names[row] in known
            and (not wanted or hosts['nodename'][row] in wanted)]
    if not rows:
        raise _refused()
    # Of a host with several nodes, the one that holds its claim.
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
        'no such hint but for one server on the host that it is forced to')
