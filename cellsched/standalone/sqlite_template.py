# SPDX-License-Identifier: Apache-2.0
"""Templates of SQLite databases, which have the tables of a schema.

The migrations run once in a process, and each database is a copy of the
result.
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
    """Return the content of the file of an empty database."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / 'database.sqlite'
        database = session.Database(
            f'sqlite:///{path}', schema.name, {'sqlite_synchronous': False},
            clock=clock.Clock())
        try:
            schema.sync(database)
        finally:
            # Closing moves the data from the log into the file.
            database.close()
        return path.read_bytes()


def create(path: pathlib.Path, schema: Schema) -> None:
    """Create the file of a database, with its schema and no rows."""
    engines.keep_private(path)
    path.write_bytes(content(schema))
