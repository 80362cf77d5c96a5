# SPDX-License-Identifier: Apache-2.0
"""Tables of a cell's database in release 1.0."""

from alembic import op

from cellsched.db.cell import models
from cellsched.db import migration

revision = '5e9a2d7c41b6'
down_revision = None


def upgrade():
    migration.create_tables(models.METADATA)
    op.bulk_insert(models.FEED.table, models.FEED.rows)
