# SPDX-License-Identifier: Apache-2.0
"""Tables of the SQL claim store.

They have Placement's words. Keys are uuids, so that no statement has to look
up a number first. There are no foreign keys: checking them would lock the rows
of providers, in whatever order a batch names them, and so let two batches
stop each other.
"""

import sqlalchemy as sa

from cellsched.db import feed
from cellsched.db import schema

#: How many feed lanes there are. More than transactions that commit at a time,
#: or they wait for each other's commits.
LANES = 32

#: How many locks server groups share. More than claims for members that there
#: are at a time, or those of different groups wait for each other.
GROUP_LOCKS = 64


def _text(length: int) -> sa.String:
    """Return a type for ASCII that sorts by bytes, as Python does.

    All transactions lock in one order, whoever sorts. On MariaDB and MySQL
    migrations set the collation.
    """
    return sa.String(length).with_variant(
        sa.String(length, collation='C'), 'postgresql')


METADATA = sa.MetaData()

providers = sa.Table(
    'providers', METADATA,
    sa.Column('uuid', _text(36), primary_key=True),
    sa.Column('consumers', sa.Integer, nullable=False),
    *feed.mark_columns('providers', nullable=False),
)

#: ``capacity`` follows from the rest, so that a predicate is a comparison.
inventories = sa.Table(
    'inventories', METADATA,
    sa.Column('provider', _text(36), primary_key=True),
    sa.Column('resource_class', _text(255), primary_key=True),
    sa.Column('total', sa.BigInteger, nullable=False),
    sa.Column('reserved', sa.BigInteger, nullable=False),
    sa.Column('allocation_ratio', sa.Double, nullable=False),
    sa.Column('min_unit', sa.BigInteger, nullable=False),
    sa.Column('max_unit', sa.BigInteger, nullable=False),
    sa.Column('step_size', sa.BigInteger, nullable=False),
    sa.Column('capacity', sa.BigInteger, nullable=False),
    sa.Column('used', sa.BigInteger, nullable=False),
)

#: What consumers hold. ``ordinal`` counts a consumer's rows from 0, so that
#: the key keeps a consumer from taking two different things at once. Whom it
#: is for is in its row 0 alone, so that a claim has no more rows for it.
allocations = sa.Table(
    'allocations', METADATA,
    sa.Column('consumer', _text(36), primary_key=True),
    sa.Column('ordinal', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('provider', _text(36), nullable=False),
    sa.Column('resource_class', _text(255), nullable=False),
    sa.Column('amount', sa.BigInteger, nullable=False),
    sa.Column('project_id', sa.String(255)),
    sa.Column('user_id', sa.String(255)),
)

#: What consumers are in server groups with hard policies. One that holds
#: nothing is no member, for who released it may not have known this table.
members = sa.Table(
    'claim_members', METADATA,
    sa.Column('consumer', _text(36), primary_key=True),
    sa.Column('group_uuid', _text(36), nullable=False),
    sa.Column('member', _text(36), nullable=False),
    sa.Column('host', sa.String(255), nullable=False),
    sa.Index('claim_members_group_uuid_idx', 'group_uuid'),
)

#: The trees that providers belong to, as agents tell. Who told nothing of a
#: provider has no row here, and has not said that it has no traits.
trees = sa.Table(
    'provider_trees', METADATA,
    sa.Column('provider', _text(36), primary_key=True),
    sa.Column('root', _text(36), nullable=False),
    sa.Index('provider_trees_root_idx', 'root'),
)

traits = sa.Table(
    'provider_traits', METADATA,
    sa.Column('provider', _text(36), primary_key=True),
    sa.Column('trait', _text(255), primary_key=True),
)

#: What stands for server groups when they are locked: each for many of them,
#: so that nothing is left of one that has gone.
group_locks = sa.Table(
    'claim_group_locks', METADATA,
    sa.Column('number', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('times', sa.BigInteger, nullable=False),
)

#: What changed of providers.
FEED = feed.Feed('feed_lanes', METADATA, LANES)

SCHEMA = schema.Schema(
    'claims', 'cellsched.claims.sql', METADATA, '8c51d7e03b9a')
