# SPDX-License-Identifier: Apache-2.0
"""Faults of a simulated deployment.

A fault happens at a time of the scenario, and ends after ``for_s`` seconds if
it can end. Servers of lost hosts are lost until their hosts come back or until
they are evacuated, which a scheduler decides as in production.
"""

from __future__ import annotations
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import TYPE_CHECKING

import numpy as np

from cellsched.scale.load import Arrival
from cellsched.scale.load import Flavor
from cellsched.scale.schedulers import Job

if TYPE_CHECKING:
    # A run schedules the faults.
    from cellsched.scale.run import Run
    from cellsched.scale.run import Server

#: Seconds that a fault lasts unless a scenario says it.
_DEFAULT_S = 600.0

#: Requests of a flood unless a scenario says it.
_FLOOD = 1000

#: Seconds from the last report of a host until its servers are evacuated, at
#: most; see ``[DEFAULT] service_down_time``.
_CHECK_S = 10.0

_Fault = Mapping[str, Any]


def schedule(run: Run) -> None:
    """Schedule the faults of the scenario of a run."""
    for fault in run.scenario.faults:
        run.engine.call_at(fault['at'], KINDS[fault['kind']], run, fault)


def _later(
    run: Run, fault: _Fault, function: Callable[..., None], *args: Any
) -> None:
    """Call a function at the end of a fault."""
    run.engine.call_at(
        run.engine.now + fault.get('for_s', _DEFAULT_S), function, *args)


def _lose_rack(run: Run, fault: _Fault) -> None:
    rows = np.flatnonzero(run.deployment.racks == fault.get('rack', 0))
    _lose_hosts(run, fault, rows.tolist())


def _lose_cell(run: Run, fault: _Fault) -> None:
    rows = np.flatnonzero(run.deployment.cell_of == fault.get('cell', 0))
    _lose_hosts(run, fault, rows.tolist())


def _lose_hosts(run: Run, fault: _Fault, rows: Sequence[int]) -> None:
    """Let hosts fail; evacuate their servers, or wait for the hosts."""
    now, gone = run.engine.now, set(rows)
    run.deployment.set_up(rows, False, now)
    lost = [server for server in run.servers if server.row in gone]
    run.recorder.lost(now, [server.flavor for server in lost])
    if fault.get('evacuate', False):
        run.engine.call_at(
            now + run.conf.service_down_time + _CHECK_S, _evacuate, run, lost)
    if 'for_s' in fault or not fault.get('evacuate', False):
        _later(run, fault, _bring_back, run, rows, lost)


def _evacuate(run: Run, lost: Sequence[Server]) -> None:
    """Request new hosts for servers, one by one as a conductor does."""
    for server in lost:
        if server in run.servers and not run.deployment.up[server.row]:
            run.submit(Job(
                run.engine.now, server.project, server.flavor, run.uuids(1),
                (), moved=[server], ignored=[f'host{server.row}']))


def _bring_back(
    run: Run, rows: Sequence[int], lost: Sequence[Server]
) -> None:
    gone = set(rows)
    run.deployment.set_up(rows, True, run.engine.now)
    run.recorder.recovered(run.engine.now, [
        server.flavor for server in lost
        if server in run.servers and server.row in gone])


def _make_stale(run: Run, fault: _Fault) -> None:
    cell = fault.get('cell', 0)
    run.deployment.stale.add(cell)
    _later(run, fault, _refresh_cell, run, cell)


def _refresh_cell(run: Run, cell: int) -> None:
    run.deployment.stale.discard(cell)
    run.deployment.version += 1


def _lose_broker(run: Run, fault: _Fault) -> None:
    run.broker.is_down = True
    _later(run, fault, run.broker.recover)


def _lose_store(run: Run, fault: _Fault) -> None:
    run.server.is_down = True

    def recover() -> None:
        run.server.is_down = False

    _later(run, fault, recover)


def _kill_scheduler(run: Run, fault: _Fault) -> None:
    """Let a scheduler die; its requests are repeated as after a timeout."""
    if not run.schedulers:
        return
    scheduler = run.schedulers[fault.get('scheduler', 0)]
    for job in scheduler.kill():
        run.repeat(job)
    _later(run, fault, scheduler.start)


def _delete_many(run: Run, fault: _Fault) -> None:
    """Delete a share of the servers, drawn at random, at the same time."""
    servers = [*run.servers]
    count = round(len(servers) * fault.get('share', 0.5))
    for place in sorted(run.random.choice(
            len(servers), count, replace=False).tolist()):
        run.remove(servers[place])


def _flood(run: Run, fault: _Fault) -> None:
    """Request servers that fit on no host, evenly over the time."""
    most = run.deployment.capacity.max(axis=0)
    flavor = Flavor('impossible', int(most[0]) + 1, int(most[1]), 0)
    count = fault.get('count', _FLOOD)
    spacing_s = fault.get('for_s', _DEFAULT_S) / count
    for number in range(count):
        at = run.engine.now + number * spacing_s
        run.engine.call_at(at, run.arrive, Arrival(
            at, 'flood', flavor, (1.0,), None))


#: The kinds of faults; see ``cellsched.scale.scenario.FAULTS``.
KINDS: Mapping[str, Callable[[Run, _Fault], None]] = {
    'rack': _lose_rack, 'cell': _lose_cell, 'stale-cell': _make_stale,
    'broker': _lose_broker, 'store': _lose_store,
    'scheduler': _kill_scheduler, 'mass-delete': _delete_many,
    'impossible-flood': _flood,
}
