# SPDX-License-Identifier: Apache-2.0
"""Sharing providers: what the hosts of an aggregate share."""

from alembic import op
import sqlalchemy as sa

from cellsched.db import mysql

revision = '7e1f93ac40d8'
down_revision = 'c4d86e5b91fa'


def upgrade():
    op.create_table(
        'shared_providers',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('uuid', sa.String(length=36), nullable=False),
        sa.Column('name', sa.String(length=255), nullable=False),
        sa.Column('aggregate_uuid', sa.String(length=36), nullable=False),
        sa.Column('traits', sa.Text(), nullable=False),
        sa.Column('inventories', sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint('uuid', name='uniq_shared_providers0uuid'),
        sa.UniqueConstraint('name', name='uniq_shared_providers0name'),
        sa.Index('shared_providers_aggregate_uuid_idx', 'aggregate_uuid'),
        mysql_charset='utf8mb4', mysql_engine='InnoDB')
    mysql.set_collation(op.get_bind(), ['shared_providers'])
