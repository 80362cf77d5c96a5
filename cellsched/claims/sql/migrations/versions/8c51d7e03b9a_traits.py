# SPDX-License-Identifier: Apache-2.0
"""Traits of providers, and the trees that they belong to."""

from alembic import op
import sqlalchemy as sa

from cellsched.db import mysql

revision = '8c51d7e03b9a'
down_revision = '2f6a91c07d3e'


def text(length):
    return sa.String(length).with_variant(
        sa.String(length, collation='C'), 'postgresql')


def upgrade():
    op.create_table(
        'provider_trees',
        sa.Column('provider', text(36), nullable=False),
        sa.Column('root', text(36), nullable=False),
        sa.PrimaryKeyConstraint('provider'),
        mysql_engine='InnoDB',
    )
    op.create_index('provider_trees_root_idx', 'provider_trees', ['root'])
    op.create_table(
        'provider_traits',
        sa.Column('provider', text(36), nullable=False),
        sa.Column('trait', text(255), nullable=False),
        sa.PrimaryKeyConstraint('provider', 'trait'),
        mysql_engine='InnoDB',
    )
    mysql.set_collation(op.get_bind(), ['provider_trees', 'provider_traits'])
