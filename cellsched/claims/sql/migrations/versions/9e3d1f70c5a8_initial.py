# SPDX-License-Identifier: Apache-2.0
"""Tables of the claims database as they were first."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '9e3d1f70c5a8'
down_revision = None

LANES = 32


def text(length):
    return sa.String(length).with_variant(
        sa.String(length, collation='C'), 'postgresql',
    ).with_variant(
        mysql.VARCHAR(length, charset='ascii', collation='ascii_bin'),
        'mysql', 'mariadb')


def upgrade():
    op.create_table(
        'providers',
        sa.Column('uuid', text(36), nullable=False),
        sa.Column('consumers', sa.Integer(), nullable=False),
        sa.Column('lane', sa.Integer(), nullable=False),
        sa.Column('position', sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint('uuid'),
        mysql_engine='InnoDB',
    )
    op.create_index(
        'providers_lane_position_idx', 'providers', ['lane', 'position'])
    op.create_table(
        'inventories',
        sa.Column('provider', text(36), nullable=False),
        sa.Column('resource_class', text(255), nullable=False),
        sa.Column('total', sa.BigInteger(), nullable=False),
        sa.Column('reserved', sa.BigInteger(), nullable=False),
        sa.Column('allocation_ratio', sa.Double(), nullable=False),
        sa.Column('min_unit', sa.BigInteger(), nullable=False),
        sa.Column('max_unit', sa.BigInteger(), nullable=False),
        sa.Column('step_size', sa.BigInteger(), nullable=False),
        sa.Column('capacity', sa.BigInteger(), nullable=False),
        sa.Column('used', sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint('provider', 'resource_class'),
        mysql_engine='InnoDB',
    )
    op.create_table(
        'allocations',
        sa.Column('consumer', text(36), nullable=False),
        sa.Column('ordinal', sa.Integer(), autoincrement=False,
                  nullable=False),
        sa.Column('provider', text(36), nullable=False),
        sa.Column('resource_class', text(255), nullable=False),
        sa.Column('amount', sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint('consumer', 'ordinal'),
        mysql_engine='InnoDB',
    )
    lanes = op.create_table(
        'feed_lanes',
        sa.Column('lane', sa.Integer(), autoincrement=False, nullable=False),
        sa.Column('position', sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint('lane'),
        mysql_engine='InnoDB',
    )
    op.bulk_insert(
        lanes, [{'lane': lane, 'position': 0} for lane in range(LANES)])
