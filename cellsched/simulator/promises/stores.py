# SPDX-License-Identifier: Apache-2.0
"""Databases and claim servers that processes share, and their failures."""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import enum
import random
import sqlite3
from typing import Any

from cellsched.claims import base as claims_base
from cellsched.claims import remote
from cellsched.clock import Clock
from cellsched.db import session
from cellsched import exception
from cellsched.simulator import servers


class Store:
    """The database of one database server.

    All processes share one connection: only one thread runs at a time, and no
    transaction is open when another thread runs.

    :param url: the URL that processes open
    """

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        # This clock measures the age of connections, which does not matter.
        self.database = session.Database('sqlite://', schema, clock=Clock())
        raw = self.database.engine.raw_connection()
        self.raw: Any = raw.driver_connection
        raw.close()
        self.changes = 0
        self.is_open = False

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Return rows, without simulated failures."""
        return self.raw.execute(statement).fetchall()

    def image(self) -> sqlite3.Connection:
        """Return a copy of the database, for :meth:`load`."""
        image = sqlite3.connect(':memory:', check_same_thread=False)
        self.raw.backup(image)
        return image

    def load(self, image: sqlite3.Connection) -> None:
        """Restore the content of a copy."""
        # SQLite crashes if it deserializes a database after reading JSON.
        image.backup(self.raw)
        self.changes = self.raw.total_changes

    def is_changed(self) -> bool:
        """Return whether the database changed since the last call."""
        before, self.changes = self.changes, self.raw.total_changes
        return before != self.changes


class Fate(enum.Enum):
    """The fate of a request to the server of a claim store."""

    ANSWERED = 'answered'
    NOT_SENT = 'not sent'
    LOST = 'lost'
    UNANSWERED = 'done and not answered'
    LATE = 'done later'
    TWICE = 'done twice'


class SimulatedDatabase(session.Database):
    """A store as one process opens it.

    :param world: intercepts all access; see ``processes.World``
    """

    def __init__(
        self, store: Store, schema: str, world: Any
    ) -> None:
        super().__init__(store.url, schema, clock=world.clock)
        self._store = store
        self._world = world

    @property
    def engine(self) -> Any:
        return self._store.database.engine

    @contextlib.contextmanager
    def writer(self) -> Iterator[Any]:
        wrong = self._world.ask(self._store, True)
        with self._world.inside(self._store), super().writer() as connection:
            yield connection
            if wrong == 'lost':
                raise exception.TransactionLost(
                    schema=self.schema, reason='another one was faster')
        self._world.finished(self._store)
        if wrong == 'unknown':
            raise unreachable(self._store, 'gone at the commit')

    @contextlib.contextmanager
    def each_alone(self) -> Iterator[Any]:
        self._world.ask(self._store, False)
        with self._world.inside(self._store), (
                super().each_alone()) as connection:
            yield connection
        self._world.finished(self._store)

    def close(self) -> None:
        """Close nothing: the connection is shared."""


class SimulatedDatabases(session.Databases):
    """The stores that a process can reach, by URL.

    :param world: see ``processes.World``
    """

    def __init__(self, world: Any) -> None:
        super().__init__(world.clock)
        self._world = world

    def get(
        self, url: str, schema: str, options: Mapping[str, Any] | None = None
    ) -> session.Database:
        return SimulatedDatabase(self._world.stores[url], schema, self._world)


def unreachable(store: Store, reason: str) -> exception.DatabaseUnreachable:
    """Return the error of an unreachable database."""
    return exception.DatabaseUnreachable(
        schema=store.database.schema, url=store.url, reason=reason)


class ClaimServer:
    """The server of a claim store, and the client of all processes.

    :param chance: random source for the delays of requests
    :param world: decides the fate of each request
    """

    url = servers.DirectClient.url

    def __init__(
        self, kind: servers.ClaimServerKind, chance: random.Random, world: Any
    ) -> None:
        self._kind = kind
        self._random = chance
        self._world = world
        self._model = kind.model()
        self._late: list[Any] = []
        self.direct().sync()

    def store_of(self, clock: Clock, seed: str) -> claims_base.ClaimStore:
        """Return the store of a process; requests may fail."""
        return self._kind.store(self, clock, random.Random(seed))

    def direct(self) -> claims_base.ClaimStore:
        """Return a store whose requests never fail."""
        return self._kind.direct(self._model)

    def send(self, request: Any) -> Any:
        """Return the answer to a request.

        :raises remote.NotSent: the request is not sent
        :raises remote.OutcomeUnknown: no answer arrives
        """
        fate = self._world.ask_server(str(request))
        try:
            if fate is Fate.NOT_SENT:
                raise remote.NotSent(fate.value)
            while self._late and self._random.random() < 0.3:
                self._arrive()
            if fate is Fate.LATE:
                self._late.append(request)
            if fate in (Fate.LOST, Fate.LATE):
                raise remote.OutcomeUnknown(fate.value)
            answer = self._model.answer(request)
            if fate is Fate.TWICE:
                answer = self._model.answer(request)
            if fate is Fate.UNANSWERED:
                raise remote.OutcomeUnknown(fate.value)
            return answer
        finally:
            self._world.finished(None)

    def _arrive(self) -> None:
        """Execute one of the delayed requests."""
        self._model.answer(self._late.pop(
            self._random.randrange(len(self._late))))

    def settle(self) -> None:
        """Execute all delayed requests."""
        while self._late:
            self._arrive()
