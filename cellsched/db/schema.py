# SPDX-License-Identifier: Apache-2.0
"""Schemas: what tables a database is to have, and what version it has."""

import dataclasses
import functools
from typing import Any

import sqlalchemy as sa

from cellsched.db import session
from cellsched import exception
from cellsched import urls


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
        return f'alembic_version_{self.name.lower()}'

    def sync(
        self, database: session.Database, version: str = 'head'
    ) -> None:
        """Bring a database to a version; what is there already stays.

        :raises cellsched.exception.InvalidField: no such version, or the
            database has one that is not known here
        :raises cellsched.exception.Cell0NotMapped: an API database is in use
            and has no cell0
        """
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
