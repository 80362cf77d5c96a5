# SPDX-License-Identifier: Apache-2.0
"""Statements that undo themselves unless something holds. PostgreSQL only.

A transaction that may have to be rolled back needs somebody to ask it and to
decide, and so takes several round trips. A statement that is a transaction of
its own and fails takes one.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

#: What the server's own log says of such a statement.
_TEXT = 'cellsched: undone, to be tried again with care'

_INVALID_TEXT = '22P02'

#: SQLSTATEs of statements that lost to others or were refused, after which
#: their connections are as good as before: what is above, what is there
#: already, a serialization failure and a deadlock.
HARMLESS = frozenset({_INVALID_TEXT, '23505', '40001', '40P01'})


class StatementRefused(Exception):
    """The condition of a guarded statement did not hold; it did nothing."""


def insisting(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return a condition that makes its statement fail where it is false.

    The statement raises :class:`StatementRefused` then, if :func:`listen` was
    told of its engine. It is sure to only where the condition is asked for at
    all.
    """
    # PostgreSQL can fail a statement on a cast. What is cast depends on the
    # condition, or it would be cast when the statement is planned.
    text = sa.case(
        (condition, sa.literal_column("'1'", sa.Text())),
        else_=sa.literal_column(f"'{_TEXT}'", sa.Text()))
    return sa.cast(text, sa.Integer) == sa.literal_column('1', sa.Integer())


def listen(engine: sa.Engine) -> None:
    """Let an engine tell a refusal from an error.

    Who listens first decides: oslo.db logs what it does not know.
    """
    def tell(context: Any) -> None:
        error = context.original_exception
        if (state(error) == _INVALID_TEXT and f'"{_TEXT}"' in str(error)):
            raise StatementRefused()

    event.listen(engine, 'handle_error', tell)


def state(error: BaseException | None) -> str | None:
    """Return the SQLSTATE of a driver's error, whichever driver's it is."""
    return getattr(error, 'pgcode', None) or getattr(error, 'sqlstate', None)
