# SPDX-License-Identifier: Apache-2.0
"""How a database differs from the tables as they are to be."""

from alembic import autogenerate
from alembic.runtime import migration
import sqlalchemy as sa


def differences(database, schema):
    """Return what alembic would change to make the tables as they are to be.

    It compares tables, columns, types, whether they may be empty, indexes,
    unique constraints and foreign keys.
    """
    with database.reader() as connection:
        context = migration.MigrationContext.configure(connection, opts={
            'version_table': schema.version_table, 'compare_type': True})
        return autogenerate.compare_metadata(context, schema.metadata)


def constraints(database):
    """Return names of unique constraints and indexes, by table."""
    with database.reader() as connection:
        inspector = sa.inspect(connection)
        return {
            table: {each['name'] for each in (
                *inspector.get_unique_constraints(table),
                *inspector.get_indexes(table))}
            for table in inspector.get_table_names()}
