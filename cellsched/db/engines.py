# SPDX-License-Identifier: Apache-2.0
"""SQLAlchemy engines, configured by the options of a database."""

from collections.abc import Mapping
import contextlib
import itertools
import logging
import math
import os
import pathlib
import traceback
from typing import Any

from oslo_db.sqlalchemy import exc_filters
from oslo_log import log
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy import pool

from cellsched.clock import Clock
from cellsched.db import errors
from cellsched.db import mysql
from cellsched.db import postgresql
from cellsched import exception
from cellsched.observability.conditions import Conditions
from cellsched import urls

LOG = log.getLogger(__name__)

#: Pool arguments of ``create_engine``, by the name of oslo.db's option.
_POOL_OPTIONS = {
    'connection_recycle_time': 'pool_recycle',
    'max_overflow': 'max_overflow',
    'max_pool_size': 'pool_size',
    'pool_timeout': 'pool_timeout',
}

#: Options that limit waits and statements, in seconds. 0, or a missing option,
#: leaves the setting of the server.
LIMITS = ('lock_timeout', 'statement_timeout', 'idle_transaction_timeout')

#: PostgreSQL's settings in milliseconds, by option.
_POSTGRESQL_LIMITS = {
    'lock_timeout': 'lock_timeout', 'statement_timeout': 'statement_timeout',
    'idle_transaction_timeout': 'idle_in_transaction_session_timeout'}

#: Seconds that SQLite waits for the lock of a file without an option.
_SQLITE_LOCK_TIMEOUT_S = 30.0

#: The extras of this project that install a driver, by dialect and driver.
_EXTRAS = {('postgresql', 'psycopg'): 'postgresql',
           ('postgresql', 'psycopg2'): 'psycopg2',
           ('mysql', 'pymysql'): 'mysql', ('mariadb', 'pymysql'): 'mysql'}


#: The expected form of a URL that has several hosts, of PostgreSQL and others.
_HOSTS_IN_QUERY = ('one host, or several as ?host=HOST:PORT&host=HOST:PORT '
                   'after the name of the database')
_ONE_HOST = 'one host, such as that of a proxy'


#: Parameters of URLs that name files. libpq ignores some that are missing:
#: without sslrootcert it does not check the server, unless sslmode says so.
_FILES = frozenset({
    'passfile', 'sslcert', 'sslcrl', 'sslkey', 'sslrootcert', 'ssl_ca',
    'ssl_cert', 'ssl_key'})

#: A value of sslrootcert that is no file.
_SYSTEM = 'system'


def open_(url: str, options: Mapping[str, Any], clock: Clock) -> sa.Engine:
    """Open a first connection and return the engine.

    :param options: options by name, those of oslo.db and :data:`LIMITS`; a
        missing option has the default of SQLAlchemy or of the database server
    :raises sqlalchemy.exc.OperationalError: the server could not be reached
        in ``max_retries`` attempts
    :raises cellsched.exception.ConfigurationInvalid: a parameter of the URL
        is not valid
    :raises OSError: a file that the URL names cannot be read
    """
    parsed = sa.make_url(url)
    if options.get('connection_parameters'):
        parsed = parsed.update_query_string(
            options['connection_parameters'], append=True)
    for name in _FILES & parsed.query.keys():
        for path in parsed.normalized_query[name]:
            if path != _SYSTEM:
                open(path, 'rb').close()
    _set_log_level(options.get('connection_debug', 0))
    if parsed.get_backend_name() == 'sqlite':
        engine = _sqlite(parsed, options)
    else:
        engine = _server(parsed, options, clock)
    if options.get('connection_trace'):
        comment_statements(engine)
    _connect(engine, options.get('max_retries', 1),
             options.get('retry_interval', 1), clock)
    # register_engine() is not used: it also adds listeners for savepoints,
    # which slow down each transaction and are not needed here. This one logs
    # a traceback of errors that it does not know, such as that of a parameter
    # of the URL, so the first connection is opened without it.
    event.listen(engine, 'handle_error', exc_filters.handler, retval=True)
    return engine


def check_url(url: str, schema: str) -> None:
    """Check that a URL names a database that can be opened.

    :param schema: the schema's name, for the error
    :raises cellsched.exception.ConfigurationInvalid: the URL is invalid; the
        error contains no password
    """
    expected = 'a SQLAlchemy URL of an installed driver'
    try:
        parsed = sa.engine.make_url(url)
        dialect = parsed.get_dialect()
        extra = _EXTRAS.get((dialect.name, dialect.driver))
        if extra is not None:
            expected += f'; cellsched[{extra}] installs this driver'
        dialect.import_dbapi()
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError,
            ValueError):
        if ',' in url.rpartition('@')[2].partition('/')[0]:
            expected = (_HOSTS_IN_QUERY if url.startswith('postgresql')
                        else _ONE_HOST)
        # The text of the error may contain the URL.
        raise exception.ConfigurationInvalid(
            field=f'{schema} database connection',
            problem=f'{urls.mask(url)!r} cannot be used',
            expected=expected) from None
    if '@' in (parsed.host or ''):
        # An unquoted "@" makes a part of the password the host name, which
        # connection errors would print.
        raise exception.ConfigurationInvalid(
            field=f'{schema} database connection',
            problem='the name of the host contains @',
            expected='%40 for each @ in the password')


def _server(
    url: sa.URL, options: Mapping[str, Any], clock: Clock
) -> sa.Engine:
    """Return an engine for a database server."""
    url, connect_args = postgresql.connect_arguments(url)
    threshold = connect_args.get('prepare_threshold')
    if threshold is not None:
        # Behind a pooler, the first statement could fail already.
        connect_args['prepare_threshold'] = None
    if (url.get_backend_name() == 'postgresql'
            and 'client_encoding' not in url.query):
        # Without it, the server or the environment sets the time zone.
        connect_args['client_encoding'] = 'utf8'
    arguments = {argument: options[name]
                 for name, argument in _POOL_OPTIONS.items()
                 if options.get(name) is not None}
    # Most connections run single statements, so autocommit is the default.
    # Changing the isolation level costs round trips; transactions, which take
    # several anyway, pay for them.
    arguments['isolation_level'] = 'AUTOCOMMIT'
    tuned = mysql.engine_arguments(url)
    connect_args.update(tuned.pop('connect_args', {}))
    arguments.update(tuned)
    engine = sa.create_engine(
        url, connect_args=connect_args,
        # Every transaction ends before its connection returns to the pool.
        pool_reset_on_return=None,
        # Parameters include the passwords in the cells' URLs.
        hide_parameters=True,
        # The connection used last has the most prepared statements.
        pool_use_lifo=True, **arguments)
    replace_dead_connections(engine, clock)
    errors.listen(engine)
    _set_up_sessions(engine, options, threshold)
    return engine


def _set_up_sessions(
    engine: sa.Engine, options: Mapping[str, Any], threshold: int | None
) -> None:
    """Make an engine limit and set up each session.

    :param threshold: see :func:`.postgresql.set_up`
    """
    limits = {name: options[name] for name in LIMITS if options.get(name)}
    settings: dict[str, Any] = {}
    if engine.dialect.name == 'postgresql':
        settings = {setting: f'{math.ceil(limits[name] * 1000)}'
                    for name, setting in _POSTGRESQL_LIMITS.items()
                    if name in limits}
        # A plan that was cached while a table was small compares each of its
        # rows with each value of a list, until the table is analyzed.
        settings['plan_cache_mode'] = options.get(
            'plan_cache_mode', 'force_custom_plan')
    else:
        settings = {variable: options[name]
                    for variable, name in mysql.VARIABLES.items()
                    if options.get(name) is not None}

    def connect(connection: Any, record: Any) -> None:
        if engine.dialect.name == 'postgresql':
            postgresql.set_up(
                connection, engine.dialect.loaded_dbapi, settings, threshold)
            return
        # The first connection shows whether it is MariaDB or MySQL.
        is_mariadb = 'MariaDB' in connection.get_server_info()
        each = {**settings, **mysql.limits(limits, is_mariadb)}
        text = 'SET SESSION ' + ', '.join(f'{name} = %s' for name in each)
        if each:
            with connection.cursor() as cursor, mysql.known_variables(engine):
                cursor.execute(text, list(each.values()))
            connection.commit()
        if is_mariadb:
            mysql.catch_up(connection)

    event.listen(engine, 'connect', connect)


def _sqlite(url: sa.URL, options: Mapping[str, Any]) -> sa.Engine:
    """Return an engine for an SQLite file or an in-memory database."""
    # Keep sqlite3 from beginning transactions by itself.
    connect_args: dict[str, Any] = {'isolation_level': None}
    arguments: dict[str, Any]
    if url.database in (None, '', ':memory:'):
        arguments = {'poolclass': pool.StaticPool}
        connect_args['check_same_thread'] = False
    else:
        # Keep all connections open that were ever used at the same time.
        arguments = {'poolclass': pool.QueuePool, 'pool_size': 0,
                     'max_overflow': -1, 'pool_use_lifo': True}
    engine = sa.create_engine(
        url, connect_args=connect_args, hide_parameters=True, **arguments)
    level = 'FULL' if options.get('sqlite_synchronous', True) else 'OFF'
    busy_s = options.get('lock_timeout') or _SQLITE_LOCK_TIMEOUT_S
    if url.database not in (None, '', ':memory:') and 'uri' not in url.query:
        keep_private(pathlib.Path(url.database))

    def connect(connection: Any, record: Any) -> None:
        connection.execute('PRAGMA foreign_keys=ON')
        # With WAL, readers and the writer do not wait for each other; with a
        # busy timeout, writers queue instead of failing.
        connection.execute('PRAGMA journal_mode=WAL')
        connection.execute(f'PRAGMA busy_timeout={math.ceil(busy_s * 1000)}')
        connection.execute(f'PRAGMA synchronous={level}')

    event.listen(engine, 'connect', connect)
    return engine


def keep_private(path: pathlib.Path) -> None:
    """Create a file that only its owner may access, unless it exists.

    The file of an SQLite database may contain the passwords of the cells.
    SQLite gives the files beside it the same mode.

    :param path: nothing is created if its directory does not exist
    """
    with contextlib.suppress(FileExistsError, FileNotFoundError,
                             NotADirectoryError, PermissionError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _set_log_level(debug: int) -> None:
    """Set the log level of SQLAlchemy by ``connection_debug``."""
    logger = logging.getLogger('sqlalchemy.engine')
    level = (logging.DEBUG if debug >= 100 else
             logging.INFO if debug >= 50 else logging.WARNING)
    # A change clears what all loggers know of their levels.
    if logger.level != level:
        logger.setLevel(level)


def _connect(
    engine: sa.Engine, attempts_max: int, interval_s: float,
    clock: Clock,
) -> None:
    """Open a first connection.

    :param attempts_max: the number of attempts; 0 for none, -1 for no limit
    """
    conditions = Conditions(LOG, clock.monotonic)
    failing = (f'Connection to the {engine.dialect.name} database failed; '
               f'trying again every {interval_s} s')
    for number in itertools.count(1) if attempts_max else ():
        try:
            engine.connect().close()
            conditions.end(failing)
            return
        except sa.exc.OperationalError:
            if number == attempts_max:
                raise
            conditions.occur(failing)
            clock.sleep(interval_s)


#: Seconds during which a connection counts as good after it was checked.
TRUSTED_S = 1.0

#: Questions whether a server only reads. It may have been the primary when the
#: connection was opened, and a connection that never writes would stay there.
_READ_ONLY = {
    'postgresql': 'SHOW transaction_read_only',
    **dict.fromkeys(mysql.DIALECTS, 'SELECT @@global.read_only')}

_PID, _CHECKED_AT = 'cellsched_pid', 'cellsched_checked_at'
_GENERATION, _WORKED = 'cellsched_generation', 'cellsched_worked'


def replace_dead_connections(engine: sa.Engine, clock: Clock) -> None:
    """Make an engine check connections now and then at their checkout.

    ``pool_pre_ping`` checks a connection at each checkout, which costs each
    transaction a round trip. Here a connection that was opened or checked
    within ``TRUSTED_S`` is not checked; if it is lost, the next transaction on
    it fails. A connection to a server that only reads is replaced, as another
    server may be the primary now. The new one is used even if it only reads.

    If a connection fails that has worked before, the server was usually
    restarted or has another role, so all other connections are then replaced
    without a check. A failed connection that is new says nothing about the
    others: behind a proxy it may be the only one to a bad server.
    """
    dialect = engine.dialect
    #: Number of times at which all connections became outdated.
    generation = 0

    def connect(connection: Any, record: Any) -> None:
        record.info[_PID] = os.getpid()
        record.info[_CHECKED_AT] = clock.monotonic()
        record.info[_GENERATION] = generation

    def checkout(connection: Any, record: Any, proxy: Any) -> None:
        if record.info[_PID] != os.getpid():
            raise sa.exc.DisconnectionError(
                'it was opened before this process was forked')
        if record.info.get(_WORKED) and (
                record.info[_GENERATION] != generation):
            raise sa.exc.DisconnectionError(
                'another connection has failed since it was opened')
        if clock.monotonic() - record.info[_CHECKED_AT] < TRUSTED_S:
            return
        try:
            only_reads = _check(connection, dialect)
        except dialect.loaded_dbapi.Error as exc:
            raise sa.exc.DisconnectionError(str(exc)) from exc
        if only_reads:
            raise sa.exc.DisconnectionError('its server only reads')
        record.info[_CHECKED_AT] = clock.monotonic()

    def checkin(connection: Any, record: Any) -> None:
        record.info[_WORKED] = True

    def invalidate(connection: Any, record: Any, error: Any) -> None:
        nonlocal generation
        if (record.info.get(_WORKED)
                and record.info[_GENERATION] == generation):
            generation += 1

    event.listen(engine, 'connect', connect)
    event.listen(engine, 'checkout', checkout)
    event.listen(engine, 'checkin', checkin)
    event.listen(engine, 'invalidate', invalidate)


def _check(connection: Any, dialect: Any) -> bool:
    """Use a connection of a driver; return whether its server only reads."""
    question = _READ_ONLY.get(dialect.name)
    if question is None:
        dialect.do_ping(connection)
        return False
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(question)
        [value] = cursor.fetchone()
    return value in ('on', 1)


#: The most calls in a comment, the innermost first.
_CALLS_MAX = 3


def comment_statements(engine: sa.Engine) -> None:
    """Make an engine add the calling code to each statement as a comment."""
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
    # Module names contain no character that a driver reads as a parameter.
    return '; '.join(
        f'{module}.{function}:{line}'
        for module, function, line in itertools.islice((
            each for each in frames
            if each[0] != __name__
            and each[0].partition('.')[0] != 'sqlalchemy'), _CALLS_MAX))
