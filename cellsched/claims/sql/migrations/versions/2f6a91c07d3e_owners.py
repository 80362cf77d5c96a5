# SPDX-License-Identifier: Apache-2.0
"""Projects and users that claims are for."""

from alembic import op
import sqlalchemy as sa

from cellsched.db import mysql

revision = '2f6a91c07d3e'
down_revision = 'd90f3a6c52e1'


def upgrade():
    for name in ('project_id', 'user_id'):
        op.add_column('allocations', sa.Column(name, sa.String(255)))
    mysql.set_collation(op.get_bind(), ['allocations'])
