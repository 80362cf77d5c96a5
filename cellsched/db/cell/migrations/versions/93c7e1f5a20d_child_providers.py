# SPDX-License-Identifier: Apache-2.0
"""Child providers of compute nodes."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '93c7e1f5a20d'
down_revision = '1e6d94a0b7c3'

MEDIUM_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade():
    # A text gets the collation of its table.
    for table in 'compute_nodes', 'shadow_compute_nodes':
        op.add_column(table, sa.Column('providers', MEDIUM_TEXT))
