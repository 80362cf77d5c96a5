# SPDX-License-Identifier: Apache-2.0
"""Tables of the API database in release 1.0."""

from alembic import op

from cellsched.db.api import models
from cellsched.db import migration

revision = '1a0c5e7d9b32'
down_revision = None


def upgrade():
    migration.create_tables(models.METADATA)
    op.bulk_insert(models.FEED.table, models.FEED.rows)
