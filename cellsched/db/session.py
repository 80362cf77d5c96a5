# SPDX-License-Identifier: Apache-2.0
"""Databases and their connections.

Query functions take a connection, so that the caller decides which of them
share a transaction::

    with database.writer() as connection:
        build_requests.create(connection, …)
        build_requests.create_specs(connection, …)
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import datetime
import functools
import pathlib
import threading
from typing import Any
from typing import TypeVar

from oslo_config import cfg
from oslo_log import log
import sqlalchemy as sa

from cellsched.clock import Clock
from cellsched.db import engines
from cellsched.db import errors
from cellsched.db import mysql
from cellsched.db import postgresql
from cellsched import exception
from cellsched.observability.conditions import Conditions
from cellsched import urls

LOG = log.getLogger(__name__)

_Result = TypeVar('_Result')

#: Attempts of a transaction, if connections are lost or it has conflicts.
ATTEMPTS_MAX = 3

#: Seconds between two attempts at the file of a lock: the first, and the most.
_FILE_LOCK = {'delay': 0.002, 'max_delay': 0.05}

#: Options that configure engines.
ENGINE_OPTIONS = (
    'connection_recycle_time', 'connection_debug', 'connection_parameters',
    'connection_trace', 'max_overflow', 'max_pool_size', 'max_retries',
    'mysql_sql_mode', 'mysql_wsrep_sync_wait', 'pool_timeout',
    'retry_interval', 'sqlite_synchronous', *engines.LIMITS,
)


#: oslo.messaging's option for the number of RPC threads.
_ANSWERING = 'executor_thread_pool_size'

#: Seconds without an answer after which a database counts as stuck.
_STUCK_S = 2.0

#: Number of connections of an engine, if no option says so.
_CONNECTIONS = 20


def engine_options(conf: cfg.ConfigOpts, group: str) -> dict[str, Any]:
    """Return the engine options in a group of database options.

    The default of ``max_pool_size`` is the number of threads that serve RPCs
    and query cells.
    """
    section = conf[group]
    options = {name: value for name in ENGINE_OPTIONS
               if (value := section.get(name)) is not None}
    threads = conf.cell_worker_thread_pool_size
    if _ANSWERING in conf:
        threads += conf[_ANSWERING]
    return {'max_pool_size': threads, **options}


class Database:
    """A database and its connections.

    It connects at the first use, which is after a service has forked.

    :param url: SQLAlchemy URL
    :param schema: name of the schema in messages: ``API``, ``cell``,
        ``claims``, or another word for a foreign database
    :param options: options of engines, by name
    :param clock: the clock of the process, and of an SQLite database
    """

    def __init__(
        self, url: str, schema: str, options: Mapping[str, Any] | None = None,
        *, clock: Clock,
    ) -> None:
        self.url = url
        self.schema = schema
        self.options = dict(options or {})
        # Held while the engine is created, which opens a connection.
        self._lock = threading.Lock()
        self._engine: sa.Engine | None = None
        self.clock = clock
        self._uses_lock = threading.Lock()
        self._uses = 0
        #: Half of the connections: the other half is for the time after.
        self._uses_max = max(
            (self.options.get('max_pool_size') or _CONNECTIONS) // 2, 2)
        #: The last time at which a use ended, or began as the only one.
        self._moved_at = clock.monotonic()
        #: Logs the rows that cannot be read.
        self.conditions = Conditions(LOG, clock.monotonic)
        self.server_clock = (None if url.startswith('sqlite') else
                             ServerClock(clock))

    def __repr__(self) -> str:
        return f'Database({self.schema}, {urls.mask(self.url)})'

    @property
    def engine(self) -> sa.Engine:
        """The engine; the first access connects.

        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """
        if self._engine is None:
            with self._lock:
                if self._engine is None:
                    self._engine = self._opened()
        return self._engine

    def enter(self) -> None:
        """Count a use of the database.

        If many threads use it, and it answers none of them, further threads
        do not wait for it.

        :raises cellsched.exception.DatabaseUnreachable: too many threads wait
        """
        with self._uses_lock:
            now = self.clock.monotonic()
            if not self._uses:
                self._moved_at = now
            elif (self._uses >= self._uses_max
                    and now - self._moved_at > _STUCK_S):
                raise exception.DatabaseUnreachable(
                    schema=self.schema, url=urls.mask(self.url), reason=(
                        f'{self._uses} requests wait for its answer already'))
            self._uses += 1

    def leave(self) -> None:
        """End a use of the database."""
        with self._uses_lock:
            self._uses -= 1
            self._moved_at = self.clock.monotonic()

    def _opened(self) -> sa.Engine:
        try:
            with self.translated_errors():
                return engines.open_(self.url, self.options, self.clock)
        except exception.DatabaseError as exc:
            if not errors.is_mistake(exc):
                raise
            # Only a connection was attempted so far.
            raise exception.ConfigurationInvalid(
                field=f'{self.schema} database connection',
                problem=f'the driver refuses {urls.mask(self.url)!r}: '
                        f'{exc.reason}') from None
        except (AttributeError, LookupError, OSError, TypeError,
                ValueError) as exc:
            # Drivers do not check the parameters of a URL themselves.
            raise exception.ConfigurationInvalid(
                field=f'{self.schema} database connection',
                problem=f'the driver cannot use {urls.mask(self.url)!r}: '
                        f'{errors.reason(exc, self.url)}',
                expected='valid parameters and readable files') from None

    def alone(self, options: Mapping[str, Any]) -> 'Database':
        """Return a new Database of the same URL with changed options."""
        return Database(self.url, self.schema, {**self.options, **options},
                        clock=self.clock)

    @contextlib.contextmanager
    def for_long_statements(self) -> Iterator['Database']:
        """Yield the database with connections that may take any time.

        A wait for a lock keeps its limit: a statement that waits for the lock
        of a table blocks all later ones.
        """
        if self.url.startswith('sqlite'):
            # It has no other limit, and may be in memory.
            yield self
            return
        opened = self.alone(
            {'statement_timeout': 0, 'idle_transaction_timeout': 0})
        try:
            yield opened
        finally:
            opened.close()

    @property
    def is_postgresql(self) -> bool:
        """True on PostgreSQL, where a statement can be several writes.

        In autocommit mode they are a transaction of one round trip.
        """
        return self.url.startswith('postgresql')

    def exists(self) -> bool:
        """Return False for an SQLite file that does not exist, else True.

        SQLite would create the file of a mistyped URL.
        """
        url = sa.engine.make_url(self.url)
        if url.get_backend_name() != 'sqlite' or not url.database:
            return True
        file = pathlib.Path(url.database)
        return file.exists() or not file.parent.is_dir()

    def writer(self) -> contextlib.AbstractContextManager[sa.Connection]:
        """Return a context with a connection in a transaction.

        The transaction is committed at the end, or rolled back by an
        exception, which is raised again.

        :raises cellsched.exception.TransactionLost: it lost to another
            transaction and can be retried
        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """
        return _Use(self, writes=True)

    def write(
        self, query: Callable[..., _Result], *args: Any,
        attempts_max: int = ATTEMPTS_MAX,
    ) -> _Result:
        """Run a query in a transaction; return its result.

        The transaction is repeated on a new connection, and after a conflict.
        The outcome of a lost transaction may be unknown, so the query must
        be idempotent.

        :param query: called with a connection and the arguments
        :raises cellsched.exception.TransactionLost: it lost each time, or was
            busy: a busy database has cost the time of its limit already
        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """
        while True:
            attempts_max -= 1
            try:
                with self.writer() as connection:
                    return query(connection, *args)
            except (exception.ConnectionLost,
                    exception.TransactionLost) as exc:
                if not attempts_max or isinstance(
                        exc, exception.DatabaseBusy):
                    raise

    def reader(self) -> contextlib.AbstractContextManager[sa.Connection]:
        """Return a context with a connection for single read statements.

        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """
        return self.each_alone()

    def each_alone(self) -> contextlib.AbstractContextManager[sa.Connection]:
        """Return a context with a connection in autocommit mode.

        :raises cellsched.exception.TransactionLost: a statement lost to
            another transaction and can be retried
        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """
        return _Use(self, writes=False)

    @property
    def has_locks(self) -> bool:
        """False for SQLite in memory, or with a file named by a URI."""
        url = sa.make_url(self.url)
        return url.get_backend_name() != 'sqlite' or bool(
            url.database and not url.database.startswith((':', 'file:')))

    @contextlib.contextmanager
    def lock(self, name: str, wait_s: float) -> Iterator[None]:
        """Hold a lock, which other processes of the database can await.

        Nodes of a Galera cluster do not share it. For SQLite it is a file
        beside the database; see :attr:`has_locks`.

        :param name: at most 20 characters
        :raises cellsched.exception.DatabaseBusy: it was not free in time
        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """
        busy = exception.DatabaseBusy(
            schema=self.schema,
            reason=f'the lock {name} was not free for {wait_s:.1f} s')
        if self.url.startswith('sqlite'):
            # Few processes need it, and to import it takes CPU.
            from oslo_concurrency import lockutils

            file = sa.make_url(self.url).database
            lock = lockutils.external_lock(name, lock_path=f'{file}.locks')
            if not lock.acquire(timeout=wait_s, **_FILE_LOCK):
                raise busy
            try:
                yield
            finally:
                lock.release()
            return
        dialect = postgresql if self.is_postgresql else mysql
        with self.writer() as connection:
            if not dialect.await_lock(connection, name, wait_s):
                raise busy
            yield
            dialect.release_lock(connection, name)

    def timestamp(self) -> float:
        """Return seconds since the epoch, by the clock of the database.

        All processes that share the database agree on this time, even if
        their own clocks are wrong. The server's clock is read now and then,
        when a connection is used anyway, and the time since then is added.
        Connects only if there was no connection before.

        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """
        if self.server_clock is None:
            return self.clock.timestamp()
        timestamp = self.server_clock.timestamp()
        if timestamp is None:
            with self.reader() as connection:
                timestamp = self.server_clock.ask(connection)
        return timestamp

    def now(self) -> datetime.datetime:
        """Return :meth:`timestamp` in UTC and without a time zone."""
        return datetime.datetime.fromtimestamp(
            self.timestamp(), datetime.UTC).replace(tzinfo=None)

    def glance(self, query: str) -> list[Any]:
        """Return the rows of a query without parameters.

        It is for polling, where the result seldom changes. For SQLite the
        query goes to the driver directly, in a tenth of the time that it
        takes with SQLAlchemy.
        """
        if self.engine.dialect.name == 'sqlite':
            with (self.translated_errors(),
                  contextlib.closing(self.engine.raw_connection()) as raw):
                return list(raw.cursor().execute(query).fetchall())
        with self.each_alone() as connection:
            return list(connection.exec_driver_sql(query).tuples())

    def close(self) -> None:
        """Close every connection; the next use opens new ones."""
        with self._lock:
            if self._engine is not None:
                self._engine.dispose()
                self._engine = None

    @contextlib.contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Raise this project's errors for those of libraries."""
        try:
            yield
        except Exception as exc:
            self.raise_ours(exc)
            raise

    def raise_ours(self, exc: BaseException) -> None:
        """Raise this project's error for a library's, if it is one."""
        ours = errors.translate(exc, self.schema, self.url, self.driver)
        if ours is not None:
            raise ours from exc if errors.is_mistake(ours) else None

    @functools.cached_property
    def driver(self) -> Any:
        """The module of the driver."""
        return sa.make_url(self.url).get_dialect().import_dbapi()


class _Use:
    """A context that has a connection until its end."""

    __slots__ = ('_connection', '_database', '_writes')

    _connection: sa.Connection

    def __init__(self, database: Database, writes: bool) -> None:
        self._database = database
        self._writes = writes

    def __enter__(self) -> sa.Connection:
        self._database.enter()
        try:
            return self._enter()
        except BaseException:
            self._database.leave()
            raise

    def _enter(self) -> sa.Connection:
        engine = self._database.engine
        try:
            self._connection = connection = engine.connect()
            try:
                if self._database.server_clock is not None:
                    self._database.server_clock.ask(connection)
                self._begin(connection)
            except BaseException as exc:
                self._close_after(exc)
                raise
        except Exception as exc:
            self._database.raise_ours(exc)
            raise
        return connection

    def _begin(self, connection: sa.Connection) -> None:
        if not self._writes:
            # Connections autocommit by default. A reader on MySQL stays in
            # READ COMMITTED, where each statement sees the current rows;
            # switching to autocommit and back would take five round trips.
            return
        if connection.dialect.name == 'postgresql':
            connection.execution_options(
                isolation_level=connection.default_isolation_level)
        connection.begin()
        if connection.dialect.name == 'sqlite':
            # In SQLite, a transaction that begins with a read cannot become a
            # writer while another one writes; no timeout helps.
            connection.exec_driver_sql('BEGIN IMMEDIATE')

    def __exit__(
        self, kind: Any, exc: BaseException | None, traceback: Any
    ) -> None:
        try:
            try:
                if exc is None and self._writes:
                    self._connection.commit()
            finally:
                try:
                    self._close_after(exc)
                finally:
                    self._database.leave()
        except Exception as error:
            self._database.raise_ours(error)
            raise
        if exc is not None:
            self._database.raise_ours(exc)

    def _close_after(self, exc: BaseException | None) -> None:
        """Return the connection to its pool, unless it failed."""
        if exc is not None and errors.discards(exc, self._database.driver):
            # SQLAlchemy knows of the errors that it has wrapped.
            self._connection.invalidate(exc)
        # Closing rolls back an uncommitted transaction.
        self._connection.close()


class Databases:
    """The databases of a process, one Database for each URL.

    :param clock: the clock of the process
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[tuple[str, str], Database] = {}

    def get(
        self, url: str, schema: str, options: Mapping[str, Any] | None = None
    ) -> Database:
        """Return the database at a URL.

        :raises cellsched.exception.ConfigurationInvalid: the URL is invalid
        """
        with self._lock:
            if (url, schema) not in self._open:
                engines.check_url(url, schema)
                self._open[url, schema] = Database(
                    url, schema, options, clock=self._clock)
            return self._open[url, schema]

    def close(self) -> None:
        """Close all databases."""
        with self._lock:
            for database in self._open.values():
                database.close()
            self._open.clear()


#: Seconds after which the server's clock is read again.
SPACING_S = 10.0

#: Queries for the seconds since the epoch, independent of the session's time
#: zone.
QUERIES = {
    'postgresql':
        'SELECT CAST(extract(epoch FROM clock_timestamp()) AS float8)',
    **dict.fromkeys(
        mysql.DIALECTS,
        "SELECT timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))"
        ' / 1e6'),
}


class ServerClock:
    """The clock of a database server, as a process knows it.

    Clocks of machines differ, and a process compares times that others have
    written: reports of hosts, leases, deadlines. All processes that share a
    database can use its server's clock.

    The time is the last answer of the server plus the time since then by the
    monotonic clock, which a step of the wall clock does not affect. The error
    is at most half of the round trip. Safe for several threads.

    :param clock: the clock of the process
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Monotonic time of the last answer, and the difference between the
        #: server's clock and the monotonic clock.
        self._said: tuple[float, float] | None = None

    def ask(self, connection: sa.Connection) -> float:
        """Return seconds since the epoch; read the server's clock if due.

        :param connection: not in a transaction, before and after the call
        """
        began = self._clock.monotonic()
        if self._said is None or began - self._said[0] >= SPACING_S:
            query = QUERIES[connection.dialect.name]
            value = float(connection.exec_driver_sql(query).scalar_one())
            ended = self._clock.monotonic()
            self._said = ended, value - (began + ended) / 2
            # SQLAlchemy begins a transaction at a read.
            connection.rollback()
        return self._clock.monotonic() + self._said[1]

    def timestamp(self) -> float | None:
        """Return seconds since the epoch; None before the first answer."""
        if self._said is None:
            return None
        return self._clock.monotonic() + self._said[1]
