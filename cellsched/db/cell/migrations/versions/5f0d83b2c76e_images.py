# SPDX-License-Identifier: Apache-2.0
"""Image properties of servers."""

from alembic import op
import sqlalchemy as sa

from cellsched.db import mysql

revision = '5f0d83b2c76e'
down_revision = '8d25c0b7e93f'


TABLE, KEY = 'instance_system_metadata', 'fk_system_metadata_instance'


def upgrade():
    bind = op.get_bind()
    # A text can refer only to one of its own collation, and others cannot add
    # a key later.
    is_later = bind.dialect.name in mysql.DIALECTS
    keys = [] if is_later else [sa.ForeignKeyConstraint(
        ['instance_uuid'], ['instances.uuid'], name=KEY)]
    op.create_table(
        TABLE,
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('deleted_at', sa.DateTime()),
        sa.Column('deleted', sa.Integer()),
        sa.Column('id', sa.Integer(), nullable=False),
        sa.Column('key', sa.String(255), nullable=False),
        sa.Column('value', sa.String(255)),
        sa.Column('instance_uuid', sa.String(36), nullable=False),
        sa.PrimaryKeyConstraint('id'),
        *keys, mysql_engine='InnoDB', mysql_charset=mysql.CHARSET,
    )
    op.create_index('instance_uuid', TABLE, ['instance_uuid'])
    mysql.set_collation(bind, [TABLE])
    if is_later:
        op.create_foreign_key(
            KEY, TABLE, 'instances', ['instance_uuid'], ['uuid'])
