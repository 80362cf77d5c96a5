# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL: settings of psycopg2 and psycopg 3."""

from typing import Any

import sqlalchemy as sa

from cellsched import exception

_THRESHOLD = 'prepare_threshold'

#: Value of ``prepare_threshold`` in a URL for "never".
_NEVER = 'none'

#: Number of an advisory lock, which belongs to one database.
_LOCK = 2_017_030_817

_SEE_COMMITS = sa.text('SET TRANSACTION ISOLATION LEVEL READ COMMITTED')

_TAKE_LOCK = sa.select(sa.func.pg_try_advisory_xact_lock(_LOCK))

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
    if _THRESHOLD not in url.query or url.get_driver_name() != 'psycopg':
        return url, {}
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
