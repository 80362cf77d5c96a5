# SPDX-License-Identifier: Apache-2.0
"""Databases whose next transaction loses its connection."""

import contextlib

from cellsched import exception


def lose(database, is_committed):
    """Lose the connection of the next transaction of a database.

    :param is_committed: whether the transaction is committed before
    """
    writer = database.writer

    @contextlib.contextmanager
    def losing():
        database.writer = writer
        error = exception.ConnectionLost(
            schema=database.schema, url='there', reason='it ended')
        with writer() as connection:
            yield connection
            if not is_committed:
                raise error
        raise error

    database.writer = losing
