# SPDX-License-Identifier: Apache-2.0
"""The measurement of ``exactness.py`` in simulated time.

Clients request one server after the other until they are refused. Nine tenths
of the hosts are in use before. Each scheduler serves its share of the clients.
All share the CPUs of one machine with the server of the claim store, as in the
measurement, so that both can be compared.
"""

from collections.abc import Sequence
import copy
import dataclasses
import logging
import pathlib
from typing import Any

import numpy as np

from cellsched.claims import base as claims_base
from cellsched import exception
from cellsched.simulator.capacity.load import Flavor
from cellsched.simulator.capacity import scenario
from cellsched.simulator.capacity.schedulers import Broker
from cellsched.simulator.capacity.schedulers import Job
from cellsched.simulator.capacity.schedulers import Scheduler
from cellsched.simulator.capacity.schedulers import World
from cellsched.simulator.capacity import stores

#: The servers that fit on a host, and the number of them at the start.
PLACES, TAKEN = 256, 230

_FLAVOR = Flavor('tiny', 1, 512, 1)

#: Seconds of simulated time after which the clients cannot end.
_END_S = 3600.0

#: Seconds for which schedulers read the hosts before the clients begin.
_WARM_UP_S = 2.0


@dataclasses.dataclass(frozen=True)
class Size:
    """The numbers of schedulers, clients and hosts.

    :param cpus: CPUs of the machine
    :param decision_ms: CPU time of a decision; None for the measured time
    """

    schedulers: int
    clients: int = 64
    hosts: int = 8
    cpus: int = 2
    decision_ms: float | None = None
    round_trip_ms: float = 0.05
    seed: int = 1


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a round.

    :param oversold: servers that got a place that did not exist
    :param refused_although_it_fitted: clients that were refused while a place
        was free since their request
    """

    places: int
    claims: int
    oversold: int
    refused_although_it_fitted: int
    conflicts: int
    claims_per_second: float


def fill_up(kind: str, size: Size) -> Outcome:
    """Let the clients fill the hosts once.

    :param kind: the kind of claim store
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return _Round(kind, size).run()
    finally:
        logging.disable(before)


class _Round:
    """Clients that fill the hosts."""

    def __init__(self, kind: str, size: Size) -> None:
        self._size = size
        made = scenario.of(pathlib.Path('exactness'), {
            'name': 'exactness', 'seed': size.seed,
            'hosts': {'count': size.hosts, 'vcpus': PLACES,
                      'memory_mb': PLACES * _FLAVOR.memory_mb,
                      'disk_gb': PLACES, 'cpu_allocation_ratio': 1.0},
            'cells': min(2, size.hosts), 'load': {},
            'schedulers': {
                'cpus': size.cpus,
                'threads': -(-size.clients // size.schedulers),
                'decision_ms': (
                    stores.scheduler_times()['decision_ms']
                    if size.decision_ms is None else size.decision_ms)},
            'store': {'kind': kind, 'round_trip_ms': size.round_trip_ms}})
        self._world = world = World(
            made, {'DEFAULT': {'service_down_time': 1_000_000}},
            self._answered)
        self._engine, self._deployment = world.engine, world.deployment
        self._fill()
        self._brokers = [
            Broker(self._engine) for _ in range(size.schedulers)]
        self._ended: list[float] = []
        self._refused_although_it_fitted = self._oversold = self._number = 0
        self._client_of: dict[Job, int] = {}

    def _fill(self) -> None:
        """Use nine tenths of each host."""
        self._world.set_inventories()
        for row, node in enumerate(self._deployment.uuids):
            self._world.direct.claim([claims_base.Claim(
                f'ffffffff-0000-4000-8000-{row:012x}', node, {
                    name: TAKEN * amount for name, amount in zip(
                        stores.CLASSES, _FLAVOR[1:])})])
            if not self._world.is_counted:
                self._deployment.used[row] += TAKEN * _amounts()

    def run(self) -> Outcome:
        for number, broker in enumerate(self._brokers):
            world = copy.copy(self._world)
            world.broker = broker
            Scheduler(world, number).start()
        server = self._world.server
        self._engine.run(_WARM_UP_S)
        conflicts, began = server.conflicts, self._engine.now
        for client in range(self._size.clients):
            self._request(client)
        while self._client_of and self._engine.now < _END_S:
            self._engine.run(self._engine.now + 0.1)
        self._engine.close()
        return Outcome(
            self._size.hosts * (PLACES - TAKEN), len(self._ended),
            self._oversold, self._refused_although_it_fitted,
            server.conflicts - conflicts,
            round(len(self._ended) / (max(self._ended) - began), 1))

    def _request(self, client: int) -> None:
        self._number += 1
        job = Job(self._engine.now, 'project', _FLAVOR, [
            f'{self._number:08x}-0000-4000-8000-000000000000'], (1.0,))
        self._client_of[job] = client
        self._brokers[client % len(self._brokers)].put(job)

    def _answered(
        self, job: Job, answer: Sequence[int] | exception.CellschedException
    ) -> None:
        client = self._client_of.pop(job)
        if isinstance(answer, exception.NoValidHost):
            self._refused_although_it_fitted += self._world.fits(job)
        elif isinstance(answer, exception.CellschedException):
            self._client_of[job] = client
            self._brokers[client % len(self._brokers)].put(job)
        else:
            self._ended.append(self._engine.now)
            used, capacity = self._deployment.used, self._deployment.capacity
            if not self._world.is_counted:
                used[answer[0]] += _amounts()
            self._oversold += bool(
                (used[answer[0]] > capacity[answer[0]]).any())
            self._request(client)


def _amounts() -> Any:
    return np.array(_FLAVOR[1:])
