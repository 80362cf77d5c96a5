# SPDX-License-Identifier: Apache-2.0
"""Tables of the claims database in release 1.0."""

from typing import Any

from alembic import op
import sqlalchemy as sa

from cellsched.db import migration
from cellsched.db import mysql

revision = '9e3d1f70c5a8'
down_revision = None

LANES = 32
GROUP_LOCKS = 64
ENGINE: dict[str, Any] = {
    'mysql_engine': 'InnoDB', 'mysql_charset': mysql.CHARSET}
METADATA = sa.MetaData()


def _ascii(length):
    return sa.String(length).with_variant(
        sa.String(length, collation='C'), 'postgresql')


def _table(name, *parts):
    return sa.Table(name, METADATA, *parts, **ENGINE)


_table(
    'providers',
    sa.Column('uuid', _ascii(36), primary_key=True),
    sa.Column('consumers', sa.Integer, nullable=False),
    sa.Column('lane', sa.Integer, nullable=False),
    sa.Column('position', sa.BigInteger, nullable=False),
    sa.Index('providers_lane_position_idx', 'lane', 'position'),
)

_table(
    'inventories',
    sa.Column('provider', _ascii(36), primary_key=True),
    sa.Column('resource_class', _ascii(255), primary_key=True),
    sa.Column('total', sa.BigInteger, nullable=False),
    sa.Column('reserved', sa.BigInteger, nullable=False),
    sa.Column('allocation_ratio', sa.Double, nullable=False),
    sa.Column('min_unit', sa.BigInteger, nullable=False),
    sa.Column('max_unit', sa.BigInteger, nullable=False),
    sa.Column('step_size', sa.BigInteger, nullable=False),
    sa.Column('capacity', sa.BigInteger, nullable=False),
    sa.Column('used', sa.BigInteger, nullable=False),
)

_table(
    'allocations',
    sa.Column('consumer', _ascii(36), primary_key=True),
    sa.Column('ordinal', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('provider', _ascii(36), nullable=False),
    sa.Column('resource_class', _ascii(255), nullable=False),
    sa.Column('amount', sa.BigInteger, nullable=False),
    sa.Column('project_id', sa.String(255)),
    sa.Column('user_id', sa.String(255)),
)

_table(
    'claim_members',
    sa.Column('consumer', _ascii(36), primary_key=True),
    sa.Column('group_uuid', _ascii(36), nullable=False),
    sa.Column('member', _ascii(36), nullable=False),
    sa.Column('host', sa.String(255), nullable=False),
    sa.Index('claim_members_group_uuid_idx', 'group_uuid'),
)

_table(
    'provider_trees',
    sa.Column('provider', _ascii(36), primary_key=True),
    sa.Column('root', _ascii(36), nullable=False),
    sa.Index('provider_trees_root_idx', 'root'),
)

_table(
    'provider_traits',
    sa.Column('provider', _ascii(36), primary_key=True),
    sa.Column('trait', _ascii(255), primary_key=True),
)

_locks = _table(
    'claim_group_locks',
    sa.Column('number', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('times', sa.BigInteger, nullable=False),
)

_lanes = _table(
    'feed_lanes',
    sa.Column('lane', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('position', sa.BigInteger, nullable=False),
)


def upgrade():
    migration.create_tables(METADATA)
    op.bulk_insert(
        _lanes, [{'lane': lane, 'position': 0} for lane in range(LANES)])
    op.bulk_insert(
        _locks,
        [{'number': number, 'times': 0} for number in range(GROUP_LOCKS)])
