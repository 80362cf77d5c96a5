# SPDX-License-Identifier: Apache-2.0
"""Tables of the claims database in release 1.0."""

from alembic import op

from cellsched.claims.sql import schema
from cellsched.db import migration

revision = 'b7f24c90e1d3'
down_revision = None


def upgrade():
    migration.create_tables(schema.METADATA)
    op.bulk_insert(schema.FEED.table, schema.FEED.rows)
    op.bulk_insert(schema.group_locks, [
        {'number': number, 'times': 0}
        for number in range(schema.GROUP_LOCKS)])
