# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL: settings of psycopg2 and psycopg 3, of sessions, and poolers.

A session of a client can have several connections to the server, one after
the other, behind a pooler such as PgBouncer. Then a setting of the session
reaches any connection, also of other clients, and a prepared statement may
not exist. So each transaction sets the limits for itself there, in the message
of its first statement, and no statement is prepared.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import functools
from typing import Any
import zlib

from oslo_log import log
import sqlalchemy as sa

from cellsched import exception

LOG = log.getLogger(__name__)

_THRESHOLD = 'prepare_threshold'

#: psycopg's default.
_DEFAULT_THRESHOLD = 5

#: Value of ``prepare_threshold`` in a URL for "never".
_NEVER = 'none'

#: Number of an advisory lock, which belongs to one database.
_LOCK = 2_017_030_817

_SEE_COMMITS = sa.text('SET TRANSACTION ISOLATION LEVEL READ COMMITTED')

_TAKE_LOCK = sa.select(sa.func.pg_try_advisory_xact_lock(_LOCK))

_LIMIT_WAIT = sa.text(
    "SELECT set_config('lock_timeout', :wait_ms, true), "
    "set_config('idle_in_transaction_session_timeout', :idle_ms, true)")
#: Milliseconds after which the server takes a lock from its holder.
_HELD_MS = 120_000

_AWAIT_LOCK = sa.text('SELECT pg_advisory_xact_lock(:key)')

_LOCK_HOLDER = sa.text(
    'SELECT pid FROM pg_locks JOIN pg_database ON oid = database '
    "WHERE locktype = 'advisory' AND datname = current_database() "
    f'AND classid = 0 AND objid = {_LOCK} AND granted')


def connect_arguments(url: sa.URL) -> tuple[sa.URL, dict[str, Any]]:
    """Split a URL into a URL and arguments of psycopg 3's ``connect``.

    psycopg 3 prepares a statement after ``prepare_threshold`` executions. It
    expects a number or None, and a URL contains only text.

    :raises cellsched.exception.ConfigurationInvalid: the value is neither
    """
    if url.get_driver_name() != 'psycopg':
        return url, {}
    if _THRESHOLD not in url.query:
        return url, {_THRESHOLD: _DEFAULT_THRESHOLD}
    # oslo.db's connection_parameters are appended, so the last value wins.
    text = url.normalized_query[_THRESHOLD][-1]
    if text.lower() == _NEVER:
        threshold = None
    elif text.isascii() and text.isdigit() and len(text) < 10:
        threshold = int(text)
    else:
        raise exception.ConfigurationInvalid(
            field=_THRESHOLD,
            problem=f'{text[:50]!r} is not valid',
            expected=f'a whole number of at least 0, or {_NEVER}')
    return url.difference_update_query([_THRESHOLD]), {_THRESHOLD: threshold}


def set_up(
    connection: Any, driver: Any, settings: Mapping[str, str],
    threshold: int | None,
) -> None:
    """Make the settings hold in each transaction of a new connection.

    :param connection: the connection of the driver, which prepares nothing
    :param driver: the module of the driver
    :param settings: values by the names of PostgreSQL's settings
    :param threshold: executions of a statement before psycopg prepares it
    """
    # 1. Only a pooler gives its clients an id that is not the server's. Behind
    #    a pooler the settings end with this transaction.
    own = connection.info.backend_pid
    texts = ', '.join(f"set_config('{name}', %s, pg_backend_pid() <> %s)"
                      for name in settings)
    with connection.cursor() as cursor:
        cursor.execute(f'SELECT pg_backend_pid() <> %s, {texts}', [
            own, *(each for value in settings.values()
                   for each in (value, own))])
        is_pooled = cursor.fetchone()[0]
    connection.commit()
    is_psycopg = hasattr(driver, 'ClientCursor')
    if not is_pooled:
        if is_psycopg:
            connection.prepare_threshold = threshold
        return
    # 2. Behind a pooler, set them in each transaction.
    connection.cursor_factory = _limited_cursor(
        driver.ClientCursor if is_psycopg else driver.extensions.cursor,
        ''.join(f"SET LOCAL {name} = '{value}';"
                for name, value in settings.items()))


@functools.cache
def _limited_cursor(base: type[Any], prefix: str) -> type[Any]:
    """Return a class of cursors that begin each transaction with a text.

    The text and the first statement are one message, and so one transaction
    if there is no other.

    :param base: a class of cursors that put parameters into the text, because
        a message with parameters has one statement only
    """
    # This function is cached, so the line appears once.
    LOG.info('The database is behind a pooler: no statement is prepared, and '
             'each transaction begins with %s', prefix)

    class LimitedCursor(base):
        """Sets the limits at the begin of each transaction."""

        def execute(
            self, query: str, params: Any = None, **options: Any
        ) -> Any:
            if self._is_in_transaction():
                return super().execute(query, params, **options)
            result = super().execute(prefix + query, params, **options)
            if result is not None:
                # psycopg 3 has a result for each statement; psycopg2 has the
                # last one.
                while self.nextset():
                    pass
            return result

        def executemany(
            self, query: str, params_seq: Iterable[Any], **options: Any
        ) -> Any:
            if self._is_in_transaction():
                return super().executemany(query, params_seq, **options)
            if self.connection.autocommit:
                for params in params_seq:
                    self.execute(query, params)
                return None
            super().execute(prefix)
            return super().executemany(query, params_seq, **options)

        def _is_in_transaction(self) -> bool:
            return bool(self.connection.info.transaction_status)

    return LimitedCursor


def script_cursor(connection: Any, driver: Any) -> Any:
    """Return a cursor that sends several statements in one message.

    :param connection: the connection of the driver
    """
    client = getattr(driver, 'ClientCursor', None)
    if client is None or issubclass(connection.cursor_factory, client):
        return connection.cursor()
    # Other cursors of psycopg send each statement in a message of its own.
    return client(connection)


def take_lock(connection: sa.Connection) -> bool:
    """Take a lock of the database until the end of the transaction.

    Call it first in the transaction, which then sees what the last owner of
    the lock committed, with any default isolation level.
    """
    connection.execute(_SEE_COMMITS)
    return bool(connection.scalar(_TAKE_LOCK))


def lock_holder(connection: sa.Connection) -> int | None:
    """Return the process of the session with the lock of the database."""
    return connection.scalar(_LOCK_HOLDER)


def await_lock(connection: sa.Connection, name: str, wait_s: float) -> bool:
    """Hold a lock of the database until the end of the transaction.

    The server's error of a lock timeout is raised if it is not free in time.
    """
    connection.execute(_LIMIT_WAIT, {
        'wait_ms': str(round(1000 * wait_s)), 'idle_ms': str(_HELD_MS)})
    connection.execute(_AWAIT_LOCK, {'key': zlib.crc32(name.encode())})
    return True


def release_lock(connection: sa.Connection, name: str) -> None:
    """Do nothing: the lock is released by the end of the transaction."""
