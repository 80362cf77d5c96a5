# SPDX-License-Identifier: Apache-2.0
"""Text compared by bytes, and all of Unicode, on MariaDB and MySQL."""

from alembic import op

from cellsched.db import mysql

revision = '8d25c0b7e93f'
down_revision = 'c6a1f47be280'

TABLES = (
    'services',
    'compute_nodes',
    'instances',
    'instance_extra',
    'instance_faults',
    'instance_actions',
    'instance_actions_events',
    'block_device_mapping',
    'tags',
    'migrations',
    'build_casts',
)


def upgrade():
    mysql.set_collation(op.get_bind(), TABLES)
