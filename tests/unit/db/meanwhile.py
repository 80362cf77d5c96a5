# SPDX-License-Identifier: Apache-2.0
"""What others do between the statements of who reads."""

import contextlib

import sqlalchemy as sa


@contextlib.contextmanager
def between_statements(database, act):
    """Have something done before each statement on a database.

    Statements that this makes by itself are left alone.

    :param act: is called without arguments
    """
    acting = []

    def listen(*args):
        if not acting:
            acting.append(True)
            try:
                act()
            finally:
                acting.clear()

    sa.event.listen(database.engine, 'before_cursor_execute', listen)
    try:
        yield
    finally:
        sa.event.remove(database.engine, 'before_cursor_execute', listen)
