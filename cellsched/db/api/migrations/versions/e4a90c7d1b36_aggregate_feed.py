# SPDX-License-Identifier: Apache-2.0
"""A feed of aggregates."""

from alembic import op
import sqlalchemy as sa

revision = 'e4a90c7d1b36'
down_revision = '7c1e5a0d3b42'


def upgrade():
    op.add_column('aggregates', sa.Column('lane', sa.Integer()))
    op.add_column('aggregates', sa.Column('position', sa.BigInteger()))
    op.create_index(
        'aggregates_lane_position_idx', 'aggregates', ['lane', 'position'])
    lanes = op.create_table(
        'aggregate_lanes',
        sa.Column('lane', sa.Integer(), autoincrement=False, nullable=False),
        sa.Column('position', sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint('lane'),
        mysql_engine='InnoDB',
    )
    op.bulk_insert(lanes, [{'lane': 0, 'position': 0}])
