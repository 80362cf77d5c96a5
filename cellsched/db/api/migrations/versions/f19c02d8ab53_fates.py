# SPDX-License-Identifier: Apache-2.0
"""Limits of projects, and requests that are changed or made again."""

from alembic import op
import sqlalchemy as sa

revision = 'f19c02d8ab53'
down_revision = 'd27b94f0c6e8'


def _table(name, *parts):
    return op.create_table(
        name,
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('id', sa.Integer(), primary_key=True, autoincrement=True),
        *parts, mysql_engine='InnoDB', mysql_charset='utf8mb3')


def upgrade():
    for name in 'vcpus', 'memory_mb':
        op.add_column('instance_mappings', sa.Column(name, sa.Integer()))
    op.add_column('build_requests', sa.Column(
        'revision', sa.Integer(), nullable=False, server_default='0'))
    op.add_column('build_requests', sa.Column(
        'buried', sa.Boolean(), nullable=False,
        server_default=sa.false()))
    op.add_column('build_requests', sa.Column('failure', sa.Text()))
    _table(
        'quotas',
        sa.Column('project_id', sa.String(255)),
        sa.Column('resource', sa.String(255), nullable=False),
        sa.Column('hard_limit', sa.Integer()),
        sa.UniqueConstraint('project_id', 'resource',
                            name='uniq_quotas0project_id0resource'))
    _table(
        'project_user_quotas',
        sa.Column('user_id', sa.String(255), nullable=False),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('resource', sa.String(255), nullable=False),
        sa.Column('hard_limit', sa.Integer()),
        sa.UniqueConstraint(
            'user_id', 'project_id', 'resource',
            name='uniq_project_user_quotas0user_id0project_id0resource'))
    op.create_index('project_user_quotas_project_id_idx',
                    'project_user_quotas', ['project_id'])
    _table(
        'quota_classes',
        sa.Column('class_name', sa.String(255)),
        sa.Column('resource', sa.String(255)),
        sa.Column('hard_limit', sa.Integer()))
    op.create_index('quota_classes_class_name_idx', 'quota_classes',
                    ['class_name'])
    _table(
        'quota_locks',
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.UniqueConstraint('project_id',
                            name='uniq_quota_locks0project_id'))
