# SPDX-License-Identifier: Apache-2.0
"""Engines of SQLAlchemy, set up by oslo.db's options."""

from collections.abc import Mapping
import itertools
import logging
import os
import traceback
from typing import Any

from oslo_db import exception as db_exc
from oslo_db.sqlalchemy import exc_filters
from oslo_log import log
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy import pool

from cellsched.clock import Clock
from cellsched.db import guarded_statements
from cellsched.db import mysql
from cellsched.db import postgresql
from cellsched import exception
from cellsched import urls

LOG = log.getLogger(__name__)

#: Arguments of ``create_engine`` for a pool, by oslo.db's options.
_POOL_OPTIONS = {
    'connection_recycle_time': 'pool_recycle',
    'max_overflow': 'max_overflow',
    'max_pool_size': 'pool_size',
    'pool_timeout': 'pool_timeout',
}

#: The extras of this project that install a driver, by dialect and driver.
_EXTRAS = {('postgresql', 'psycopg'): 'postgresql',
           ('postgresql', 'psycopg2'): 'psycopg2',
           ('mysql', 'pymysql'): 'mysql', ('mariadb', 'pymysql'): 'mysql'}


def open_(
    url: str, options: Mapping[str, Any], clock: Clock
) -> sa.Engine:
    """Return an engine, after a first connection was made.

    :param options: oslo.db's, by name; what is left out has the default of
        SQLAlchemy, or of the database server
    :raises oslo_db.exception.DBConnectionError: the server cannot be reached,
        ``max_retries`` times; PostgreSQL's is SQLAlchemy's
        OperationalError
    :raises cellsched.exception.ConfigurationInvalid: a parameter of the URL
        is not valid
    """
    parsed = sa.make_url(url)
    if options.get('connection_parameters'):
        parsed = parsed.update_query_string(
            options['connection_parameters'], append=True)
    _set_log_level(options.get('connection_debug', 0))
    if parsed.get_backend_name() == 'sqlite':
        engine = _sqlite(parsed, options.get('sqlite_synchronous', True))
    else:
        engine = _server(parsed, options, clock)
    # Not register_engine(): its listeners for savepoints, which are not used
    # here, cost each transaction some of its time.
    event.listen(engine, 'handle_error', exc_filters.handler, retval=True)
    if options.get('connection_trace'):
        comment_statements(engine)
    _connect(engine, options.get('max_retries', 1),
             options.get('retry_interval', 1), clock)
    return engine


def check_url(url: str, schema: str) -> None:
    """Make sure that a URL is one of a database that can be opened.

    :param schema: whose database it is, for the error
    :raises cellsched.exception.ConfigurationInvalid: it is not; no password
        is quoted
    """
    expected = ('a SQLAlchemy URL of an installed driver, not '
                f'{urls.mask(url)!r}')
    try:
        parsed = sa.engine.make_url(url)
        dialect = parsed.get_dialect()
        extra = _EXTRAS.get((dialect.name, dialect.driver))
        if extra is not None:
            expected += f', whose driver cellsched[{extra}] installs'
        dialect.import_dbapi()
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError,
            ValueError):
        # The error's own text may quote the URL.
        raise exception.ConfigurationInvalid(
            field=f'{schema} database connection',
            expected=expected) from None
    if '@' in (parsed.host or ''):
        # What is taken for the host is a part of the password then, and what
        # cannot be reached is named.
        raise exception.ConfigurationInvalid(
            field=f'{schema} database connection',
            expected='a URL with %40 for each @ of the password')


def _server(
    url: sa.URL, options: Mapping[str, Any], clock: Clock
) -> sa.Engine:
    """Return an engine for a database server."""
    url, connect_args = postgresql.connect_arguments(url)
    if (url.get_backend_name() == 'postgresql'
            and 'client_encoding' not in url.query):
        # It would be that of the environment or the database.
        connect_args['client_encoding'] = 'utf8'
    arguments = {argument: options[name]
                 for name, argument in _POOL_OPTIONS.items()
                 if options.get(name) is not None}
    # Most uses are single statements. To change the isolation costs round
    # trips, so transactions do that, which take several anyway.
    arguments['isolation_level'] = 'AUTOCOMMIT'
    tuned = mysql.engine_arguments(url)
    connect_args.update(tuned.pop('connect_args', {}))
    arguments.update(tuned)
    engine = sa.create_engine(
        url, connect_args=connect_args,
        # Transactions are ended before their connections are given back.
        pool_reset_on_return=None,
        # Parameters hold passwords too: those of the cells' URLs.
        hide_parameters=True,
        # What was used last has prepared and read most.
        pool_use_lifo=True, **arguments)
    replace_dead_connections(engine, clock)
    if engine.dialect.name == 'postgresql':
        # The first listener that raises decides, so these precede oslo.db's.
        guarded_statements.listen(engine)
        postgresql.listen(engine)
    elif options.get('mysql_sql_mode') is not None:
        _set_sql_mode(engine, options['mysql_sql_mode'])
    return engine


def _set_sql_mode(engine: sa.Engine, mode: str) -> None:
    def connect(connection: Any, record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute('SET SESSION sql_mode = %s', [mode])

    event.listen(engine, 'connect', connect)


def _sqlite(url: sa.URL, synchronous: bool) -> sa.Engine:
    """Return an engine for a file of SQLite, or a database in memory.

    :param synchronous: whether a commit waits for the disk
    """
    # sqlite3 is to begin no transactions on its own.
    connect_args: dict[str, Any] = {'isolation_level': None}
    arguments: dict[str, Any]
    if url.database in (None, '', ':memory:'):
        arguments = {'poolclass': pool.StaticPool}
        connect_args['check_same_thread'] = False
    else:
        # As many stay open as there ever were at a time.
        arguments = {'poolclass': pool.QueuePool, 'pool_size': 0,
                     'max_overflow': -1, 'pool_use_lifo': True}
    engine = sa.create_engine(
        url, connect_args=connect_args, hide_parameters=True, **arguments)
    level = 'FULL' if synchronous else 'OFF'

    def connect(connection: Any, record: Any) -> None:
        connection.execute('PRAGMA foreign_keys=ON')
        # Readers and a writer do not wait for each other, and writers queue
        # up instead of failing.
        connection.execute('PRAGMA journal_mode=WAL')
        connection.execute('PRAGMA busy_timeout=30000')
        connection.execute(f'PRAGMA synchronous={level}')

    event.listen(engine, 'connect', connect)
    return engine


def _set_log_level(debug: int) -> None:
    """Set how much SQLAlchemy logs, as ``connection_debug`` says."""
    logging.getLogger('sqlalchemy.engine').setLevel(
        logging.DEBUG if debug >= 100 else
        logging.INFO if debug >= 50 else logging.WARNING)


def _connect(
    engine: sa.Engine, attempts_max: int, interval_s: float,
    clock: Clock,
) -> None:
    """Make a first connection.

    :param attempts_max: how often to try; 0 is not at all, -1 without a bound
    """
    for number in itertools.count(1) if attempts_max else ():
        try:
            return engine.connect().close()
        except (db_exc.DBConnectionError, sa.exc.OperationalError):
            # oslo.db does not know all that libpq says.
            if number == attempts_max:
                raise
            LOG.warning('Connection to the %s database failed; trying again '
                        'in %s s', engine.dialect.name, interval_s)
            clock.sleep(interval_s)


#: Seconds for which a connection that was used is taken to be alive.
TRUSTED_S = 1.0

_PID, _USED_AT = 'cellsched_pid', 'cellsched_used_at'


def replace_dead_connections(engine: sa.Engine, clock: Clock) -> None:
    """Have an engine check connections that were idle before it gives them.

    ``pool_pre_ping`` checks each connection each time, which is a round trip
    for each transaction. Here one that was used within ``TRUSTED_S`` is not
    asked. If it was lost meanwhile, the transaction that finds out fails.

    Where one connection is lost, the server has most likely been restarted,
    and all that are older are replaced without being asked.
    """
    dialect = engine.dialect

    def connect(connection: Any, record: Any) -> None:
        record.info[_PID] = os.getpid()
        record.info[_USED_AT] = clock.monotonic()

    def checkout(connection: Any, record: Any, proxy: Any) -> None:
        if record.info[_PID] != os.getpid():
            raise sa.exc.DisconnectionError(
                'it was opened before this process was forked')
        if clock.monotonic() - record.info[_USED_AT] < TRUSTED_S:
            return
        try:
            dialect.do_ping(connection)
        except dialect.loaded_dbapi.Error as exc:
            raise sa.exc.InvalidatePoolError(str(exc)) from exc

    def checkin(connection: Any, record: Any) -> None:
        record.info[_USED_AT] = clock.monotonic()

    event.listen(engine, 'connect', connect)
    event.listen(engine, 'checkout', checkout)
    event.listen(engine, 'checkin', checkin)


#: Calls that are named, the innermost first.
_CALLS_MAX = 3


def comment_statements(engine: sa.Engine) -> None:
    """Have an engine add a comment to each statement, for the server's log."""
    def before_cursor_execute(
        connection: sa.Connection, cursor: Any, statement: str,
        parameters: Any, context: Any, many: bool,
    ) -> tuple[str, Any]:
        return f'{statement}  -- {_calls()}', parameters

    event.listen(
        engine, 'before_cursor_execute', before_cursor_execute, retval=True)


def _calls() -> str:
    """Return the innermost calls outside of SQLAlchemy and this module."""
    frames = ((frame.f_globals.get('__name__', ''), frame.f_code.co_name, line)
              for frame, line in traceback.walk_stack(None))
    # Names of modules hold nothing that a driver takes for a parameter.
    return '; '.join(
        f'{module}.{function}:{line}'
        for module, function, line in itertools.islice((
            each for each in frames
            if each[0] != __name__
            and each[0].partition('.')[0] != 'sqlalchemy'), _CALLS_MAX))
