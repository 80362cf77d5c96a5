# SPDX-License-Identifier: Apache-2.0
"""The statements that a database is asked."""

import contextlib

import sqlalchemy as sa

from cellsched.db import session


@contextlib.contextmanager
def recorded(database):
    """Give a list of the statements that are made meanwhile.

    What begins a transaction is not in it, nor what asks for the time.
    """
    statements = []

    def listen(connection, cursor, text, parameters, context, many):
        if not (text.startswith('BEGIN')
                or text in session.QUERIES.values()):
            statements.append((text, parameters))

    sa.event.listen(database.engine, 'before_cursor_execute', listen)
    try:
        yield statements
    finally:
        sa.event.remove(database.engine, 'before_cursor_execute', listen)
