# SPDX-License-Identifier: Apache-2.0
"""Histories of schemas, through which alembic brings databases."""

import functools
import importlib.resources
import threading
from typing import NamedTuple

from alembic import command
from alembic import config as alembic_config
from alembic import context as alembic_context
from alembic.runtime import migration
from alembic import script
import sqlalchemy as sa

from cellsched.db import session
from cellsched import exception

#: alembic keeps what it works on in globals of its module.
_LOCK = threading.Lock()


class History(NamedTuple):
    """The history of a schema.

    :param name: the schema's
    :param package: its ``migrations`` directory holds the versions
    :param version_table: where a database has its version
    :param metadata: the tables as they are to be
    """

    name: str
    package: str
    version_table: str
    metadata: sa.MetaData


def upgrade(
    database: session.Database, history: History, version: str
) -> None:
    """Bring a database to a version; what is there already stays.

    :raises cellsched.exception.InvalidField: no such version, or the database
        has one that is not known here
    """
    with _LOCK, database.writer() as connection:
        known = versions(history.package)
        for each in (version, _current(history, connection)):
            if each not in (None, 'head', *known):
                raise exception.InvalidField(
                    where=f'the {history.name} schema', field='version',
                    expected=f'one of {", ".join(known)}, not {each!r}')
        config = _config(history.package)
        config.attributes.update(connection=connection, history=history)
        command.upgrade(config, version)


def _current(history: History, connection: sa.Connection) -> str | None:
    return migration.MigrationContext.configure(
        connection, opts={'version_table': history.version_table},
    ).get_current_revision()


def _config(package: str) -> alembic_config.Config:
    config = alembic_config.Config()
    location = importlib.resources.files(package) / 'migrations'
    config.set_main_option(
        'script_location', str(location).replace('%', '%%'))
    return config


# Every version is a file that alembic compiles each time that it is asked.
@functools.cache
def versions(package: str) -> tuple[str, ...]:
    """Return the versions of a history, the newest first."""
    directory = script.ScriptDirectory.from_config(_config(package))
    return tuple(
        revision.revision for revision in directory.walk_revisions())


def run() -> None:
    """Run migrations; this is all that an ``env.py`` has to do."""
    attributes = alembic_context.config.attributes
    history = attributes['history']
    alembic_context.configure(
        connection=attributes['connection'], render_as_batch=True,
        target_metadata=history.metadata, version_table=history.version_table)
    with alembic_context.begin_transaction():
        alembic_context.run_migrations()
