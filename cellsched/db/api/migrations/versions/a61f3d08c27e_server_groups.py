# SPDX-License-Identifier: Apache-2.0
"""Server groups."""

from alembic import op
import sqlalchemy as sa

revision = 'a61f3d08c27e'
down_revision = 'e4a90c7d1b36'


def upgrade():
    _create(
        'instance_groups',
        sa.Column('user_id', sa.String(length=255)),
        sa.Column('project_id', sa.String(length=255)),
        sa.Column('uuid', sa.String(length=36), nullable=False),
        sa.Column('name', sa.String(length=255)),
        sa.UniqueConstraint('uuid', name='uniq_instance_groups0uuid'))
    op.create_index(
        'instance_groups_project_id_idx', 'instance_groups', ['project_id'])
    _create(
        'instance_group_policy',
        sa.Column('policy', sa.String(length=255)),
        sa.Column('group_id', sa.Integer(), nullable=False),
        sa.Column('rules', sa.Text()),
        sa.ForeignKeyConstraint(
            ['group_id'], ['instance_groups.id'],
            name='fk_instance_group_policy_group'))
    op.create_index(
        'instance_group_policy_policy_idx', 'instance_group_policy',
        ['policy'])
    op.create_index(
        'instance_group_policy_group_id_idx', 'instance_group_policy',
        ['group_id'])
    _create(
        'instance_group_member',
        sa.Column('instance_uuid', sa.String(length=255)),
        sa.Column('group_id', sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ['group_id'], ['instance_groups.id'],
            name='fk_instance_group_member_group'),
        sa.UniqueConstraint(
            'group_id', 'instance_uuid',
            name='uniq_instance_group_member0group_id0instance_uuid'))
    op.create_index(
        'instance_group_member_instance_idx', 'instance_group_member',
        ['instance_uuid'])


def _create(name, *parts):
    op.create_table(
        name,
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        *parts, sa.PrimaryKeyConstraint('id'),
        mysql_charset='utf8mb3', mysql_engine='InnoDB')
