# SPDX-License-Identifier: Apache-2.0
"""The hosts of a simulated deployment, and its schedulers.

A scheduler has the host table, the pipeline, the placer and the batches of
claims of production. Its table learns of claims through the feed of the claim
store, and of hosts through their cells, each once in ``[scheduler]
refresh_interval``.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import pathlib
from random import Random
import tempfile
from typing import Any
import uuid

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from cellsched.claims import base as claims_base
from cellsched.conf import loader
from cellsched.context import admin
from cellsched.context import member
from cellsched.context import RequestContext
from cellsched import exception
from cellsched.host_manager.manager import HostManager
from cellsched.hosts.columns import AVAILABLE
from cellsched.hosts.columns import STANDARD
from cellsched.hosts import plugin_columns
from cellsched.hosts.table import HostTable
from cellsched.hosts.table import PendingAllocation
from cellsched import objects
from cellsched.observability import metrics
from cellsched.scheduler.decision.pipeline import Pipeline
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler.selection.claims import ClaimQueue
from cellsched.scheduler.selection.placer import Placer
from cellsched.scheduler.selection.selector import Selector
from cellsched.scheduler.selection.selector import with_members
from cellsched.simulator.capacity.load import Flavor
from cellsched.simulator.capacity.scenario import Scenario
from cellsched.simulator.capacity import stores
from cellsched.simulator.capacity.stores import CLASSES
from cellsched.simulator.engine import Engine
from cellsched.simulator.engine import EPOCH
from cellsched.simulator.engine import Process
from cellsched.simulator.engine import Processors
from cellsched.simulator.engine import SimulatedClock
from cellsched.simulator.engine import Waiters
from cellsched.testing import builders

#: Seconds between two reports of a host.
REPORT_S = 10.0

#: The share of a decision that each further server of a request takes.
_FURTHER = 0.1

#: Hosts of which the claims are read to judge a refusal.
_CONFIRMED_MAX = 50

#: Servers of :class:`BackToBack` until its table is compacted.
_COMPACT = 100_000

Array = npt.NDArray[Any]


class Deployment:
    """The hosts, as they are.

    :ivar capacity: the amounts that can be claimed, by row and class
    :ivar used: the claimed amounts
    :ivar up: whether a host is up
    :ivar freed_at: when a server of a host was removed last
    :ivar racks: the rack of each host
    """

    def __init__(self, scenario: Scenario) -> None:
        kinds = scenario.hosts
        repeats = [each.count for each in kinds]
        self.count = count = sum(repeats)

        def column(name: str) -> Array:
            return np.repeat([getattr(each, name) for each in kinds], repeats)

        self._columns = {name: column(name) for name in (
            'vcpus', 'memory_mb', 'disk_gb', 'cpu_allocation_ratio',
            'ram_allocation_ratio', 'disk_allocation_ratio')}
        self.capacity = np.stack([
            np.floor(self._columns[amount] * self._columns[ratio]) for
            amount, ratio in (('vcpus', 'cpu_allocation_ratio'),
                              ('memory_mb', 'ram_allocation_ratio'),
                              ('disk_gb', 'disk_allocation_ratio'))],
            axis=1).astype('int64')
        self.used = np.zeros_like(self.capacity)
        self.up = np.ones(count, dtype=bool)
        self.freed_at = np.full(count, -1.0)
        self.cell_of = np.arange(count) * scenario.cells // count
        # Kinds of hosts share no rack.
        racks, first = [], 0
        for kind in kinds:
            racks.append(np.arange(kind.count) // kind.rack + first)
            first = int(racks[-1][-1]) + 1
        self.racks = np.concatenate(racks)
        self.uuids = [str(uuid.UUID(int=row + 1)) for row in range(count)]
        self.rows = {each: row for row, each in enumerate(self.uuids)}
        self.cells = [str(uuid.UUID(int=2 ** 64 + cell))
                      for cell in range(scenario.cells)]
        #: Cells whose facts reach no scheduler.
        self.stale: set[int] = set()
        #: The latest report of each host that is down.
        self.down_at: dict[int, float] = {}
        self.version = 0

    def columns(self, seen_at: float) -> dict[str, Any]:
        """Return the columns of a host table, without usage."""
        facts, count = self._columns, self.count
        names = [f'host{row}' for row in range(count)]
        return {
            'host': names, 'nodename': names,
            'cell': [self.cells[cell] for cell in self.cell_of.tolist()],
            'availability_zone': ['nova'] * count,
            'last_seen_up': np.full(count, seen_at),
            'vcpus_total': facts['vcpus'],
            'cpu_allocation_ratio': facts['cpu_allocation_ratio'],
            'total_usable_ram_mb': facts['memory_mb'],
            'unreserved_ram_mb': facts['memory_mb'],
            'free_ram_mb': facts['memory_mb'],
            'ram_allocation_ratio': facts['ram_allocation_ratio'],
            'total_usable_disk_gb': facts['disk_gb'],
            'unreserved_disk_mb': facts['disk_gb'] * 1024,
            'free_disk_mb': facts['disk_gb'] * 1024,
            'disk_allocation_ratio': facts['disk_allocation_ratio'],
            'hypervisor_type': ['QEMU'] * count}

    def inventory(self, row: int) -> dict[str, claims_base.Inventory]:
        """Return the inventory of a host."""
        return {name: claims_base.Inventory(total=int(amount))
                for name, amount in zip(CLASSES, self.capacity[row])}

    def set_up(self, rows: Iterable[int], up: bool, now: float) -> None:
        """Let hosts fail, or come back."""
        for row in rows:
            self.up[row] = up
            if up:
                self.down_at.pop(row, None)
            else:
                self.down_at[row] = now
        self.version += 1

    def fits(
        self, flavor: Flavor, count: int, since: float,
        store: claims_base.ClaimStore | None = None,
    ) -> bool:
        """Return whether servers fit, and did so since a time.

        :param store: knows claims that :attr:`used` does not have yet
        """
        rooms = np.maximum(_rooms(self.capacity - self.used, flavor), 0)
        rooms[~self.up | (self.freed_at >= since)] = 0
        if rooms.sum() < count:
            return False
        if store is None:
            return True
        rows = np.argsort(-rooms, kind='stable')[:_CONFIRMED_MAX]
        known = {each.provider: [each.used.get(name, 0) for name in CLASSES]
                 for each in store.usages(providers=[
                     self.uuids[row] for row in rows]).usages}
        used = np.array([known[self.uuids[row]] for row in rows])
        rooms = np.minimum(
            _rooms(self.capacity[rows] - used, flavor), rooms[rows])
        return bool(np.maximum(rooms, 0).sum() >= count)


def _rooms(free: Array, flavor: Flavor) -> Array:
    """Return the number of servers that fit on each host."""
    sizes = np.array(flavor[1:], dtype='int64')
    rooms: Array = (free[:, sizes > 0] // sizes[sizes > 0]).min(axis=1)
    return rooms


@dataclasses.dataclass(eq=False, slots=True)
class Job:
    """A request for servers on its way.

    :param at: when it was made first
    :param moved: the servers that are evacuated; None for new servers
    :param ignored: names of hosts that it must not go to
    """

    at: float
    project: str
    flavor: Flavor
    uuids: list[str]
    lifetimes: Sequence[float]
    group: objects.InstanceGroup | None = None
    attempts: int = 0
    moved: Sequence[Any] | None = None
    ignored: list[str] = dataclasses.field(default_factory=list)


class Broker:
    """The queue of requests, which all threads of all schedulers serve."""

    def __init__(self, engine: Engine) -> None:
        self._jobs: collections.deque[Job] = collections.deque()
        self._waiters = Waiters(engine)
        #: Whether the broker has failed. Requests wait in their senders then.
        self.is_down = False

    def put(self, job: Job) -> None:
        self._jobs.append(job)
        if not self.is_down:
            self._waiters.wake_one()

    def get(self) -> Job:
        """Return the next request; wait for it in the calling process."""
        while self.is_down or not self._jobs:
            self._waiters.wait()
        return self._jobs.popleft()

    def recover(self) -> None:
        self.is_down = False
        self._waiters.wake_all()


def _request(
    project: str, flavor: Flavor, count: int
) -> objects.RequestSpec:
    """Return a request as the scheduler gets it."""
    return builders.request(
        num_instances=count, project_id=project, name=flavor.name,
        flavorid=flavor.name, vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb, root_gb=flavor.disk_gb)


def configuration(
    options: Mapping[str, Mapping[str, Any]]
) -> cfg.ConfigOpts:
    """Return the configuration of the schedulers.

    :raises cellsched.exception.InvalidField: names the option
    """
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory) / 'schedulers.configuration'
        file.write_text(loader.file_text(options), encoding='utf-8')
        try:
            return loader.load(files=[str(file)], dirs=[], messages=False)
        except exception.ConfigurationInvalid as exc:
            raise exception.InvalidField(
                where='scenario', field=str(exc.kwargs['field']).replace(
                    str(file), file.name),
                **exc.reasons) from None


class ModelHostManager(HostManager):
    """Keeps a host table consistent with a simulated deployment.

    Claims are read as in production. The facts are those of a
    :class:`Deployment` instead of those in databases.

    :param scheduler: lets its CPU time pass
    """

    def __init__(
        self, world: 'World', scheduler: 'Scheduler', claims: Any,
        clock: SimulatedClock,
    ) -> None:
        self._world = world
        self._scheduler = scheduler
        conf = world.conf
        self._version = -1
        self._next_report = 0.0
        nothing: Any = None
        super().__init__(
            nothing, nothing, nothing, nothing, claims, clock,
            filter_scheduler.refresh_policy(conf),
            conf.default_availability_zone, plugin_columns.load())

    def read_changes(self, context: RequestContext) -> None:
        # No operator changes the deployment.
        pass

    def read_facts(self, context: RequestContext, now: float) -> None:
        deployment, at = self._world.deployment, self.clock.steady()
        if not len(self.table):
            self.table.put(deployment.uuids, deployment.columns(at))
        cells = len(deployment.cells) - len(deployment.stale)
        self._scheduler.spend(
            cells * stores.scheduler_times()['cell_ms'] / 1000)
        at = self.clock.steady()
        self.silent = [deployment.cells[each]
                       for each in sorted(deployment.stale)]
        for number, cell in enumerate(deployment.cells):
            if number not in deployment.stale:
                self.table.cells.heard(cell, at)
        if self._version == deployment.version and now < self._next_report:
            return
        self._version = deployment.version
        self._next_report = now + REPORT_S
        heard = ~np.isin(deployment.cell_of, list(deployment.stale))
        seen = self.table.written('last_seen_up').copy()
        seen[heard & deployment.up] = at
        for row, down_at in deployment.down_at.items():
            if heard[row]:
                seen[row] = EPOCH + down_at
        self.table.put(deployment.uuids, {'last_seen_up': seen})

    def refresh(
        self, context: RequestContext, since: float | None = None
    ) -> bool:
        done = super().refresh(context, since)
        if since is not None:
            # A request found no host, and decides again.
            self._scheduler.decide()
        return done

    def reload(self, providers: Sequence[str]) -> None:
        super().reload(providers)
        # A claim was refused, and the request decides again.
        self._scheduler.decide()

    def confirm(
        self, allocations: Iterable[PendingAllocation], claimed: bool = True
    ) -> None:
        if self._world.scenario.store.kind == 'cells-v1':
            self.table.rollback(allocations)
        else:
            super().confirm(allocations, claimed)


class ClaimCounts(metrics.Metrics):
    """Counts the rounds of claims that were not won."""

    is_on = True

    def __init__(self) -> None:
        self.retries = 0

    def add_all(self, readings: Iterable[metrics.Reading]) -> None:
        for figure, _, value in readings:
            if figure is metrics.CLAIM_RETRIES:
                self.retries += int(value)


class World:
    """The parts that all schedulers of a simulation share.

    :param options: the configuration of schedulers, by group and name
    :param answered: called with a request and its hosts, or its error
    """

    def __init__(
        self, scenario: Scenario, options: Mapping[str, Mapping[str, Any]],
        answered: Callable[
            [Job, Sequence[int] | exception.CellschedException], None],
    ) -> None:
        self.scenario = scenario
        self.conf = configuration(options)
        self.answered = answered
        self.engine = engine = Engine()
        self.deployment = deployment = Deployment(scenario)
        # Alike requests are the same object.
        self._alike = functools.lru_cache(100_000)(_request)
        self.context_of = functools.lru_cache(100_000)(
            functools.partial(member, 'user'))
        self.broker = Broker(engine)
        pool, kind = scenario.schedulers, scenario.store.kind
        #: The CPUs that all share, if there is one machine only.
        self.machine = Processors(engine, pool.cpus) if pool.cpus else None
        self.server = stores.StoreServer(engine, scenario.store, self.machine)
        self.ledger = stores.Ledger(
            deployment.rows, deployment.used,
            Random(f'{scenario.seed} ledger'), scenario.store.defect)
        has_ledger = kind in stores.WITH_LEDGER
        #: Whether the ledger counts the used amounts.
        self.is_counted = has_ledger and not pool.back_to_back
        #: The claims, in a store whose calls take no time.
        self.direct: claims_base.ClaimStore = (
            self.ledger if has_ledger else stores.direct(self.server))

    def request_of(self, job: Job) -> objects.RequestSpec:
        """Return the request of a job."""
        key = job.project, job.flavor, len(job.uuids)
        if job.group is None and not job.ignored:
            return self._alike(*key)
        request = _request(*key)
        request.instance_group = job.group
        request.ignore_hosts = job.ignored or None
        return request

    def set_inventories(self) -> None:
        """Prepare the claim store."""
        self.direct.sync()
        for row, each in enumerate(self.deployment.uuids):
            self.direct.set_inventory(each, self.deployment.inventory(row))

    def fits(self, job: Job) -> bool:
        """Return whether a request fits, and did so since it was made."""
        return self.deployment.fits(
            job.flavor, len(job.uuids), job.at,
            None if self.is_counted or self.scenario.schedulers.back_to_back
            else self.direct)


class Scheduler:
    """A scheduler with a host table of its own.

    :ivar busy_s: the CPU time that it has used
    """

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self.number = number
        self._processes: list[Process] = []
        self._lives = 0
        self.counts = ClaimCounts()
        self._serving: dict[Job, None] = {}
        #: One thread of a scheduler runs at a time.
        self._interpreter = Processors(world.engine, 1)

    @property
    def busy_s(self) -> float:
        return self._interpreter.busy_s

    def spend(self, seconds: float) -> None:
        """Let CPU time pass in the calling process."""
        machine = self._world.machine
        if machine is None:
            self._interpreter.use(seconds)
        else:
            machine.use(seconds, self._interpreter)

    def decide(self, servers: int = 1) -> None:
        """Let the CPU time of a decision pass.

        A decision takes less time than a thread may run without a break. So
        the time passes before it, and the decision is made at a moment.
        """
        decision_s = self._world.scenario.schedulers.decision_ms / 1000
        self.spend(decision_s * (1 + _FURTHER * (servers - 1)))

    def start(self) -> None:
        """Start the threads, with an empty host table."""
        world, conf = self._world, self._world.conf
        self._lives += 1
        random = Random(
            f'{world.scenario.seed} {self.number} {self._lives}')
        clock = SimulatedClock(world.engine)
        store = stores.store_of(
            world.server, world.ledger, clock, random, self.spend)
        source = ModelHostManager(world, self, store, clock)
        placer = Placer(
            source, filter_scheduler.pipeline_of(conf),
            ClaimQueue(store, clock), clock,
            filter_scheduler.selection_policy(conf, random),
            conf.scheduler.claim_attempts, lambda *args: None,
            down_s=conf.service_down_time, metrics=self.counts)
        spawn = world.engine.spawn
        self._processes = [
            spawn(self._refresh, source, conf.scheduler.refresh_interval,
                  random.random()),
            *(spawn(self._work, placer)
              for _ in range(world.scenario.schedulers.threads))]

    def kill(self) -> list[Job]:
        """End all threads; return the requests that they served."""
        for process in self._processes:
            self._world.engine.kill(process)
        lost, self._serving = [*self._serving], {}
        return lost

    def _refresh(
        self, source: HostManager, interval_s: float, share: float
    ) -> None:
        """Read the hosts periodically."""
        world = self._world
        self._try_refresh(source)
        if interval_s:
            # Schedulers do not read at the same time.
            world.engine.sleep(share * interval_s)
        while interval_s:
            self._try_refresh(source)
            world.engine.sleep(interval_s)

    def _try_refresh(self, source: HostManager) -> None:
        try:
            source.refresh(admin())
        except exception.CellschedException:
            # The store does not answer; the next refresh reads all.
            pass

    def _work(self, placer: Placer) -> None:
        """Serve one request after the other."""
        world = self._world
        while True:
            job = world.broker.get()
            self._serving[job] = None
            self.decide(len(job.uuids))
            answer: Sequence[int] | exception.CellschedException
            try:
                places = placer.place(
                    world.context_of(job.project), world.request_of(job),
                    job.uuids, alternates=0)
                answer = [world.deployment.rows[first.compute_node_uuid]
                          for first, *_ in places]
            except exception.CellschedException as exc:
                answer = exc
            self._serving.pop(job, None)
            world.answered(job, answer)


class BackToBack:
    """Decisions one after the other, without claims, delays and feeds.

    The pipeline, the policy and the host table are those of production. The
    table has each server as a reservation, which its end rolls back.
    """

    def __init__(self, world: World, conf: cfg.ConfigOpts) -> None:
        self._deployment = deployment = world.deployment
        self._world = world
        self._pipeline: Pipeline = filter_scheduler.pipeline_of(conf)
        self._policy = filter_scheduler.selection_policy(
            conf, Random(f'{world.scenario.seed} back to back'))
        self.table = HostTable((*STANDARD, *plugin_columns.load()))
        self.table.put(deployment.uuids, {
            **deployment.columns(EPOCH), **{
                AVAILABLE + name: deployment.capacity[:, place]
                for place, name in enumerate(CLASSES)}})
        self._held: dict[str, PendingAllocation] = {}
        self._version = deployment.version
        self._changes = 0

    def place(self, job: Job, now: float) -> list[int] | None:
        """Select hosts for the servers of a request; None if it has none."""
        # Write which hosts are up. A full write also compacts the table.
        if self._version != self._deployment.version or (
                self._changes > _COMPACT):
            self._version, self._changes = self._deployment.version, 0
            self.table.put(self._deployment.uuids, {
                'forced_down': ~self._deployment.up})
        table, uuids = self.table, job.uuids
        request = self._world.request_of(job)
        if job.group is not None:
            request = with_members(request, uuids)
        hosts = table.view(EPOCH)
        try:
            selector = Selector(
                self._pipeline, self._policy, hosts, request)
            for each in uuids:
                if not selector.choose(each, None, each is uuids[-1]):
                    return None
            taken = table.reserve(hosts)
            self._held.update(zip(uuids, taken))
            return [self._deployment.rows[each.node] for each in taken]
        finally:
            table.reuse(hosts)

    def release(self, server: str) -> None:
        """Remove a server."""
        held = self._held.pop(server, None)
        if held is not None:
            self.table.rollback([held])
            self._changes += 1
