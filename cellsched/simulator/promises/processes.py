# SPDX-License-Identifier: Apache-2.0
"""Processes: services that are killed and restarted, and their world."""

from __future__ import annotations
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from concurrent import futures
import contextlib
import dataclasses
import itertools
import random
from typing import Any
import uuid

from cellsched.simulator import engine
from cellsched.simulator.promises import network
from cellsched.simulator.promises import stores
from cellsched.wiring import services


class _NumberedFuture(futures.Future[Any]):
    """A future with a fixed hash, so that sets have a fixed order."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def __hash__(self) -> int:
        return self._number


class Inline(futures.Executor):
    """An executor that runs functions at once, in the calling thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        future = _NumberedFuture(next(self._numbers))
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as exc:
            future.set_exception(exc)
        return future


@dataclasses.dataclass
class Periodic:
    """A periodic task of a process, and its next time."""

    name: str
    function: Callable[[], object]
    spacing_s: float
    due: float
    running: bool = False


class Process:
    """One process of a deployment.

    :param name: the name in traces, and a part of the random seed
    :param make: a factory of ``cellsched.wiring.services``
    :param conf: the configuration
    :param world: the run; see ``simulation.Simulation``
    """

    def __init__(
        self, name: str, make: Callable[..., Any], conf: Any, world: Any
    ) -> None:
        self.name = name
        self.conf = conf
        self._make = make
        self.world = world
        self._random = random.Random(f'{world.seed} {name}')
        self.clock = engine.SimulatedClock(world)
        #: Survives a restart: servers run on when their agent is killed.
        self.driver: Any = None
        self.service: Any = None
        self.periodic: list[Periodic] = []
        self.activities: list[engine.Process] = []
        self.lives = 0
        self.deaths = 0

    def parts(self) -> services.Components:
        """Return the components of a new process."""
        self.clock.began_ahead_s = self.clock.ahead_s
        transports: Any = network.SimulatedTransports(self)
        parts = services.Components(
            self.conf, self.clock, self.world.claims_of(self),
            stores.SimulatedDatabases(self.world), transports,
            reached=lambda step: self.world.enter(f'reached {step}'),
            new_uuid=self._new_uuid)
        vars(parts)['random'] = random.Random(self._random.random())
        for name in 'executor', 'builders', 'senders':
            vars(parts)[name] = Inline()
        if self.driver is not None:
            vars(parts)['driver'] = self.driver
        return parts

    def start(self) -> None:
        """Start the service."""
        parts = self.parts()
        service = self._make(self.conf, parts)
        if 'driver' in vars(parts):
            self.driver = parts.driver
        self.service = service
        self.lives += 1
        if not isinstance(service, services.Service):
            return
        self.world.listeners += [
            network.Listener(self.conf.transport_url, server, self)
            for server in service.servers]
        self.periodic = [
            Periodic(f'{self.name} {function.__qualname__}', function,
                     spacing_s, self.world.now + (
                         0 if at_once else spacing_s))
            for function, spacing_s, at_once in service.periodic]

    def report_at(self, when: float) -> None:
        """Have the agent of a host report its resources at a time."""
        for each in self.periodic:
            if each.name.endswith('.report'):
                each.due = when

    def die(self) -> None:
        """Stop at once, with all activities."""
        self.service = None
        self.deaths += 1
        self.periodic = []
        self.world.listeners = [
            each for each in self.world.listeners if each.process is not self]
        for activity in self.activities:
            activity.doomed = True

    def life(self) -> Callable[[], bool]:
        """Return a function that returns whether this process still lives."""
        deaths = self.deaths
        return lambda: self.deaths == deaths

    def _new_uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


class World(engine.Interleaver):
    """Processes and the objects that they share, without faults.

    It intercepts all access of processes to databases, servers and brokers;
    this class lets everything pass.

    :param stores_: databases by URL
    :param claims: the claim store; None for the configured one
    """

    #: Open transactions. While there are any, no other thread runs.
    depth = 0

    def __init__(
        self, stores_: Mapping[str, stores.Store], seed: int = 0,
        claims: Any = None,
    ) -> None:
        super().__init__(self._decide)
        self.stores = stores_
        self.seed = seed
        self.claims = claims
        #: The clock of database servers, which is correct.
        self.clock = engine.SimulatedClock(self)
        #: Messages on their way, and RPC servers.
        self.messages: list[network.Message] = []
        self.listeners: list[network.Listener] = []
        self.processes: dict[str, Process] = {}

    def add(self, name: str, make: Callable[..., Any], conf: Any) -> Process:
        """Add a process, without starting it."""
        made = Process(name, make, conf, self)
        self.processes[name] = made
        return made

    def claims_of(self, process: Process) -> Any:
        """Return the claim store of a process, None for the configured."""
        return self.claims

    def _decide(
        self, current: engine.Process | None
    ) -> engine.Process | None:
        """Run no process: this world has callers only."""
        return None

    def enter(self, what: str) -> None:
        """Let other threads run before an operation."""

    def ask(self, store: stores.Store, writes: bool) -> str | None:
        """Return the failure of a transaction, or None.

        ``lost`` rolls it back for a concurrent transaction. ``unknown``
        commits it, and raises that the database is unreachable.

        :raises cellsched.exception.DatabaseUnreachable: the database is down
        """

    def ask_server(self, what: str) -> stores.Fate:
        """Return the fate of a request to the server of a claim store."""
        return stores.Fate.ANSWERED

    def finished(self, store: stores.Store | None) -> None:
        """Check the result of a transaction; None is a claim server."""

    @contextlib.contextmanager
    def inside(self, store: stores.Store) -> Iterator[None]:
        """Hold a store open for one transaction."""
        assert not store.is_open, f'{store.url} is opened twice at a time'
        store.is_open = True
        self.depth += 1
        try:
            yield
        finally:
            store.is_open = False
            self.depth -= 1

    def post(self, message: network.Message) -> None:
        """Put a message into the queue of its broker."""
        self.messages.append(message)
