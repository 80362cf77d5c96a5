# SPDX-License-Identifier: Apache-2.0
"""Decisions of schedulers."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = 'd27b94f0c6e8'
down_revision = 'a61f3d08c27e'


def upgrade():
    _create(
        'scheduler_decisions',
        sa.Column('uuid', sa.String(length=36), nullable=False),
        sa.Column('request_id', sa.String(length=255)),
        sa.Column('decided_at', sa.Float(precision=53), nullable=False),
        sa.Column(
            'document',
            sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb'),
            nullable=False),
        sa.UniqueConstraint('uuid', name='uniq_scheduler_decisions0uuid'))
    op.create_index(
        'scheduler_decisions_request_id_idx', 'scheduler_decisions',
        ['request_id'])
    op.create_index(
        'scheduler_decisions_decided_at_idx', 'scheduler_decisions',
        ['decided_at'])
    _create(
        'decision_instances',
        sa.Column('decision_uuid', sa.String(length=36), nullable=False),
        sa.Column('instance_uuid', sa.String(length=36), nullable=False),
        sa.ForeignKeyConstraint(
            ['decision_uuid'], ['scheduler_decisions.uuid'],
            name='fk_decision_instances_decision'),
        sa.UniqueConstraint(
            'decision_uuid', 'instance_uuid',
            name='uniq_decision_instances0decision_uuid0instance_uuid'))
    op.create_index(
        'decision_instances_instance_uuid_idx', 'decision_instances',
        ['instance_uuid'])


def _create(name, *parts):
    op.create_table(
        name,
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        *parts, sa.PrimaryKeyConstraint('id'),
        mysql_charset='utf8mb3', mysql_engine='InnoDB')
