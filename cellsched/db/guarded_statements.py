# SPDX-License-Identifier: Apache-2.0
"""Transactions of one round trip, which fail unless a condition holds.

A transaction that is rolled back on a condition usually takes several round
trips: the client reads the condition and decides. Its locks stay if the client
stops in between. A single message that fails, as a transaction of its own,
takes one round trip.
"""

from collections.abc import Mapping
import contextlib
from typing import Any

from cellsched.db.errors import number
from cellsched.db.errors import state
from cellsched.db import postgresql
from cellsched.db.session import Database

#: Text of the failed cast, as it appears in the server's log.
_TEXT = 'cellsched: undone, to be tried again with care'

_INVALID_TEXT = '22P02'

#: SQLSTATEs after which a connection can still be used: a failed condition, a
#: unique violation, a serialization failure and a deadlock.
HARMLESS = frozenset({_INVALID_TEXT, '23505', '40001', '40P01'})

#: The same of MariaDB; a failed condition is an unhandled SIGNAL.
_HARMLESS_NUMBERS = frozenset({1644, 1062, 1020, 1213})


class StatementRefused(Exception):
    """The condition of a guarded statement was false; nothing changed.

    The argument, if any, is the driver's error.
    """


def guard(condition: str) -> str:
    """Return an integer in SQL that is 1, and fails if a condition is false.

    :func:`execute` then raises :class:`StatementRefused`, provided that the
    server evaluates the condition at all.
    """
    # A cast of an invalid text fails the statement. The text has to depend on
    # the condition; a constant would be cast when the statement is planned.
    return (f"CAST(CASE WHEN {condition} THEN '1' ELSE '{_TEXT}' END "
            'AS integer)')


def execute(
    database: Database, text: str, parameters: Mapping[str, Any],
    is_script: bool = False,
) -> list[tuple[Any, ...]]:
    """Execute a transaction in one round trip; return the rows of its result.

    The driver executes it. On MariaDB, SQLAlchemy would begin a transaction
    around it, whose end is another round trip.

    :param text: on PostgreSQL a statement; on MariaDB a compound statement
        that begins and ends its transaction
    :param is_script: whether it is several statements, which PostgreSQL
        executes as a transaction; there is no result then
    :raises StatementRefused: a condition is false, a key exists, or the
        transaction lost to another one; nothing changed
    :raises cellsched.exception.DatabaseError: as a context of ``database``
    """
    with database.each_alone() as connection:
        dialect: Any = connection.dialect
        pooled = connection.connection
        cursor: Any = (
            postgresql.script_cursor(
                pooled.driver_connection, dialect.loaded_dbapi)
            if is_script else pooled.cursor())
        try:
            cursor.execute(text, parameters)
            return ([] if is_script or cursor.description is None
                    else list(cursor.fetchall()))
        except dialect.loaded_dbapi.Error as exc:
            if state(exc) in HARMLESS or number(exc) in _HARMLESS_NUMBERS:
                raise StatementRefused(exc) from None
            raise
        finally:
            with contextlib.suppress(dialect.loaded_dbapi.Error):
                cursor.close()
