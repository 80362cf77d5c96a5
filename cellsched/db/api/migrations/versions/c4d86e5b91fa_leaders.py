# SPDX-License-Identifier: Apache-2.0
"""Leaders: who does what one service does for all."""

from alembic import op
import sqlalchemy as sa

from cellsched.db import mysql

revision = 'c4d86e5b91fa'
down_revision = '5a80d7f3c216'


def upgrade():
    op.create_table(
        'leaders',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('name', sa.String(length=255), nullable=False),
        sa.Column('owner', sa.String(length=255), nullable=False),
        sa.Column('expires_at', sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint('name', name='uniq_leaders0name'),
        mysql_charset='utf8mb4', mysql_engine='InnoDB')
    mysql.set_collation(op.get_bind(), ['leaders'])
