# SPDX-License-Identifier: Apache-2.0
"""Statements that fail unless a condition holds. PostgreSQL only.

A transaction that is rolled back on a condition takes several round trips: the
client reads the condition and decides. A single statement that fails, as a
transaction of its own, takes one.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

#: Text of the failed cast, as it appears in the server's log.
_TEXT = 'cellsched: undone, to be tried again with care'

_INVALID_TEXT = '22P02'

#: SQLSTATEs after which a connection can still be used: a failed condition, a
#: unique violation, a serialization failure and a deadlock.
HARMLESS = frozenset({_INVALID_TEXT, '23505', '40001', '40P01'})


class StatementRefused(Exception):
    """The condition of a guarded statement was false; nothing changed."""


def insisting(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return a condition that makes its statement fail if it is false.

    The statement then raises :class:`StatementRefused`, provided that
    :func:`listen` was called for its engine and that the server evaluates the
    condition at all.
    """
    # A cast of an invalid text fails the statement. The text has to depend on
    # the condition; a constant would be cast when the statement is planned.
    text = sa.case(
        (condition, sa.literal_column("'1'", sa.Text())),
        else_=sa.literal_column(f"'{_TEXT}'", sa.Text()))
    return sa.cast(text, sa.Integer) == sa.literal_column('1', sa.Integer())


def listen(engine: sa.Engine) -> None:
    """Make an engine raise :class:`StatementRefused` for a false condition.

    Call it before oslo.db's listeners are added: the first listener that
    raises wins, and oslo.db logs errors that it does not know.
    """
    def tell(context: Any) -> None:
        error = context.original_exception
        if (state(error) == _INVALID_TEXT and f'"{_TEXT}"' in str(error)):
            raise StatementRefused()

    event.listen(engine, 'handle_error', tell)


def state(error: BaseException | None) -> str | None:
    """Return the SQLSTATE of an error of psycopg2 or psycopg 3."""
    return getattr(error, 'pgcode', None) or getattr(error, 'sqlstate', None)
