# SPDX-License-Identifier: Apache-2.0
"""Databases for tests: SQLite files that have their schema already.

They are fixtures of the ``fixtures`` library, which is for tests only::

    database = self.useFixture(databases.APIDatabase()).database
"""

import pathlib
from typing import ClassVar

import fixtures

from cellsched.claims.sql import schema as claims
from cellsched.clock import Clock
from cellsched.db import api
from cellsched.db import cell
from cellsched.db.schema import Schema
from cellsched.db import session
from cellsched.standalone import sqlite_template

#: Tests do not need durable writes.
_OPTIONS = {'sqlite_synchronous': False}


class _Database(fixtures.Fixture):
    """A fixture with a new database, which is deleted after the test.

    :ivar database: the database
    :ivar url: the URL of the database

    :param clock: the clock of the database; by default the machine's
    """

    schema: ClassVar[Schema]

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or Clock()

    def _setUp(self) -> None:
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        path = directory / f'{self.schema.name}.sqlite'
        sqlite_template.create(path, self.schema)
        self.url = f'sqlite:///{path}'
        self.database = session.Database(
            self.url, self.schema.name, _OPTIONS, clock=self._clock)
        self.addCleanup(self.database.close)


class APIDatabase(_Database):
    """A fixture with an API database."""

    schema = api.SCHEMA


class ClaimsDatabase(_Database):
    """A fixture with the database of the claim store ``sql``."""

    schema = claims.SCHEMA


class CellDatabase(_Database):
    """A fixture with the database of a cell, or of cell0."""

    schema = cell.SCHEMA
