# SPDX-License-Identifier: Apache-2.0
"""Upgrades of schemas by alembic."""

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

#: alembic keeps the current migration in module globals.
_LOCK = threading.Lock()


class History(NamedTuple):
    """The history of a schema.

    :param name: name of the schema
    :param package: its ``migrations`` directory contains the versions
    :param version_table: table that stores the version of a database
    :param metadata: the tables of the newest version
    """

    name: str
    package: str
    version_table: str
    metadata: sa.MetaData


def upgrade(
    database: session.Database, history: History, version: str
) -> None:
    """Upgrade a database to a version; existing rows are kept.

    :raises cellsched.exception.InvalidField: the version, or the current
        version of the database, is unknown
    """
    with (_LOCK, database.for_long_statements() as unlimited,
          unlimited.writer() as connection):
        known = versions(history.package)
        current = _current(history, connection)
        if current == known[0] and version in ('head', current):
            return
        for each in (version, current):
            if each not in (None, 'head', *known):
                raise exception.InvalidField(
                    where=f'the {history.name} schema', field='version',
                    problem=f'unknown version {each!r}',
                    expected=f'one of {", ".join(known)}')
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
    config.set_main_option('script_location', str(location).replace('%', '%%'))
    return config


# Cached: alembic compiles all version files at each call.
@functools.cache
def versions(package: str) -> tuple[str, ...]:
    """Return the versions of a history, the newest first."""
    directory = script.ScriptDirectory.from_config(_config(package))
    return tuple(revision.revision for revision in directory.walk_revisions())


def run() -> None:
    """Run the migrations; called by each ``env.py``."""
    attributes = alembic_context.config.attributes
    history = attributes['history']
    alembic_context.configure(
        connection=attributes['connection'], render_as_batch=True,
        target_metadata=history.metadata, version_table=history.version_table)
    with alembic_context.begin_transaction():
        alembic_context.run_migrations()
