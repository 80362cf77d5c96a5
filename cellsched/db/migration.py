# SPDX-License-Identifier: Apache-2.0
"""Upgrades of schemas by alembic."""

import functools
import importlib.resources
import threading
from typing import Any

from alembic import command
from alembic import config as alembic_config
from alembic import context as alembic_context
from alembic import op
from alembic.runtime import migration
from alembic import script
from alembic import util
import sqlalchemy as sa

from cellsched.db import mysql
from cellsched.db import postgresql
from cellsched.db.schema import Schema
from cellsched.db import session
from cellsched.db import tokens
from cellsched import exception
from cellsched import urls

#: Seconds to wait for another process that upgrades the same database, and
#: between two looks.
WAIT_S = 300.0
_INTERVAL_S = 0.5

#: Errors of a transaction that another process made superfluous.
_LOST = (exception.ConstraintViolated, exception.TransactionLost,
         util.CommandError)

#: Attempts after such an error.
_ATTEMPTS_MAX = 3

#: Locks of databases, by dialect. In SQLite, a transaction locks the file.
LOCKS: dict[str, Any] = {
    'postgresql': postgresql, **dict.fromkeys(mysql.DIALECTS, mysql)}

#: Held during a migration: alembic keeps it in module globals.
_LOCK = threading.Lock()


def upgrade(
    database: session.Database, schema: Schema, version: str
) -> None:
    """Upgrade a database to a version; existing rows are kept.

    An upgrade that was cut off can be repeated. If another process upgrades
    the database, this one waits for it.

    :raises cellsched.exception.InvalidField: the version, or the current
        version of the database, is unknown
    :raises cellsched.exception.WrongDatabase: a table of another program or
        release has the name of one of the schema
    :raises cellsched.exception.DatabaseBusy: another process takes too long
    """
    ends_at = database.clock.monotonic() + WAIT_S
    lost = 0
    with database.for_long_statements() as unlimited:
        if unlimited.engine.dialect.name in mysql.DIALECTS:
            mysql.accept_repetition(unlimited.engine)
        while True:
            try:
                with unlimited.writer() as connection:
                    lock = LOCKS.get(connection.dialect.name)
                    if lock is None or lock.take_lock(connection):
                        _upgrade(connection, schema, version)
                        return
                    holder = lock.lock_holder(connection)
            except _LOST:
                # Processes at two nodes of a Galera cluster do not wait for
                # each other. Their definitions are executed one after the
                # other, and one of them commits the version.
                lost += 1
                if lost == _ATTEMPTS_MAX:
                    raise
                continue
            # Nothing is held during the wait: the lock of PostgreSQL belongs
            # to a transaction.
            if database.clock.monotonic() >= ends_at:
                raise exception.DatabaseBusy(
                    f'The {schema.name} database at {urls.mask(database.url)}'
                    f' is not upgraded: for {WAIT_S:.0f} s, connection '
                    f'{holder} of another process has upgraded it; wait for '
                    'its end, or end this connection at the server, and '
                    'repeat the command.')
            database.clock.sleep(_INTERVAL_S)


def _upgrade(
    connection: sa.Connection, schema: Schema, version: str
) -> None:
    known = versions(schema.package)
    current = migration.MigrationContext.configure(
        connection, opts={'version_table': schema.version_table},
    ).get_current_revision()
    if current == known[0] and version in ('head', current):
        return
    for each in (version, current):
        if each not in (None, 'head', *known):
            raise exception.InvalidField(
                where=f'the {schema.name} schema', field='version',
                problem=f'unknown version {each!r}',
                expected=f'one of {", ".join(known)}')
    config = _config(schema.package)
    config.attributes.update(connection=connection, schema=schema)
    with _LOCK:
        command.upgrade(config, version)


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
    schema = attributes['schema']
    alembic_context.configure(
        connection=attributes['connection'], render_as_batch=True,
        target_metadata=schema.metadata, version_table=schema.version_table)
    with alembic_context.begin_transaction():
        alembic_context.run_migrations()


def create_tables(metadata: sa.MetaData) -> None:
    """Create the tables and indexes of a version; called by the version.

    On MariaDB and MySQL, tables of an upgrade that was cut off stay.

    :raises cellsched.exception.WrongDatabase: another program or release has
        made a table of this name
    """
    connection = op.get_bind()
    # A comparison of databases creates the tokens before the schema.
    mysql.create_tables(connection, [
        table for table in metadata.sorted_tables
        if table.name != tokens.NAME or not tokens.is_ready(connection)])
    if connection.dialect.name not in mysql.DIALECTS:
        return
    tables = mysql.unexpected_tables(connection, metadata)
    if tables:
        raise exception.WrongDatabase(
            schema=alembic_context.config.attributes['schema'].name,
            url=urls.mask(str(connection.engine.url)), found=(
                'tables of another program or release, which lack columns or '
                f'have another collation: {", ".join(tables)}. If an upgrade '
                'was cut off in release 1.0, drop these tables and repeat the '
                'command'))
