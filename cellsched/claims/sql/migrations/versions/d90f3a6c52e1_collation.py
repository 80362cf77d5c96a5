# SPDX-License-Identifier: Apache-2.0
"""Text compared by bytes, and all of Unicode, on MariaDB and MySQL."""

from alembic import op

from cellsched.db import mysql

revision = 'd90f3a6c52e1'
down_revision = '4b7c20e9d1f6'

TABLES = (
    'allocations',
    'claim_members',
    'inventories',
    'providers',
)


def upgrade():
    mysql.set_collation(op.get_bind(), TABLES)
