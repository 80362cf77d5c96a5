# SPDX-License-Identifier: Apache-2.0
"""Databases in memory, which many processes open and which can fail."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import enum
import sqlite3
from typing import Any

from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.db import session
from cellsched import exception


class Store:
    """The database of a database server: one for each.

    All of its users share one connection, as only one of them is at work at
    any time and no transaction stays open meanwhile.

    :param url: what those who open it call it
    """

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        # Nothing of the run depends on it: connections in memory do not age.
        self.database = session.Database(
            'sqlite://', schema, clock=Clock())
        raw = self.database.engine.raw_connection()
        self.raw: Any = raw.driver_connection
        raw.close()
        self.changes = 0
        self.is_open = False

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Return what is there, past everything that can fail."""
        return self.raw.execute(statement).fetchall()

    def image(self) -> sqlite3.Connection:
        """Return a copy of all that is there, for :meth:`load`."""
        image = sqlite3.connect(':memory:', check_same_thread=False)
        self.raw.backup(image)
        return image

    def load(self, image: sqlite3.Connection) -> None:
        """Have there be what there was."""
        # To deserialize would crash SQLite once it has read JSON there.
        image.backup(self.raw)
        self.changes = self.raw.total_changes

    def is_changed(self) -> bool:
        """Return whether it changed since this was last asked."""
        before, self.changes = self.changes, self.raw.total_changes
        return before != self.changes


class Fate(enum.Enum):
    """The fate of a request to a server that is no database."""

    ANSWERED = 'answered'
    NOT_SENT = 'not sent'
    LOST = 'lost'
    UNANSWERED = 'done and not answered'
    LATE = 'done later'
    TWICE = 'done twice'


class Gate:
    """The gate that a process passes to get at anything outside of it.

    This one lets everything through at once.
    """

    #: How many transactions are open; while there are any nobody else goes on.
    depth = 0

    def enter(self, what: str) -> None:
        """Let others go on before something is done."""

    def ask(self, store: Store, writes: bool) -> str | None:
        """Return how a transaction is to go wrong, if it is.

        ``lost`` loses it to another one, ``unknown`` commits it and says that
        the database is gone.

        :raises cellsched.exception.DatabaseUnreachable: the database is down
        """

    def ask_server(self, what: str) -> Fate:
        """Return what becomes of a request to a claim store's server."""
        return Fate.ANSWERED

    def left(self, store: Store | None) -> None:
        """Hear of what a transaction did; None are claims elsewhere."""

    @contextlib.contextmanager
    def inside(self, store: Store) -> Iterator[None]:
        """Keep everybody else out of a store."""
        assert not store.is_open, f'{store.url} is opened twice at a time'
        store.is_open = True
        self.depth += 1
        try:
            yield
        finally:
            store.is_open = False
            self.depth -= 1


class SimulatedDatabase(session.Database):
    """A store as one process opens it.

    :param clock: that of its server
    """

    def __init__(
        self, store: Store, schema: str, gate: Gate, clock: Clock
    ) -> None:
        super().__init__(store.url, schema, clock=clock)
        self._store = store
        self._gate = gate

    @property
    def engine(self) -> Any:
        return self._store.database.engine

    @contextlib.contextmanager
    def writer(self) -> Iterator[Any]:
        wrong = self._gate.ask(self._store, True)
        with self._gate.inside(self._store), super().writer() as connection:
            yield connection
            if wrong == 'lost':
                raise exception.TransactionLost(
                    schema=self.schema, reason='another one was faster')
        self._gate.left(self._store)
        if wrong == 'unknown':
            raise unreachable(self._store, 'gone at the commit')

    @contextlib.contextmanager
    def each_alone(self) -> Iterator[Any]:
        self._gate.ask(self._store, False)
        with self._gate.inside(self._store), (
                super().each_alone()) as connection:
            yield connection
        self._gate.left(self._store)

    def close(self) -> None:
        """Close nothing: the connection is everybody's."""


class SimulatedDatabases(session.Databases):
    """The stores that a process can reach, by their URLs.

    :param clock: that of their servers
    """

    def __init__(
        self, stores: Mapping[str, Store], gate: Gate, clock: Clock
    ) -> None:
        super().__init__(clock)
        self._stores = stores
        self._gate = gate
        self._server_clock = clock

    def get(
        self, url: str, schema: str, options: Mapping[str, Any] | None = None
    ) -> session.Database:
        return SimulatedDatabase(
            self._stores[url], schema, self._gate, self._server_clock)


def unreachable(store: Store, reason: str) -> exception.DatabaseUnreachable:
    """Return the error of who asked in vain."""
    return exception.DatabaseUnreachable(
        schema=store.database.schema, url=store.url, reason=reason)


class Claims:
    """A claim store in memory as one process has it."""

    def __init__(self, store: claims_base.ClaimStore, gate: Gate) -> None:
        self._store = store
        self._gate = gate
        self.capabilities = store.capabilities

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Any] = getattr(self._store, name)

        def entered(*args: Any, **kwargs: Any) -> Any:
            self._gate.enter(f'claims.{name}')
            try:
                return method(*args, **kwargs)
            finally:
                self._gate.left(None)
        return entered
