# SPDX-License-Identifier: Apache-2.0
"""Schemas: the tables of a database and its schema version."""

import dataclasses
import functools
from typing import Any

import sqlalchemy as sa

from cellsched.db import errors
from cellsched.db import session
from cellsched.db import tokens
from cellsched import exception
from cellsched import urls

#: Schemas that can share a database.
_BESIDE = {'API': 'claims', 'claims': 'API'}


@dataclasses.dataclass(frozen=True)
class Schema:
    """A schema with its history.

    :param name: ``API``, ``cell`` or ``claims``
    :param package: the package whose ``migrations`` directory contains the
        history
    :param metadata: the tables of the newest version
    :param head: the newest version
    """

    name: str
    package: str
    metadata: sa.MetaData
    head: str

    @property
    def version_table(self) -> str:
        """The table of the version; schemas that share a database differ."""
        return _version_table(self.name)

    def sync(self, database: session.Database, version: str = 'head') -> None:
        """Upgrade a database to a version; existing rows are kept.

        :raises cellsched.exception.InvalidField: the version, or the current
            version of the database, is unknown
        :raises cellsched.exception.WrongDatabase: the database has tables of
            another program or schema
        """
        self.check_place(database)
        # Imported here: every service checks its schemas without alembic,
        # whose import takes as much CPU as all modules of this project.
        from cellsched.db import migration

        migration.upgrade(database, self, version)

    def version(self, database: session.Database) -> str | None:
        """Return the version of a database; None if it is empty."""
        if not database.exists():
            return None
        with database.reader() as connection:
            # A query of a missing table would fail, and oslo.db logs the
            # traceback of an error that it does not know.
            if not sa.inspect(connection).has_table(self.version_table):
                return None
            version: str | None = connection.execute(
                self._version).scalar_one_or_none()
            return version

    @functools.cached_property
    def _version(self) -> sa.Select[Any]:
        # alembic documents the columns of this table.
        return sa.select(sa.column('version_num', sa.String)).select_from(
            sa.table(self.version_table))

    def check_place(self, database: session.Database) -> None:
        """Check that a database is empty or has this schema.

        The API schema and the claims schema can share a database.

        :raises cellsched.exception.WrongDatabase: it has other tables
        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """
        if not database.exists():
            return
        with database.reader() as connection:
            tables = set(sa.inspect(connection).get_table_names())
        # A comparison of databases creates it before the schema.
        tables.discard(tokens.NAME)
        if not tables or self.version_table in tables or (
                _version_table(_BESIDE.get(self.name)) in tables):
            return
        for name in errors.SYNC_COMMANDS:
            if _version_table(name) in tables:
                found = f'the tables of the {name} schema'
                break
        else:
            found = f'{len(tables)} other tables, such as {min(tables)}'
        raise exception.WrongDatabase(
            schema=self.name, url=urls.mask(database.url), found=found)

    def check(self, database: session.Database) -> None:
        """Check that a database has the newest version.

        :raises cellsched.exception.SchemaOutOfDate: names the command that
            upgrades it
        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """
        version = self.version(database)
        if version != self.head:
            raise exception.SchemaOutOfDate(
                schema=self.name, url=urls.mask(database.url),
                version=version or 'none', expected=self.head,
                command=errors.SYNC_COMMANDS[self.name])


def _version_table(name: str | None) -> str:
    return f'alembic_version_{name or ""}'.lower()
