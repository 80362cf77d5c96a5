# SPDX-License-Identifier: Apache-2.0
"""Build parameters of servers, their moves, and builds under way."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = 'c6a1f47be280'
down_revision = 'b85d2e61f094'

MEDIUM_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def _table(name, *parts):
    return op.create_table(
        name,
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('deleted_at', sa.DateTime()),
        sa.Column('deleted', sa.Integer()),
        sa.Column('id', sa.Integer(), primary_key=True, autoincrement=True),
        *parts, mysql_engine='InnoDB', mysql_charset='utf8mb3')


def _texts(*names):
    return [sa.Column(name, sa.String(255)) for name in names]


def _instance(constraint):
    return sa.Column(
        'instance_uuid', sa.String(36),
        sa.ForeignKey('instances.uuid', name=constraint))


def upgrade():
    op.add_column('instances', sa.Column(
        'network_allocated', sa.Boolean(), nullable=False,
        server_default=sa.false()))
    _events()
    _block_devices()
    _migrations()
    op.create_table(
        'tags',
        sa.Column('resource_id', sa.String(36), nullable=False),
        sa.Column('tag', sa.Unicode(80), nullable=False),
        sa.PrimaryKeyConstraint('resource_id', 'tag'),
        mysql_engine='InnoDB', mysql_charset='utf8mb3')
    op.create_table(
        'build_casts',
        sa.Column('instance_uuid', sa.String(36), nullable=False),
        sa.Column('host', sa.String(255), nullable=False),
        sa.Column('node', sa.String(255), nullable=False),
        sa.Column('message', MEDIUM_TEXT, nullable=False),
        sa.Column('cast_at', sa.Float(53), nullable=False),
        sa.Column('casts', sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint('instance_uuid'),
        mysql_engine='InnoDB', mysql_charset='utf8mb3')
    op.create_index('build_casts_cast_at_idx', 'build_casts', ['cast_at'])


def _events():
    _table(
        'instance_actions_events',
        sa.Column('event', sa.String(255)),
        sa.Column('action_id', sa.Integer(), sa.ForeignKey(
            'instance_actions.id', name='fk_events_action')),
        sa.Column('start_time', sa.DateTime()),
        sa.Column('finish_time', sa.DateTime()),
        sa.Column('result', sa.String(255)),
        sa.Column('traceback', sa.Text()),
        sa.Column('host', sa.String(255)),
        sa.Column('details', sa.Text()))
    op.create_index('instance_actions_events_action_id_idx',
                    'instance_actions_events', ['action_id'])


def _block_devices():
    _table(
        'block_device_mapping',
        sa.Column('uuid', sa.String(36)),
        _instance('fk_bdm_instance'),
        *_texts('source_type', 'destination_type', 'guest_format',
                'device_type', 'disk_bus'),
        sa.Column('boot_index', sa.Integer()),
        sa.Column('device_name', sa.String(255)),
        sa.Column('delete_on_termination', sa.Boolean()),
        sa.Column('snapshot_id', sa.String(36)),
        sa.Column('volume_id', sa.String(36)),
        sa.Column('volume_size', sa.Integer()),
        sa.Column('volume_type', sa.String(255)),
        sa.Column('image_id', sa.String(36)),
        sa.Column('tag', sa.String(255)),
        sa.UniqueConstraint('uuid', name='uniq_block_device_mapping0uuid'))
    op.create_index('block_device_mapping_instance_uuid_idx',
                    'block_device_mapping', ['instance_uuid'])


def _migrations():
    _table(
        'migrations',
        sa.Column('uuid', sa.String(36), nullable=False),
        *_texts('source_compute', 'dest_compute', 'source_node', 'dest_node',
                'status'),
        _instance('fk_migrations_instance'),
        *_texts('migration_type', 'user_id', 'project_id'),
        sa.UniqueConstraint('uuid', name='uniq_migrations0uuid'))
    op.create_index('migrations_instance_uuid_idx', 'migrations',
                    ['instance_uuid'])
