# SPDX-License-Identifier: Apache-2.0
"""Errors of drivers, SQLAlchemy and oslo.db, and this project's for them.

A server's error has a code: a SQLSTATE on PostgreSQL, a number on MariaDB and
MySQL, a result code in SQLite. The tables here say what each code means.
"""

import enum
import re
from typing import Any

from oslo_db import exception as db_exc
import sqlalchemy as sa
from sqlalchemy import event

from cellsched import exception
from cellsched import urls


class Kind(enum.Enum):
    """The meaning of a server's error."""

    #: The server rolled back in favor of another transaction. PostgreSQL does
    #: so with a stricter default isolation level, possibly at the commit;
    #: MariaDB does so with snapshot isolation.
    LOST = 'lost'
    #: A statement exceeded its limit, or an administrator canceled it.
    BUSY = 'busy'
    #: The connection, or its server, takes no further work. Another
    #: connection may lead to another server.
    CONNECTION = 'connection'
    #: A prepared statement is outdated, on this connection only.
    PLAN = 'plan'


#: SQLSTATEs of PostgreSQL, or their classes.
_STATES = {
    **dict.fromkeys((
        '40001',    # serialization failure
        '40P01',    # deadlock
    ), Kind.LOST),
    **dict.fromkeys((
        '55P03',    # lock timeout
        '57014',    # statement timeout, or canceled
    ), Kind.BUSY),
    **dict.fromkeys((
        '08',       # connection exceptions, and most errors of PgBouncer
        '25006',    # the server only reads: a standby, or a former primary
        '25P03',    # idle_in_transaction_session_timeout
        '25P04',    # transaction_timeout
        '26000',    # no such prepared statement, behind a pooler
        '42P05',    # prepared statement exists, behind a pooler
        '57P01',    # the server shuts down, or the session was terminated
        '57P02',    # the server crashed
        '57P03',    # the server starts
        '57P04',    # the database was dropped
        '57P05',    # idle_session_timeout
    ), Kind.CONNECTION),
}

#: Numbers of MariaDB and MySQL, and of their clients.
_NUMBERS = {
    **dict.fromkeys((
        1020,       # the record has changed, with snapshot isolation
        1213,       # deadlock, or a conflict in a cluster
    ), Kind.LOST),
    **dict.fromkeys((
        1205,       # lock timeout
        1317,       # canceled
        1969,       # statement timeout of MariaDB
        3024,       # statement timeout of MySQL
    ), Kind.BUSY),
    **dict.fromkeys((
        1040,       # too many connections
        1047,       # the node of a cluster has no quorum, or starts
        1053,       # the server shuts down
        1080,       # the server closes the connection
        1152, 1158, 1159, 1160, 1161,    # the network failed
        1180,       # the commit failed, in a cluster
        1184,       # the connection was refused
        1792,       # the session only reads
        1836,       # the server only reads
        1927,       # the connection was killed
        2002, 2003, 2005,    # no connection
        2006, 2013, 2014, 2027, 2045, 2055,    # the connection was lost
        4031,       # the session was idle for too long
    ), Kind.CONNECTION),
}

#: An option forbids the statement. It counts if the option makes the whole
#: server read-only.
_FORBIDDEN, _READ_ONLY = 1290, re.compile('--(super[-_])?read[-_]only')

#: Codes of SQLite: a mistake in a statement, and a locked file or table.
_SQLITE_MISTAKE, _SQLITE_LOCKED = 1, (5, 6)

#: An error of PostgreSQL for many features that it lacks, and its text for a
#: statement on a table that has changed since the statement was prepared.
_NOT_SUPPORTED, _OUTDATED = '0A000', 'cached plan must not change result type'

#: Errors of a failed connection. SQLAlchemy raises its own two for statements
#: as well, and then they have a statement.
_UNREACHABLE = (
    db_exc.CantStartEngineError, db_exc.DBConnectionError,
    db_exc.DBNonExistentDatabase, sa.exc.InterfaceError,
    sa.exc.OperationalError, sa.exc.TimeoutError,
)

#: All errors of the two libraries.
_LIBRARIES = (
    sa.exc.SQLAlchemyError, db_exc.CausedByException,
    db_exc.BackendNotAvailable, db_exc.CantStartEngineError,
    db_exc.ColumnError, db_exc.ContextNotRequestedError,
    db_exc.DBInvalidUnicodeParameter, db_exc.InvalidSortKey,
    db_exc.NoEngineContextEstablished, db_exc.RetryRequest)

#: The message about a missing table of PostgreSQL, MySQL and SQLite, as
#: SQLAlchemy and as a driver gives it.
_MISSING_TABLE = re.compile(
    r'''(?:UndefinedTable\) |^)relation "(?P<table>[^"]+)" does not exist'''
    r'''|\(1146, "Table '[^'.]*\.(?P<mysql>[^']+)' doesn't exist"'''
    r'''|^no such table: (?P<sqlite>.+)''')

#: The text of PyMySQL about a connection that is closed.
_CLOSED = "(0, '')"

#: The command that upgrades a schema, by the schema's name.
SYNC_COMMANDS = {
    'API': 'cellsched-manage api_db sync',
    'cell': 'cellsched-manage db sync',
    'claims': 'cellsched-manage claims_db sync',
}


def kind(error: BaseException | None) -> Kind | None:
    """Return the meaning of a driver's error, or None if it has no code."""
    found, code, text = number(error), state(error), str(error)
    if sqlite_code(error) in _SQLITE_LOCKED:
        return Kind.BUSY
    if isinstance(found, int):
        if found == _FORBIDDEN:
            return Kind.CONNECTION if _READ_ONLY.search(text) else None
        return _NUMBERS.get(found)
    if code == _NOT_SUPPORTED and _OUTDATED in text:
        return Kind.PLAN
    return _STATES.get(code or '') or _STATES.get((code or '')[:2])


def state(error: BaseException | None) -> str | None:
    """Return the SQLSTATE of an error of psycopg2 or psycopg 3."""
    if isinstance(number(error), int):
        # PyMySQL has a SQLSTATE as well, which is less exact than its number.
        return None
    return getattr(error, 'pgcode', None) or getattr(error, 'sqlstate', None)


def number(error: BaseException | None) -> Any:
    """Return the number of an error of MariaDB or MySQL."""
    return next(iter(getattr(error, 'args', ())), None)


def sqlite_code(error: BaseException | None) -> int | None:
    """Return the primary result code of an error of SQLite."""
    code = getattr(error, 'sqlite_errorcode', None)
    return None if code is None else code & 0xff


def of_driver(exc: BaseException) -> BaseException:
    """Return the error of the driver in an error of a library."""
    inner = _wrapped(exc)
    return getattr(inner, 'orig', None) or inner


def _wrapped(exc: BaseException) -> BaseException:
    """Return the error of SQLAlchemy in an error of oslo.db."""
    return getattr(exc, 'inner_exception', None) or exc


def discards(exc: BaseException, driver: Any) -> bool:
    """Return whether a connection cannot be used after a driver's error.

    :param driver: the module of the driver
    """
    if not isinstance(exc, driver.Error):
        return False
    found = kind(exc)
    if found is None:
        # A driver itself has these two without the code of a server.
        return state(exc) is None and not _has_number(exc) and isinstance(
            exc, (driver.InterfaceError, driver.OperationalError))
    return found in (Kind.CONNECTION, Kind.PLAN)


def _has_number(exc: BaseException) -> bool:
    return bool(sqlite_code(exc)) or (
        isinstance(number(exc), int) and number(exc) != 0)


def listen(engine: sa.Engine) -> None:
    """Make an engine discard connections after errors that are permanent.

    SQLAlchemy knows only the errors of connections that are closed. Call it
    before oslo.db's listeners are added: these read the result.
    """
    driver = engine.dialect.loaded_dbapi

    def mark(context: Any) -> None:
        if (context.connection is not None
                and discards(context.original_exception, driver)):
            context.is_disconnect = True
        # engines.replace_dead_connections decides about the others.
        context.invalidate_pool_on_disconnect = False

    event.listen(engine, 'handle_error', mark)


def translate(
    exc: BaseException, schema: str, url: str, driver: Any
) -> exception.DatabaseError | None:
    """Return this project's error for another; None if it is no database's.

    :param schema: the schema's name, for the text
    :param url: the URL of the database, for the text
    :param driver: the module of the driver
    """
    if not isinstance(exc, (*_LIBRARIES, driver.Error, driver.Warning)):
        return None
    error, text = of_driver(exc), reason(exc, url)
    found = kind(error)
    if found is Kind.BUSY:
        return exception.DatabaseBusy(schema=schema, reason=text)
    if found in (Kind.LOST, Kind.PLAN) or isinstance(exc, db_exc.DBDeadlock):
        return exception.TransactionLost(schema=schema, reason=text)
    place: dict[str, Any] = {
        'schema': schema, 'url': urls.mask(url), 'reason': text}
    statement = getattr(_wrapped(exc), 'statement', None)
    if (discards(exc, driver)
            or getattr(_wrapped(exc), 'connection_invalidated', False)
            or (found is Kind.CONNECTION and statement is not None)):
        return exception.ConnectionLost(**place)
    if found is Kind.CONNECTION or (
            isinstance(exc, _UNREACHABLE) and statement is None
            and state(error) is None):
        return exception.DatabaseUnreachable(**place)
    table = _missing_table(exc, error)
    if table is not None and schema in SYNC_COMMANDS:
        return exception.SchemaOutOfDate(
            schema=schema, url=urls.mask(url), version='none',
            expected=f'one with the table {table}',
            command=SYNC_COMMANDS[schema])
    if isinstance(error, driver.IntegrityError) or isinstance(exc, (
            db_exc.DBConstraintError, db_exc.DBDuplicateEntry,
            db_exc.DBReferenceError)):
        return exception.ConstraintViolated(schema=schema, reason=text)
    return exception.DatabaseError(schema=schema, reason=text)


def is_mistake(ours: exception.DatabaseError) -> bool:
    """Return whether the cause of an error may be a mistake in the program.

    Such an error is raised with its cause, whose traceback is needed.
    """
    return type(ours) in (
        exception.ConstraintViolated, exception.DatabaseError)


def reason(exc: BaseException, url: str) -> str:
    """Return the first line of the driver's error, without secrets."""
    error = of_driver(exc)
    text = str(error).strip()
    if text == _CLOSED:
        text = 'the connection was closed'
    elif text in ('', 'None'):
        text = f'the driver gives no reason ({type(error).__name__})'
    line = text.splitlines()[0]
    password = sa.engine.make_url(url).password
    return line.replace(str(password), '****') if password else line


def _missing_table(exc: BaseException, error: BaseException) -> str | None:
    """Return the missing table that an error names, or None."""
    if isinstance(exc, db_exc.DBNonExistentTable):
        return str(exc.table)
    match = _MISSING_TABLE.search(str(error))
    return match and (match['table'] or match['mysql'] or match['sqlite'])
