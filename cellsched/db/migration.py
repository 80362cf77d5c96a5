# SPDX-License-Identifier: Apache-2.0
"""Schemas: their histories, brought up to date by alembic."""

import dataclasses
import functools
import importlib.resources
import threading

from alembic import command
from alembic import config as alembic_config
from alembic import context as alembic_context
from alembic.runtime import migration
from alembic import script
import sqlalchemy as sa

from cellsched.db import session
from cellsched import exception
from cellsched import urls

#: alembic keeps what it works on in globals of its module.
_LOCK = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Schema:
    """A schema with its history.

    :param name: whose it is: ``API``, ``cell`` or ``claims``
    :param package: the package whose ``migrations`` directory holds the
        history
    :param metadata: the tables as they are to be
    """

    name: str
    package: str
    metadata: sa.MetaData

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
        """
        with _LOCK, database.writer() as connection:
            known = _versions(self.package)
            for each in (version, self._current(connection)):
                if each not in (None, 'head', *known):
                    raise exception.InvalidField(
                        where=f'the {self.name} schema', field='version',
                        expected=f'one of {", ".join(known)}, not {each!r}')
            config = _config(self.package)
            config.attributes.update(connection=connection, schema=self)
            command.upgrade(config, version)

    def version(self, database: session.Database) -> str | None:
        """Return the version that a database has; None if it is empty."""
        if not database.exists():
            return None
        with database.reader() as connection:
            return self._current(connection)

    def head(self) -> str:
        """Return the newest version."""
        return _versions(self.package)[0]

    def check(self, database: session.Database) -> None:
        """Make sure that a database is up to date.

        :raises cellsched.exception.SchemaOutOfDate: names the command that
            mends it
        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """
        version, head = self.version(database), self.head()
        if version != head:
            raise exception.SchemaOutOfDate(
                schema=self.name, url=urls.mask(database.url),
                version=version or 'none', expected=head,
                command=session.SYNC_COMMANDS[self.name])

    def _current(self, connection: sa.Connection) -> str | None:
        return migration.MigrationContext.configure(
            connection, opts={'version_table': self.version_table},
        ).get_current_revision()


def _config(package: str) -> alembic_config.Config:
    config = alembic_config.Config()
    location = importlib.resources.files(package) / 'migrations'
    config.set_main_option(
        'script_location', str(location).replace('%', '%%'))
    return config


# Every version is a file that alembic compiles each time that it is asked.
@functools.cache
def _versions(package: str) -> tuple[str, ...]:
    """Return the versions, the newest first."""
    directory = script.ScriptDirectory.from_config(_config(package))
    return tuple(
        revision.revision for revision in directory.walk_revisions())


def run() -> None:
    """Run migrations; this is all that an ``env.py`` has to do."""
    attributes = alembic_context.config.attributes
    schema = attributes['schema']
    alembic_context.configure(
        connection=attributes['connection'], render_as_batch=True,
        target_metadata=schema.metadata, version_table=schema.version_table)
    with alembic_context.begin_transaction():
        alembic_context.run_migrations()
