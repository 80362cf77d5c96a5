# SPDX-License-Identifier: Apache-2.0
"""Claim stores in simulated time.

The stores ``etcd``, ``cassandra`` and ``placement`` are those of production,
with the models of their servers in :mod:`cellsched.simulator.servers`. The SQL
stores are models: their statements are atomic, so a model of their locks and
commits is enough. The other kinds have no store in this project.

Each request takes the CPU time of its scheduler, a round trip, and the CPU
time and the disk of the server. ``delays.json`` has these times, as
``benchmarks/store_delays.py`` measured them.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import functools
import json
import pathlib
from random import Random
from typing import Any
from typing import ClassVar
from typing import Self
import zlib

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from cellsched.claims import base
from cellsched.claims.coordination import ContentionLock
from cellsched.claims import memory
from cellsched.claims import remote
from cellsched import exception
from cellsched.simulator.engine import Disk
from cellsched.simulator.engine import Engine
from cellsched.simulator.engine import Processors
from cellsched.simulator.engine import SimulatedClock
from cellsched.simulator.engine import SimulatedSemaphore
from cellsched.simulator import servers

#: Resource classes of the simulation, in the order of the columns.
CLASSES = ('VCPU', 'MEMORY_MB', 'DISK_GB')

#: The rows of the feed in a SQL database, one of which each claim locks.
_LANES = 32

#: CPUs of the server of a claim store that has a machine of its own.
_SERVER_CPUS = 8

#: Attempts of Placement and of its client for one host, as in Nova.
_SERVER_ATTEMPTS, _CLIENT_ATTEMPTS = 10, 4

#: Seconds between a decision and the check of a compute service.
LATE_S = 0.1


#: Lets a number of seconds of CPU time of a scheduler pass.
Spend = Callable[[float], None]


@functools.cache
def measured() -> Mapping[str, Mapping[str, Any]]:
    """Return the measured delays, with their server, machine and date."""
    found: Mapping[str, Mapping[str, Any]] = json.loads(
        pathlib.Path(__file__).with_name('delays.json').read_text('utf-8'))
    return found


def scheduler_times() -> Mapping[str, float]:
    """Return the CPU times of a scheduler.

    ``decision_ms`` is that of a decision on a few hosts, ``cell_ms`` that of
    reading a cell in which nothing has changed, and ``lock_ms`` that of a lock
    between schedulers.
    """
    return measured()['scheduler']


class Ledger(memory.MemoryClaims):
    """The claims of a simulation, exact, and counted in an array.

    :param rows: the rows of providers in the array
    :param used: the used amounts by row and class, which are updated
    :param defect: the share of claims that the store does not count, so that
        their places are sold again
    """

    def __init__(
        self, rows: Mapping[str, int], used: npt.NDArray[np.int64],
        random: Random, defect: float = 0.0,
    ) -> None:
        super().__init__(random)
        self._rows = rows
        self._amounts = used
        self._defect = defect
        self._chance = random
        self._uncounted: set[tuple[str, str]] = set()

    def _count(self, claim: base.Claim, sign: int) -> None:
        row = self._rows[claim.provider]
        for place, name in enumerate(CLASSES):
            self._amounts[row, place] += sign * claim.resources.get(name, 0)
        key = claim.consumer, claim.provider
        if sign > 0 and self._defect and self._chance.random() < self._defect:
            self._uncounted.add(key)
        if key in self._uncounted:
            if sign < 0:
                self._uncounted.remove(key)
            return
        super()._count(claim, sign)

    def versions(self, providers: Iterable[str]) -> list[int]:
        """Return the number of the last change of each provider."""
        return [self._changed.get(each, 0) for each in providers]


class StoreServer:
    """The server of a claim store: its machine, its disk and its failures.

    :param kind: the section ``store`` of a scenario
    :param machine: the CPUs that it shares with schedulers; None for a
        machine of its own
    :ivar times: milliseconds of work, as measured on a real server; see
        :meth:`seconds`
    """

    def __init__(
        self, engine: Engine, kind: Any, machine: Processors | None
    ) -> None:
        self.engine = engine
        self.kind = kind.kind
        # Nova's claims are requests to Placement.
        self.times = measured().get(
            'placement' if self.kind == 'placement-generations'
            else self.kind, collections.Counter[str]())
        self._half_trip_s = kind.round_trip_ms / 2000
        self.processors = machine or Processors(engine, _SERVER_CPUS)
        self.disk = Disk(engine, self.times['flush_ms'] / 1000)
        #: The locks of records, by name.
        self.locks = collections.defaultdict[str, SimulatedSemaphore](
            lambda: SimulatedSemaphore(engine))
        #: Whether the server has failed.
        self.is_down = False
        #: Attempts to claim that failed because another was faster.
        self.conflicts = 0
        #: The model of the server, for stores of production.
        self.model: Any = None
        if self.kind in servers.KINDS:
            self.model = servers.KINDS[self.kind].model()

    def seconds(self, side: str, writes: bool, further: int) -> float:
        """Return the CPU seconds of a request.

        :param side: ``client_`` for the scheduler, empty for the server
        :param further: the number of claims or rows beyond the first
        """
        first, more = ('write', 'item') if writes else ('read', 'row')
        return (self.times[f'{side}{first}_ms']
                + further * self.times[f'{side}{more}_ms']) / 1000

    @contextlib.contextmanager
    def request(
        self, spend: Spend, writes: bool, further: int, failure: Exception
    ) -> Iterator[float]:
        """Let the time of a request pass around its work in the server.

        Yields the CPU seconds of the server.

        :param spend: lets CPU time of the client pass
        :param further: the number of claims or rows beyond the first
        :param failure: raised if the server has failed
        """
        spend(self.seconds('client_', writes, further))
        self.engine.sleep(self._half_trip_s)
        if self.is_down:
            raise failure
        yield self.seconds('', writes, further)
        self.engine.sleep(self._half_trip_s)

    @contextlib.contextmanager
    def locked(self, names: Iterable[str]) -> Iterator[None]:
        """Hold the locks of records."""
        with contextlib.ExitStack() as stack:
            for name in sorted(names):
                stack.enter_context(self.locks[name])
            yield


def _timed(name: str, writes: bool = False) -> Any:
    """Return a method of a ledger as a request to a server."""
    def method(store: 'ModelStore', *args: Any) -> Any:
        with store._call(writes):
            answer = getattr(store._ledger, name)(*args)
            if writes:
                store._commit()
        return answer

    return method


class ModelStore(base.ClaimStore):
    """A claim store in memory, whose calls take simulated time.

    This class takes a constant time for each call.

    :param ledger: the claims, of all schedulers
    :param spend: lets CPU time of the scheduler pass
    """

    capabilities: ClassVar[frozenset[base.Capability]] = frozenset(
        base.Capability)

    def __init__(
        self, server: StoreServer, ledger: Ledger, spend: Spend
    ) -> None:
        self._server = server
        self._ledger = ledger
        self._spend = spend

    @classmethod
    def from_conf(
        cls, conf: cfg.ConfigOpts, parts: base.ClaimStoreParts
    ) -> Self:
        raise NotImplementedError('the store of a simulation has no options')

    @contextlib.contextmanager
    def _call(
        self, writes: bool = False, further: int = 0
    ) -> Iterator[None]:
        """Spend the time of a request before and after its work.

        :param further: the number of claims beyond the first
        """
        with self._server.request(
                self._spend, writes, further, _unreachable()) as seconds:
            self._server.processors.use(seconds)
            yield

    def _commit(self) -> None:
        self._server.disk.flush()
        if self._server.is_down:
            raise _unreachable()

    claim = _timed('claim', True)
    claim_any = _timed('claim_any', True)
    release = _timed('release', True)
    transfer = _timed('transfer', True)
    rename_host = _timed('rename_host', True)
    set_inventory = _timed('set_inventory', True)
    claims_of = _timed('claims_of')
    memberships = _timed('memberships')

    def usages(
        self, since: Any = None, providers: Iterable[str] | None = None
    ) -> base.UsageChanges:
        with self._call():
            changes = self._ledger.usages(since, providers)
            self._server.processors.use(
                len(changes.usages) * self._server.times['row_ms'] / 1000)
        self._spend(
            len(changes.usages) * self._server.times['client_row_ms'] / 1000)
        return changes


def _unreachable() -> exception.DatabaseUnreachable:
    return exception.DatabaseUnreachable(
        schema='claims', url='simulated', reason='the server failed')


class SQLModel(ModelStore):
    """Claims in a SQL database: rows are locked until the commit.

    A claim of one of several hosts takes the first whose rows are not locked;
    only if there is none, it waits for locks, as the store of production does.
    """

    def claim(self, claims: Sequence[base.Claim]) -> int:
        with self._call(True, len(claims) - 1), self._server.locked(
                {claim.provider for claim in claims}):
            new = self._ledger.claim(claims)
            self._commit_lane(claims[0].consumer)
        return new

    def claim_any(
        self, batches: Sequence[Sequence[base.Claim]]
    ) -> base.AnyOf:
        if len(batches) > 1 and all(
                len(batch) == 1 and batch[0].group is None
                for batch in batches):
            place = self._claim_unlocked(batches)
            if place is not None:
                return base.AnyOf(place, 1)
            if not self.claims_of([batches[0][0].consumer]):
                return base.claim_in_order(self, batches, self._find_full)
        return base.claim_in_order(self, batches)

    def _claim_unlocked(
        self, batches: Sequence[Sequence[base.Claim]]
    ) -> int | None:
        """Claim the first batch with room and without a lock, if any."""
        with self._call(True):
            for place, [claim] in enumerate(batches):
                if self._server.locks[claim.provider].locked():
                    continue
                with contextlib.suppress(
                        exception.ClaimRefused, exception.ClaimConflict), (
                            self._server.locked([claim.provider])):
                    self._ledger.claim([claim])
                    self._commit_lane(claim.consumer)
                    return place
        self._server.conflicts += 1
        return None

    def _find_full(
        self, batches: Sequence[Sequence[base.Claim]], first: int
    ) -> dict[int, exception.ClaimRefused]:
        """Read once which batches do not fit."""
        if first:
            return {}
        usages = {usage.provider: usage for usage in self.usages(providers=[
            claim.provider for [claim] in batches]).usages}
        return {
            place: exception.ClaimRefused(
                consumer=claim.consumer, provider=claim.provider,
                resource=name, amount=amount)
            for place, [claim] in enumerate(batches)
            for usage in [usages[claim.provider]]
            for name, amount in claim.resources.items()
            if usage.used.get(name, 0) + amount > usage.capacity.get(name, 0)}

    def _commit_lane(self, consumer: str) -> None:
        """Lock a row of the feed and commit."""
        lane = zlib.crc32(consumer.encode()) % _LANES
        with self._server.locks[f'lane {lane}']:
            self._commit()


class GenerationModel(ModelStore):
    """Claims of Nova in Placement: a compare-and-set of a generation.

    Placement reads the generation of a provider and writes on condition that
    it is the same; it repeats that, and then its client does.
    """

    capabilities = frozenset({
        base.Capability.ATOMIC, base.Capability.SHARED, base.Capability.FEED})

    def claim(self, claims: Sequence[base.Claim]) -> int:
        server = self._server
        seconds = server.seconds('', True, 0)
        providers = {claim.provider for claim in claims}
        for _ in range(_CLIENT_ATTEMPTS):
            with self._call():
                for _ in range(_SERVER_ATTEMPTS):
                    seen = self._generations(providers)
                    server.processors.use(seconds)
                    if seen == self._generations(providers):
                        new = self._ledger.claim(claims)
                        self._commit()
                        return new
                    server.conflicts += 1
        raise exception.ClaimRefused(
            consumer=claims[0].consumer, provider=claims[0].provider,
            resource='generation', amount=1)

    claim_any = base.ClaimStore.claim_any

    def _generations(self, providers: Iterable[str]) -> list[int]:
        return self._ledger.versions(sorted(providers))


class UncheckedModel(ModelStore):
    """No claims: a scheduler counts in its own table what it has placed."""

    capabilities = frozenset({base.Capability.FEED})

    def claim(self, claims: Sequence[base.Claim]) -> int:
        return len(claims)

    def claim_any(
        self, batches: Sequence[Sequence[base.Claim]]
    ) -> base.AnyOf:
        return base.AnyOf(0, len(batches[0]))

    def release(self, consumers: Iterable[str]) -> None:
        pass

    def claims_of(
        self, consumers: Iterable[str]
    ) -> dict[str, list[base.Claim]]:
        return {}


class ServerClient:
    """The client of a store of production, in simulated time."""

    url = servers.DirectClient.url

    def __init__(self, server: StoreServer, spend: Spend) -> None:
        self._server = server
        self._spend = spend

    def send(self, request: Any) -> Any:
        """Return the answer to a request.

        :raises remote.OutcomeUnknown: the server failed meanwhile
        :raises remote.NotSent: the server has failed
        """
        server, model = self._server, self._server.model
        writes, further = model.cost(request)
        with server.request(
                self._spend, writes, further,
                remote.NotSent('the server failed')) as seconds:
            with server.locked(
                    model.partitions_of(request) if writes else ()):
                begun = model.begin(request)
                server.processors.use(seconds)
                if writes:
                    # So does a transaction that fails.
                    server.disk.flush()
                answer = model.finish(begun)
            if server.is_down:
                raise remote.OutcomeUnknown('the server failed')
            server.conflicts += writes and model.is_conflict(request, answer)
        return answer


@contextlib.contextmanager
def database_lock(
    server: StoreServer, spend: Spend, wait_s: float
) -> Iterator[None]:
    """Hold the lock between schedulers, as that of a database.

    :param spend: lets CPU time of the scheduler pass
    """
    spend(scheduler_times()['lock_ms'] / 1000)
    lock = server.locks['claims']
    if not lock.acquire(timeout=wait_s):
        raise exception.DatabaseBusy(schema='simulated', reason='held')
    try:
        yield
    finally:
        lock.release()


_MODELS: Mapping[str, type[ModelStore]] = {
    'memory': ModelStore, 'postgresql': SQLModel, 'mariadb': SQLModel,
    'placement-generations': GenerationModel, 'nova-legacy': UncheckedModel,
    'cells-v1': UncheckedModel,
}

#: Kinds with a ledger, which can have a defect on purpose.
WITH_LEDGER = tuple(_MODELS)

#: Kinds that place a server without a claim.
UNCHECKED = ('nova-legacy', 'cells-v1')


def store_of(
    server: StoreServer, ledger: Ledger, clock: SimulatedClock,
    random: Random, spend: Spend,
) -> base.ClaimStore:
    """Return the claim store of one scheduler."""
    kind = server.kind
    start: Any = server.engine.spawn
    if kind in servers.KINDS:
        return servers.KINDS[kind].store(
            ServerClient(server, spend), clock, random, locks=ContentionLock(
                clock, functools.partial(database_lock, server, spend),
                start))
    return _MODELS[kind](server, ledger, spend)


def direct(server: StoreServer) -> base.ClaimStore:
    """Return a store of production whose calls take no time."""
    return servers.KINDS[server.kind].direct(
        server.model, SimulatedClock(server.engine))
