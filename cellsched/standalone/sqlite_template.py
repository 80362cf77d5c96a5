# SPDX-License-Identifier: Apache-2.0
"""SQLite databases that have their schema already.

The migrations run once in a process; each database is a copy of what they
made.
"""

import functools
import pathlib
import tempfile

from cellsched import clock
from cellsched.db import engines
from cellsched.db.schema import Schema
from cellsched.db import session


@functools.cache
def content(schema: Schema) -> bytes:
    """Return the file of a database with the schema, and nothing in it."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / 'database.sqlite'
        database = session.Database(
            f'sqlite:///{path}', schema.name, {'sqlite_synchronous': False},
            clock=clock.Clock())
        try:
            schema.sync(database)
        finally:
            # Closing moves what was written from the log into the file.
            database.close()
        return path.read_bytes()


def create(path: pathlib.Path, schema: Schema) -> None:
    """Create the file of a database, with its schema and no rows."""
    engines.keep_private(path)
    path.write_bytes(content(schema))
