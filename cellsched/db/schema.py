# SPDX-License-Identifier: Apache-2.0
"""Schemas: what tables a database is to have, and what version it has."""

import dataclasses
import functools
from typing import Any

import sqlalchemy as sa

from cellsched.db import session
from cellsched import exception
from cellsched import urls

#: Schemas that a database may have both of.
_BESIDE = {'API': 'claims', 'claims': 'API'}


@dataclasses.dataclass(frozen=True)
class Schema:
    """A schema with its history.

    :param name: whose it is: ``API``, ``cell`` or ``claims``
    :param package: the package whose ``migrations`` directory holds the
        history
    :param metadata: the tables as they are to be
    :param head: the newest version of the history
    """

    name: str
    package: str
    metadata: sa.MetaData
    head: str

    @property
    def version_table(self) -> str:
        """Histories may share a database, so each has a table of its own."""
        return _version_table(self.name)

    def sync(
        self, database: session.Database, version: str = 'head'
    ) -> None:
        """Bring a database to a version; what is there already stays.

        :raises cellsched.exception.InvalidField: no such version, or the
            database has one that is not known here
        :raises cellsched.exception.WrongDatabase: tables of something else
            are there
        """
        self.check_place(database)
        # Every service checks its schemas, and none needs alembic for it,
        # which takes as long to import as all that is ours.
        from cellsched.db import migration

        migration.upgrade(
            database, migration.History(
                self.name, self.package, self.version_table, self.metadata),
            version)

    def version(self, database: session.Database) -> str | None:
        """Return the version that a database has; None if it is empty."""
        if not database.exists():
            return None
        try:
            with database.reader() as connection:
                version: str | None = connection.execute(
                    self._version).scalar_one_or_none()
        except exception.SchemaOutOfDate:
            # There is no such table.
            return None
        return version

    @functools.cached_property
    def _version(self) -> sa.Select[Any]:
        # The form of the table is documented by alembic.
        return sa.select(sa.column('version_num', sa.String)).select_from(
            sa.table(self.version_table))

    def check_place(self, database: session.Database) -> None:
        """Make sure that a database is empty, or has this schema.

        The claim store's may be beside that of the API.

        :raises cellsched.exception.WrongDatabase: it has other tables
        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """
        if not database.exists():
            return
        with database.reader() as connection:
            tables = set(sa.inspect(connection).get_table_names())
        if not tables or self.version_table in tables or (
                _version_table(_BESIDE.get(self.name)) in tables):
            return
        for name in session.SYNC_COMMANDS:
            if _version_table(name) in tables:
                found = f'the tables of the {name} schema'
                break
        else:
            found = f'{len(tables)} other tables, such as {min(tables)}'
        raise exception.WrongDatabase(
            schema=self.name, url=urls.mask(database.url), found=found)

    def check(self, database: session.Database) -> None:
        """Make sure that a database is up to date.

        :raises cellsched.exception.SchemaOutOfDate: names the command that
            mends it
        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """
        version = self.version(database)
        if version != self.head:
            raise exception.SchemaOutOfDate(
                schema=self.name, url=urls.mask(database.url),
                version=version or 'none', expected=self.head,
                command=session.SYNC_COMMANDS[self.name])


def _version_table(name: str | None) -> str:
    return f'alembic_version_{name or ""}'.lower()
