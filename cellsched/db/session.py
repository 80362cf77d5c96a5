# SPDX-License-Identifier: Apache-2.0
"""Databases and their connections.

Query functions take a connection, so that the caller decides which of them
share a transaction::

    with database.writer() as connection:
        build_requests.create(connection, …)
        build_requests.create_specs(connection, …)
"""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import datetime
import pathlib
import re
import threading
from typing import Any

from oslo_config import cfg
from oslo_db import exception as db_exc
import sqlalchemy as sa

from cellsched.clock import Clock
from cellsched.db import engines
from cellsched.db import guarded_statements
from cellsched.db import mysql
from cellsched.db import postgresql
from cellsched import exception
from cellsched import urls

#: Options that configure engines.
_ENGINE_OPTIONS = (
    'connection_recycle_time', 'connection_debug', 'connection_parameters',
    'connection_trace', 'max_overflow', 'max_pool_size', 'max_retries',
    'mysql_sql_mode', 'pool_timeout', 'retry_interval',
    'sqlite_synchronous', *engines.LIMITS,
)


#: oslo.messaging's option for the number of RPC threads.
_ANSWERING = 'executor_thread_pool_size'

#: Errors of a failed connection. SQLAlchemy raises its own two for statements
#: as well, and then they have a statement.
_UNREACHABLE = (
    db_exc.CantStartEngineError, db_exc.DBConnectionError,
    db_exc.DBNonExistentDatabase, sa.exc.InterfaceError,
    sa.exc.OperationalError, sa.exc.TimeoutError,
)

#: Seconds without an answer after which a database counts as stuck.
_STUCK_S = 2.0

#: Number of connections of an engine, if no option says so.
_CONNECTIONS = 20

#: Errors of transactions that lost to another one: SQLSTATEs of PostgreSQL and
#: numbers of MariaDB and MySQL, for a serialization failure and a deadlock.
_LOST_STATES = frozenset({'40001', '40P01'})
_LOST_NUMBERS = frozenset({1020, 1213})

#: Codes of SQLite: a mistake in a statement, and a locked file or table.
_SQLITE_MISTAKE, _SQLITE_LOCKED = 1, (5, 6)

#: The message of PostgreSQL and MySQL about a missing table, as SQLAlchemy and
#: as a driver gives it.
_MISSING_TABLE = re.compile(
    r'''(?:UndefinedTable\) |^)relation "(?P<table>[^"]+)" does not exist'''
    r'''|\(1146, "Table '[^'.]*\.(?P<mysql>[^']+)' doesn't exist"''')


def engine_options(conf: cfg.ConfigOpts, group: str) -> dict[str, Any]:
    """Return the engine options in a group of database options.

    The default of ``max_pool_size`` is the number of threads that serve RPCs
    and query cells.
    """
    options = {name: conf[group][name] for name in _ENGINE_OPTIONS
               if conf[group].get(name) is not None}
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
        self._lock = threading.Lock()
        self._engine: sa.Engine | None = None
        self._clock = clock
        self._uses_lock = threading.Lock()
        self._uses = 0
        #: Half of the connections: the other half is for the time after.
        self._uses_max = max(
            (self.options.get('max_pool_size') or _CONNECTIONS) // 2, 2)
        #: The last time at which a use ended, or began as the only one.
        self._moved_at = clock.monotonic()
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
            now = self._clock.monotonic()
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
            self._moved_at = self._clock.monotonic()

    def _opened(self) -> sa.Engine:
        try:
            return engines.open_(self.url, self.options, self._clock)
        except Exception as exc:
            ours = self.translate(exc)
            if ours is None and isinstance(
                    exc, (db_exc.DBError, sa.exc.DBAPIError)):
                # Only a connection was attempted so far.
                ours = exception.ConfigurationInvalid(
                    field=f'{self.schema} database connection',
                    problem=f'the driver refuses {urls.mask(self.url)!r}: '
                            f'{self._reason(exc)}')
            if ours is None:
                raise
            raise ours from None

    def alone(self, options: Mapping[str, Any]) -> 'Database':
        """Return a new Database of the same URL with changed options."""
        return Database(self.url, self.schema, {**self.options, **options},
                        clock=self._clock)

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

    def timestamp(self) -> float:
        """Return seconds since the epoch, by the clock of the database.

        All processes that share the database agree on this time, even if
        their own clocks are wrong. The server's clock is read now and then,
        when a connection is used anyway, and the time since then is added.
        Connects only if there was no connection before.

        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """
        if self.server_clock is None:
            return self._clock.timestamp()
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
        takes with SQLAlchemy. If that fails, SQLAlchemy executes it again and
        raises the error.
        """
        dialect = self.engine.dialect
        if dialect.name == 'sqlite':
            with (contextlib.suppress(dialect.loaded_dbapi.Error),
                  contextlib.closing(self._pooled()) as raw):
                return list(raw.cursor().execute(query).fetchall())
        with self.each_alone() as connection:
            return list(connection.exec_driver_sql(query).tuples())

    def _pooled(self) -> sa.PoolProxiedConnection:
        try:
            return self.engine.raw_connection()
        except Exception as exc:
            ours = self.translate(exc)
            if ours is None:
                raise
            raise ours from None

    def close(self) -> None:
        """Close every connection; the next use opens new ones."""
        with self._lock:
            if self._engine is not None:
                self._engine.dispose()
                self._engine = None

    def translate(self, exc: BaseException) -> Exception | None:
        """Return this project's error for a library's; None if it has none."""
        if not isinstance(exc, (
                db_exc.DBError, sa.exc.SQLAlchemyError,
                postgresql.PlanOutdated, *self._driver_errors('Error'))):
            return None
        error = _driver_error(exc)
        if _is_busy(error):
            return exception.DatabaseBusy(
                schema=self.schema, reason=self._reason(exc))
        if isinstance(exc, (db_exc.DBDeadlock, postgresql.PlanOutdated)) or (
                _is_lost(error)):
            return exception.TransactionLost(
                schema=self.schema, reason=self._reason(exc))
        # SQLAlchemy does not wrap all errors of a driver.
        if isinstance(exc, self._driver_errors(
                'InterfaceError', 'OperationalError')) or (
                isinstance(exc, _UNREACHABLE) and (
                    getattr(exc, 'statement', None) is None
                    or getattr(exc, 'connection_invalidated', False))):
            return exception.DatabaseUnreachable(
                schema=self.schema, url=urls.mask(self.url),
                reason=self._reason(exc))
        if isinstance(exc, (db_exc.DBError, sa.exc.ProgrammingError,
                            *self._driver_errors('Error'))):
            table = _missing_table(exc)
            if table is not None and self.schema in SYNC_COMMANDS:
                return exception.SchemaOutOfDate(
                    schema=self.schema, url=urls.mask(self.url),
                    version='none', expected=f'one with the table {table}',
                    command=SYNC_COMMANDS[self.schema])
        if _is_failure(exc, error) or self.is_of_driver(exc):
            return exception.DatabaseError(
                schema=self.schema, reason=self._reason(exc))
        return None

    def is_of_driver(self, exc: BaseException) -> bool:
        """Return whether a driver raised an error that nothing wrapped."""
        return isinstance(exc, self._driver_errors('Error'))

    def _driver_errors(self, *names: str) -> tuple[type[BaseException], ...]:
        """Return classes of errors of the driver by their DBAPI names."""
        if self._engine is None:
            return ()
        driver = self._engine.dialect.loaded_dbapi
        return tuple(getattr(driver, name) for name in names)

    def _reason(self, exc: BaseException) -> str:
        """Return the first line of the driver's error, without secrets."""
        inner = _driver_error(exc)
        line = (str(inner).strip().splitlines() or [type(inner).__name__])[0]
        password = sa.engine.make_url(self.url).password
        return line.replace(str(password), '****') if password else line


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
            self._raise_ours(exc)
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
            self._raise_ours(error)
            raise
        if exc is not None:
            self._raise_ours(exc)

    def _close_after(self, exc: BaseException | None) -> None:
        """Return the connection to its pool, unless it failed."""
        if exc is not None and self._database.is_of_driver(exc) and isinstance(
                self._database.translate(exc), exception.DatabaseUnreachable):
            self._connection.invalidate()
        # Closing rolls back an uncommitted transaction.
        self._connection.close()

    def _raise_ours(self, exc: BaseException) -> None:
        ours = self._database.translate(exc)
        if ours is not None:
            raise ours from None


def _driver_error(exc: BaseException) -> BaseException:
    """Return the error of the driver in an error of a library."""
    inner: BaseException = getattr(exc, 'inner_exception', None) or exc
    return getattr(inner, 'orig', None) or inner


def _is_busy(error: BaseException) -> bool:
    """Return whether a statement exceeded its limit.

    oslo.db takes the lock timeout of MariaDB for a deadlock.
    """
    return (guarded_statements.is_busy(error)
            or _sqlite_code(error) in _SQLITE_LOCKED)


def _is_lost(error: BaseException) -> bool:
    """Return whether the server rolled back in favor of another transaction.

    PostgreSQL does so with a stricter default isolation level, possibly at the
    commit. MariaDB does so with snapshot isolation. oslo.db does not translate
    the first error, and its old releases translate neither.
    """
    return (guarded_statements.state(error) in _LOST_STATES
            or guarded_statements.number(error) in _LOST_NUMBERS)


def _is_failure(exc: BaseException, error: BaseException) -> bool:
    """Return whether a server failed, in contrast to a wrong statement.

    SQLite has the same kind of error for both.
    """
    return isinstance(
        exc, (sa.exc.InterfaceError, sa.exc.OperationalError)
    ) and _sqlite_code(error) != _SQLITE_MISTAKE


def _sqlite_code(error: BaseException) -> int | None:
    """Return the primary code of an error of SQLite."""
    code = getattr(error, 'sqlite_errorcode', None)
    return None if code is None else code & 0xff


def _missing_table(exc: BaseException) -> str | None:
    """Return the missing table that an error names, or None.

    oslo.db translates only SQLite's error.
    """
    if isinstance(exc, db_exc.DBNonExistentTable):
        return str(exc.table)
    text = str(getattr(exc, 'inner_exception', None) or exc)
    match = _MISSING_TABLE.search(text)
    return match and (match['table'] or match['mysql'])


#: The command that upgrades a schema, by the schema's name.
SYNC_COMMANDS = {
    'API': 'cellsched-manage api_db sync',
    'cell': 'cellsched-manage db sync',
    'claims': 'cellsched-manage claims_db sync',
}


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


#: First part of the name of an advisory lock. The second part is the number of
#: the connection, which makes the name unique.
_LOCK = 2_017_030_817


def is_same_database(first: Database, second: Database) -> bool:
    """Return whether two URLs lead to the same database; connects to both.

    On servers, one connection takes an advisory lock, and the other connection
    sees it if the database is the same. Nothing is written.

    :raises cellsched.exception.DatabaseUnreachable: one does not answer
    """
    urls = [sa.make_url(database.url) for database in (first, second)]
    backends = {url.get_backend_name() for url in urls}
    if len(backends) > 1:
        return False
    if backends == {'sqlite'}:
        paths = [url.database and pathlib.Path(url.database).resolve()
                 for url in urls]
        return paths[0] == paths[1]
    if urls[0].database != urls[1].database:
        return False
    with first.writer() as one, second.writer() as other:
        if backends == {'postgresql'}:
            # These locks belong to one database and end with the transaction.
            take = sa.select(sa.func.pg_try_advisory_xact_lock(
                _LOCK, one.scalar(sa.select(sa.func.pg_backend_pid()))))
            one.execute(take)
            return not other.scalar(take)
        number = one.scalar(sa.select(sa.func.connection_id()))
        name = f'cellsched-{_LOCK}-{number}'
        one.execute(sa.select(sa.func.get_lock(name, 0)))
        try:
            return not other.scalar(sa.select(sa.func.is_free_lock(name)))
        finally:
            one.execute(sa.select(sa.func.release_lock(name)))
