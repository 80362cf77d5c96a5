# SPDX-License-Identifier: Apache-2.0
"""The table of the tokens by which databases are compared."""

from alembic import op
import sqlalchemy as sa

from cellsched.db import migration

revision = '5e9a2d7c41b6'
down_revision = '1c0e5b8f7a43'

METADATA = sa.MetaData()

sa.Table(
    'database_tokens', METADATA,
    sa.Column('token', sa.String(36), primary_key=True),
    sa.Column('written_at',
              sa.Float(53).with_variant(sa.Double(), 'mysql', 'mariadb'),
              nullable=False))


def upgrade():
    # A comparison before the first upgrade creates it, too.
    if not sa.inspect(op.get_bind()).has_table('database_tokens'):
        migration.create_tables(METADATA)
