# SPDX-License-Identifier: Apache-2.0
"""What services have to do with moves of servers."""

from collections.abc import Callable

from cellsched.api import moves
from cellsched.assembly import parts as parts_
from cellsched.compute import moves as moves_
from cellsched.conductor import service
from cellsched.conductor import stranded_moves
from cellsched.conductor.tasks import move
from cellsched.listing import servers as listing
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import conductor as conductor_rpc
from cellsched.rpc import scheduler as scheduler_rpc

#: How often an overdue move is looked for before it is twice overdue.
_LOOKS = 4


def conductor(parts: parts_.Parts) -> service.MovingConductor:
    """Return what a conductor above the cells answers."""
    conf = parts.conf
    return service.MovingConductor(move.Move(
        parts.database, parts.targets,
        scheduler_rpc.SchedulerAPI(
            parts.transports.get(), parts.database.timestamp,
            conf.rpc_response_timeout, conf.long_rpc_timeout,
            conf.upgrade_levels.scheduler, scheduler_rpc.VERSION),
        parts.compute, parts.claims, conf.host,
        parts.task_notifier, parts.reached))


def stranded(
    parts: parts_.Parts
) -> list[tuple[Callable[[], None], float]]:
    """Return what a conductor of a cell does of its own, and how often."""
    conf = parts.conf
    deadline_s = conf.conductor.move_deadline
    return [(stranded_moves.StrandedMoves(
        parts.cell_database, parts.compute.get(parts.transports.get()),
        parts.claims, conf.host, deadline_s,
        conf.service_down_time).run, deadline_s / _LOOKS)]


def agent(parts: parts_.Parts) -> moves_.MovingAgent:
    """Return what an agent answers."""
    return moves_.MovingAgent(
        parts.conf.host, parts.cell_database, parts.claims, parts.driver,
        parts.compute.get(parts.transports.get()), parts.network,
        parts.reached, parts.instance_locks)


def api(
    parts: parts_.Parts, reader: listing.ServerListing,
    conductor_: conductor_rpc.ConductorAPI, compute: compute_rpc.ComputeAPIs,
) -> moves.Moves:
    """Return what a front end calls."""
    return moves.Moves(
        parts.database, parts.targets, reader, conductor_, compute,
        parts.claims, parts.conf.host, parts.conf.service_down_time,
        parts.new_uuid)
