# SPDX-License-Identifier: Apache-2.0
"""Members of server groups, and what is locked for them."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '4b7c20e9d1f6'
down_revision = '9e3d1f70c5a8'

GROUP_LOCKS = 64


def text(length):
    return sa.String(length).with_variant(
        sa.String(length, collation='C'), 'postgresql',
    ).with_variant(
        mysql.VARCHAR(length, charset='ascii', collation='ascii_bin'),
        'mysql', 'mariadb')


def upgrade():
    op.create_table(
        'claim_members',
        sa.Column('consumer', text(36), nullable=False),
        sa.Column('group_uuid', text(36), nullable=False),
        sa.Column('member', text(36), nullable=False),
        sa.Column('host', sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint('consumer'),
        mysql_engine='InnoDB',
    )
    op.create_index(
        'claim_members_group_uuid_idx', 'claim_members', ['group_uuid'])
    locks = op.create_table(
        'claim_group_locks',
        sa.Column('number', sa.Integer(), autoincrement=False,
                  nullable=False),
        sa.Column('times', sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint('number'),
        mysql_engine='InnoDB',
    )
    op.bulk_insert(locks, [
        {'number': number, 'times': 0} for number in range(GROUP_LOCKS)])
