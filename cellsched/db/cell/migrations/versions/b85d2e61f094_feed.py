# SPDX-License-Identifier: Apache-2.0
"""A feed of hosts, and what more is known of compute nodes."""

from alembic import op
import sqlalchemy as sa

revision = 'b85d2e61f094'
down_revision = '2f9b6c84e1a7'

LANES = 8


def upgrade():
    for name in 'metrics', 'pci_stats', 'traits':
        op.add_column('compute_nodes', sa.Column(name, sa.Text()))
    for table in 'compute_nodes', 'services':
        op.add_column(table, sa.Column('lane', sa.Integer()))
        op.add_column(table, sa.Column('position', sa.BigInteger()))
        op.create_index(
            f'{table}_lane_position_idx', table, ['lane', 'position'])
    lanes = op.create_table(
        'host_lanes',
        sa.Column('lane', sa.Integer(), autoincrement=False, nullable=False),
        sa.Column('position', sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint('lane'),
        mysql_engine='InnoDB',
    )
    op.bulk_insert(
        lanes, [{'lane': lane, 'position': 0} for lane in range(LANES)])
