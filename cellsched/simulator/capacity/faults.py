# SPDX-License-Identifier: Apache-2.0
"""Faults of a simulated deployment.

A fault happens at a time of the scenario, and ends after ``for_s`` seconds if
it can end. Servers of lost hosts are lost until their hosts come back or until
they are evacuated, which a scheduler decides as in production.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from cellsched.simulator.capacity.cloud import Cloud
from cellsched.simulator.capacity.cloud import Server
from cellsched.simulator.capacity.load import Arrival
from cellsched.simulator.capacity.load import Flavor
from cellsched.simulator.capacity.schedulers import Job

#: Seconds that a fault lasts unless a scenario says it.
_DEFAULT_S = 600.0

#: Requests of a flood unless a scenario says it.
_FLOOD = 1000

#: Seconds from the last report of a host until its servers are evacuated, at
#: most; see ``[DEFAULT] service_down_time``.
_CHECK_S = 10.0

_Fault = Mapping[str, Any]


def schedule(cloud: Cloud) -> None:
    """Schedule the faults of the scenario of a cloud."""
    for fault in cloud.scenario.faults:
        cloud.engine.call_at(fault['at'], KINDS[fault['kind']], cloud, fault)


def _later(
    cloud: Cloud, fault: _Fault, function: Callable[..., None], *args: Any
) -> None:
    """Call a function at the end of a fault."""
    cloud.engine.call_at(
        cloud.engine.now + fault.get('for_s', _DEFAULT_S), function, *args)


def _lose_hosts(cloud: Cloud, fault: _Fault) -> None:
    """Let the hosts of a rack or cell fail.

    Evacuate their servers, or wait for the hosts.
    """
    kind = fault['kind']
    places = (cloud.deployment.racks if kind == 'rack'
              else cloud.deployment.cell_of)
    rows = np.flatnonzero(places == fault.get(kind, 0)).tolist()
    now, gone = cloud.engine.now, set(rows)
    cloud.deployment.set_up(rows, False, now)
    lost = [server for server in cloud.servers if server.row in gone]
    cloud.recorder.lost(now, [server.flavor for server in lost])
    if fault.get('evacuate', False):
        cloud.engine.call_at(
            now + cloud.conf.service_down_time + _CHECK_S, _evacuate, cloud,
            lost)
    if 'for_s' in fault or not fault.get('evacuate', False):
        _later(cloud, fault, _bring_back, cloud, rows, lost)


def _evacuate(cloud: Cloud, lost: Sequence[Server]) -> None:
    """Request new hosts for servers, one by one as a conductor does."""
    for server in lost:
        if server in cloud.servers and not cloud.deployment.up[server.row]:
            cloud.submit(Job(
                cloud.engine.now, server.project, server.flavor,
                cloud.uuids(1), (), moved=[server],
                ignored=[f'host{server.row}']))


def _bring_back(
    cloud: Cloud, rows: Sequence[int], lost: Sequence[Server]
) -> None:
    gone = set(rows)
    cloud.deployment.set_up(rows, True, cloud.engine.now)
    cloud.recorder.recovered(cloud.engine.now, [
        server.flavor for server in lost
        if server in cloud.servers and server.row in gone])


def _make_stale(cloud: Cloud, fault: _Fault) -> None:
    cell = fault.get('cell', 0)
    cloud.deployment.stale.add(cell)
    _later(cloud, fault, _refresh_cell, cloud, cell)


def _refresh_cell(cloud: Cloud, cell: int) -> None:
    cloud.deployment.stale.discard(cell)
    cloud.deployment.version += 1


def _lose_broker(cloud: Cloud, fault: _Fault) -> None:
    cloud.broker.is_down = True
    _later(cloud, fault, cloud.broker.recover)


def _lose_store(cloud: Cloud, fault: _Fault) -> None:
    cloud.server.is_down = True
    _later(cloud, fault, setattr, cloud.server, 'is_down', False)


def _kill_scheduler(cloud: Cloud, fault: _Fault) -> None:
    """Let a scheduler die; its requests are repeated as after a timeout."""
    if not cloud.schedulers:
        return
    scheduler = cloud.schedulers[fault.get('scheduler', 0)]
    for job in scheduler.kill():
        cloud.repeat(job)
    _later(cloud, fault, scheduler.start)


def _delete_many(cloud: Cloud, fault: _Fault) -> None:
    """Delete a share of the servers, drawn at random, at the same time."""
    servers = [*cloud.servers]
    count = round(len(servers) * fault.get('share', 0.5))
    for place in sorted(cloud.random.choice(
            len(servers), count, replace=False).tolist()):
        cloud.remove(servers[place])


def _flood(cloud: Cloud, fault: _Fault) -> None:
    """Request servers that fit on no host, evenly over the time."""
    most = cloud.deployment.capacity.max(axis=0)
    flavor = Flavor('impossible', int(most[0]) + 1, int(most[1]), 0)
    count = fault.get('count', _FLOOD)
    spacing_s = fault.get('for_s', _DEFAULT_S) / count
    for number in range(count):
        at = cloud.engine.now + number * spacing_s
        cloud.engine.call_at(at, cloud.arrive, Arrival(
            at, 'flood', flavor, (1.0,), None))


#: The kinds of faults; ``schema.yaml`` has their keys.
KINDS: Mapping[str, Callable[[Cloud, _Fault], None]] = {
    'rack': _lose_hosts, 'cell': _lose_hosts, 'stale-cell': _make_stale,
    'broker': _lose_broker, 'store': _lose_store,
    'scheduler': _kill_scheduler, 'mass-delete': _delete_many,
    'impossible-flood': _flood,
}
