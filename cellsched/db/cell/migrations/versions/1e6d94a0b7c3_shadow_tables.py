# SPDX-License-Identifier: Apache-2.0
"""Shadow tables, where deleted rows are archived.

They have the columns that their tables have by now.
"""

from alembic import op
import sqlalchemy as sa

from cellsched.db import mysql

revision = '1e6d94a0b7c3'
down_revision = '7a0e5c93d148'

TABLES = (
    'services',
    'compute_nodes',
    'instances',
    'instance_extra',
    'instance_system_metadata',
    'instance_faults',
    'instance_actions',
    'instance_actions_events',
    'block_device_mapping',
    'migrations',
)


def upgrade():
    connection = op.get_bind()
    for name in TABLES:
        table = sa.Table(name, sa.MetaData(), autoload_with=connection,
                         resolve_fks=False)
        op.create_table(
            f'shadow_{name}',
            sa.Column('archive_id', sa.Integer(), autoincrement=True,
                      nullable=False),
            *(sa.Column(column.name, column.type, nullable=column.nullable)
              for column in table.columns),
            sa.PrimaryKeyConstraint('archive_id'),
            mysql_charset='utf8mb4', mysql_engine='InnoDB')
    mysql.set_collation(connection, [f'shadow_{name}' for name in TABLES])
