# SPDX-License-Identifier: Apache-2.0
"""Tables of the SQL claim store.

The names are Placement's. Keys are uuids, so that no statement looks up a
number first. There are no foreign keys: their checks would lock the rows of
providers in the order of a batch, and cause deadlocks.
"""

import sqlalchemy as sa

from cellsched.db import feed
from cellsched.db import schema
from cellsched.db import tokens

#: Number of lanes of the feed. Should exceed the number of concurrent
#: commits, which wait for each other in one lane.
LANES = 32

#: Number of locks for all server groups. Should exceed the number of
#: concurrent claims with memberships.
GROUP_LOCKS = 64


def _text(length: int) -> sa.String:
    """Return a type for ASCII that is sorted by bytes, as in Python.

    The database and this program then lock in the same order. On MariaDB and
    MySQL the migrations set the collation.
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

#: ``capacity`` is computed from the other columns, to be compared quickly.
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

#: Claims. ``ordinal`` counts the rows of a consumer from 0, so that the key
#: prevents two different claims of a consumer. Project and user are in row 0.
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

#: Members of server groups with hard policies. A row without allocations does
#: not count: the consumer was released without the use of this table.
members = sa.Table(
    'claim_members', METADATA,
    sa.Column('consumer', _text(36), primary_key=True),
    sa.Column('group_uuid', _text(36), nullable=False),
    sa.Column('member', _text(36), nullable=False),
    sa.Column('host', sa.String(255), nullable=False),
    sa.Index('claim_members_group_uuid_idx', 'group_uuid'),
)

#: Roots of trees, as agents report them. A provider without a row here has
#: no known traits.
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

#: Rows that are locked for server groups. Each serves many groups, so no rows
#: of deleted groups remain.
group_locks = sa.Table(
    'claim_group_locks', METADATA,
    sa.Column('number', sa.Integer, primary_key=True, autoincrement=False),
    sa.Column('times', sa.BigInteger, nullable=False),
)

#: Shows whether two URLs lead to the same database.
tokens.table(METADATA)

#: Reports changed providers.
FEED = feed.Feed('feed_lanes', METADATA, LANES)

SCHEMA = schema.Schema(
    'claims', 'cellsched.claims.sql', METADATA, 'b7f24c90e1d3')
