# SPDX-License-Identifier: Apache-2.0
"""A simulated deployment with its requests, its servers and their claims."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
from random import Random
from typing import Any
import uuid

import numpy as np

from cellsched.claims import base as claims_base
from cellsched import exception
from cellsched.simulator.capacity import load
from cellsched.simulator.capacity.load import Arrival
from cellsched.simulator.capacity.load import Flavor
from cellsched.simulator.capacity import measures
from cellsched.simulator.capacity.scenario import Scenario
from cellsched.simulator.capacity.schedulers import BackToBack
from cellsched.simulator.capacity.schedulers import configuration
from cellsched.simulator.capacity.schedulers import Job
from cellsched.simulator.capacity.schedulers import Scheduler
from cellsched.simulator.capacity.schedulers import World
from cellsched.simulator.capacity import stores
from cellsched.simulator.engine import SimulatedClock
from cellsched.testing import builders

_HOUR_S = 3600.0

#: Seconds after which a conductor repeats a request that got no answer, and
#: the most repetitions.
RETRY_S, _RETRIES_MAX = 5.0, 1000


@dataclasses.dataclass(eq=False, slots=True)
class Server:
    """A server that is placed.

    :param uuid: the consumer of its claims
    :param row: its host
    """

    uuid: str
    project: str
    flavor: Flavor
    row: int


class Cloud(World):
    """A deployment, the conductors that it has, and its users.

    :param source: requests in place of those of the scenario
    :ivar servers: the servers that are placed, in order
    :ivar repeated: requests that got no answer, or were refused by a compute
        service, and were scheduled again
    """

    def __init__(
        self, scenario: Scenario, source: load.Load | None = None
    ) -> None:
        super().__init__(scenario, _options(scenario), self._answered)
        deployment = self.deployment
        self.random = np.random.default_rng(scenario.seed)
        self.end_s = scenario.hours * _HOUR_S
        self.load = source or load.of(
            scenario.load, self.random, scenario.hours, deployment.count,
            deployment.capacity.sum(axis=0).tolist())
        self.recorder = measures.Recorder(scenario, self.load, self.random)
        self.servers: dict[Server, None] = {}
        self.repeated = self.oversold = self._number = 0
        self.planner = BackToBack(
            self, configuration(_options(scenario, is_planner=True)))
        self.schedulers: list[Scheduler] = []

    # The start.

    def begin(self) -> None:
        """Place the servers that exist at the start; start the schedulers."""
        pool = self.scenario.schedulers
        if not pool.back_to_back:
            self.set_inventories()
            self.schedulers = [
                Scheduler(self, number) for number in range(pool.count)]
        self._arrivals: Iterator[Arrival] = self.load.arrivals()
        for arrival in self._arrivals:
            if arrival.at > 0:
                self._feed(arrival)
                break
            # The servers at the start take no time, and are no requests.
            job = self._job(arrival)
            rows = self.planner.place(job, 0.0) or []
            if not pool.back_to_back and rows:
                self.direct.claim(self._claims(job, rows))
            self._settle(job, rows, counts=False)
        for each in self.schedulers:
            each.start()
        self._store = stores.store_of(
            self.server, self.ledger, SimulatedClock(self.engine),
            Random(f'{self.scenario.seed} conductor'), lambda seconds: None)

    # Requests.

    def _feed(self, arrival: Arrival | None) -> None:
        """Schedule the next request."""
        if arrival is not None and arrival.at <= self.end_s:
            self.engine.call_at(arrival.at, self._arrive, arrival)

    def _arrive(self, arrival: Arrival) -> None:
        self.arrive(arrival)
        self._feed(next(self._arrivals, None))

    def arrive(self, arrival: Arrival) -> None:
        """Let a user request servers."""
        self.recorder.asked(arrival.project, len(arrival.lifetimes))
        self.submit(self._job(arrival))

    def _job(self, arrival: Arrival) -> Job:
        group = None
        if arrival.group is not None:
            group = builders.request(group={
                'id': self._number, 'policy': arrival.group,
                'uuid': str(uuid.UUID(int=2 ** 96 + self._number)),
                'project_id': arrival.project}).instance_group
        return Job(arrival.at, arrival.project, arrival.flavor,
                   self.uuids(len(arrival.lifetimes)), arrival.lifetimes,
                   group)

    def uuids(self, count: int) -> list[str]:
        """Return new uuids of servers."""
        first, self._number = self._number, self._number + count
        return [f'{number:08x}-0000-4000-8000-000000000000'
                for number in range(first, first + count)]

    def submit(self, job: Job) -> None:
        """Let a scheduler decide on a request."""
        if not self.schedulers:
            rows = self.planner.place(job, self.engine.now)
            self._answered(job, exception.NoValidHost(
                reason='') if rows is None else rows)
        else:
            self.broker.put(job)

    def _answered(
        self, job: Job, answer: Sequence[int] | exception.CellschedException
    ) -> None:
        """Do what a conductor does with the answer of a scheduler."""
        if isinstance(answer, exception.NoValidHost):
            self._refuse(job)
        elif isinstance(answer, exception.CellschedException):
            self.repeat(job)
        elif self.schedulers and self.scenario.store.kind in (
                stores.UNCHECKED):
            self.engine.call_at(
                self.engine.now + stores.LATE_S, self._check_late, job,
                list(answer))
        else:
            self._settle(job, answer)

    def _refuse(self, job: Job) -> None:
        fitted = self.fits(job)
        if job.moved is None:
            for _ in job.uuids:
                self.recorder.refused(
                    self.engine.now, job.project, job.flavor, fitted)
        elif job.moved[0] in self.servers:
            self.recorder.evacuation_refused(fitted)

    def repeat(self, job: Job) -> None:
        """Repeat a request that got no answer."""
        job.attempts += 1
        self.repeated += 1
        if job.attempts > _RETRIES_MAX:
            self._refuse(job)
        else:
            self.engine.call_at(
                self.engine.now + RETRY_S, self.submit, job)

    def _check_late(self, job: Job, rows: Sequence[int]) -> None:
        """Let the compute services claim, as Nova's did once."""
        for number, (server, row) in enumerate(zip(job.uuids, rows)):
            one = dataclasses.replace(
                job, uuids=[server], lifetimes=job.lifetimes[
                    number:number + 1], ignored=[*job.ignored])
            try:
                if not self.deployment.up[row]:
                    raise exception.ClaimRefused(
                        provider='', resource='', amount=0, consumer=server)
                self.ledger.claim(self._claims(one, [row]))
            except exception.ClaimRefused:
                self.server.conflicts += 1
                one.attempts += 1
                one.ignored.append(f'host{row}')
                if (self.scenario.store.kind == 'cells-v1'
                        or one.attempts >= self.conf.scheduler.max_attempts):
                    self._refuse(one)
                else:
                    self.repeated += 1
                    self.submit(one)
            else:
                self._settle(one, [row])

    def _claims(
        self, job: Job, rows: Iterable[int]
    ) -> list[claims_base.Claim]:
        amounts = {name: amount for name, amount in zip(
            stores.CLASSES, job.flavor[1:]) if amount}
        return [claims_base.Claim(
            each, self.deployment.uuids[row], amounts,
            claims_base.membership(job.group, f'host{row}', each),
            job.project, 'user') for each, row in zip(job.uuids, rows)]

    def _settle(
        self, job: Job, rows: Sequence[int], counts: bool = True
    ) -> None:
        """Record servers that are placed, and schedule their end."""
        engine, deployment = self.engine, self.deployment
        for number, (each, row) in enumerate(zip(job.uuids, rows)):
            if not self.is_counted:
                deployment.used[row] += job.flavor[1:]
            if (deployment.used[row] > deployment.capacity[row]).any():
                self.oversold += 1
            if job.moved is not None:
                self._recover(job.moved[number], each, row)
                continue
            server = Server(each, job.project, job.flavor, row)
            self.servers[server] = None
            if counts:
                self.recorder.placed(job.project, engine.now - job.at)
            ends_at = engine.now + job.lifetimes[number]
            if ends_at <= self.end_s:
                engine.call_at(ends_at, self.remove, server)

    # The ends of servers.

    def remove(self, server: Server) -> None:
        """Delete a server, if it exists still."""
        if self.servers.pop(server, self) is self:
            return
        self.recorder.counts['removed'] += 1
        self._release(server.uuid, server.row, server.flavor)

    def _release(self, consumer: str, row: int, flavor: Flavor) -> None:
        self.planner.release(consumer)
        if self.schedulers:
            self.engine.spawn(self._release_claims, consumer, row, flavor)
        else:
            self._note_free(row, flavor)

    def _release_claims(
        self, consumer: str, row: int, flavor: Flavor
    ) -> None:
        """Release claims; repeat it until the store answers."""
        while True:
            try:
                if self.scenario.store.kind in stores.UNCHECKED:
                    self.ledger.release([consumer])
                else:
                    self._store.release([consumer])
                break
            except exception.CellschedException:
                self.engine.sleep(RETRY_S)
        self._note_free(row, flavor)

    def _note_free(self, row: int, flavor: Flavor) -> None:
        if not self.is_counted:
            self.deployment.used[row] -= flavor[1:]
        self.deployment.freed_at[row] = self.engine.now

    def _recover(self, server: Server, consumer: str, row: int) -> None:
        """Let a server be on another host, under another consumer."""
        if server not in self.servers:
            # It was deleted meanwhile.
            self._release(consumer, row, server.flavor)
            return
        self._release(server.uuid, server.row, server.flavor)
        server.uuid, server.row = consumer, row
        self.recorder.recovered(self.engine.now, [server.flavor])

    # Figures.

    def sample(self) -> None:
        """Measure the deployment now and periodically."""
        now, recorder = self.engine.now, self.recorder
        recorder.counts['conflicts'] = self.server.conflicts
        recorder.counts['retries'] = self.repeated + sum(
            each.counts.retries for each in self.schedulers)
        recorder.busy_s = [each.busy_s for each in self.schedulers]
        recorder.sample(
            now, self.deployment.capacity, self.deployment.used,
            len(self.servers))
        following = now + self.scenario.measure.every_s
        if following <= self.end_s:
            self.engine.call_at(following, self.sample)


def _options(
    scenario: Scenario, is_planner: bool = False
) -> dict[str, dict[str, Any]]:
    """Return the options of the schedulers.

    :param is_planner: for decisions back to back, in which servers count as
        builds in progress for as long as they live
    """
    options = {group: dict(values) for group, values
               in scenario.schedulers.configuration.items()}
    if is_planner:
        options.setdefault('filter_scheduler', {}).update(
            io_ops_weight_multiplier=0.0, max_io_ops_per_host=2 ** 31 - 1)
    if scenario.store.kind == 'placement-generations':
        # Nova asks Placement for candidates with each request.
        options.setdefault('scheduler', {}).setdefault(
            'refresh_interval', 0)
    return options
