# SPDX-License-Identifier: Apache-2.0
"""Runs of compute agents, by the name of the host."""

from alembic import op
import sqlalchemy as sa

revision = '7a0e5c93d148'
down_revision = '5f0d83b2c76e'


def upgrade():
    op.add_column('services', sa.Column('starts', sa.Integer()))
    op.add_column('services', sa.Column('run', sa.Integer()))
