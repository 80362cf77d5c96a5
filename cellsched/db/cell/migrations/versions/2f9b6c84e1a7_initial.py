# SPDX-License-Identifier: Apache-2.0
"""Tables of a cell as they were first."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '2f9b6c84e1a7'
down_revision = None

MEDIUM_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade():
    op.create_table(
        'compute_nodes',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('deleted_at', sa.DateTime()),
        sa.Column('deleted', sa.Integer()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('uuid', sa.String(length=36)),
        sa.Column('service_id', sa.Integer()),
        sa.Column('host', sa.String(length=255)),
        sa.Column('hypervisor_hostname', sa.String(length=255)),
        sa.Column('vcpus', sa.Integer(), nullable=False),
        sa.Column('memory_mb', sa.Integer(), nullable=False),
        sa.Column('local_gb', sa.Integer(), nullable=False),
        sa.Column('vcpus_used', sa.Integer(), nullable=False),
        sa.Column('memory_mb_used', sa.Integer(), nullable=False),
        sa.Column('local_gb_used', sa.Integer(), nullable=False),
        sa.Column('hypervisor_type', MEDIUM_TEXT, nullable=False),
        sa.Column('hypervisor_version', sa.Integer(), nullable=False),
        sa.Column('disk_available_least', sa.Integer()),
        sa.Column('free_ram_mb', sa.Integer()),
        sa.Column('free_disk_gb', sa.Integer()),
        sa.Column('current_workload', sa.Integer()),
        sa.Column('running_vms', sa.Integer()),
        sa.Column('cpu_info', MEDIUM_TEXT, nullable=False),
        sa.Column('host_ip', sa.String(length=39)),
        sa.Column('supported_instances', sa.Text()),
        sa.Column('stats', sa.Text()),
        sa.Column('ram_allocation_ratio', sa.Float()),
        sa.Column('cpu_allocation_ratio', sa.Float()),
        sa.Column('disk_allocation_ratio', sa.Float()),
        sa.Column('mapped', sa.Integer()),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint(
            'host', 'hypervisor_hostname', 'deleted',
            name='uniq_compute_nodes0host0hypervisor_hostname'),
        sa.UniqueConstraint('uuid', name='uniq_compute_nodes0uuid'),
        mysql_charset='utf8mb3',
        mysql_engine='InnoDB'
    )
    op.create_table(
        'instances',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('deleted_at', sa.DateTime()),
        sa.Column('deleted', sa.Integer()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('uuid', sa.String(length=36), nullable=False),
        sa.Column('user_id', sa.String(length=255)),
        sa.Column('project_id', sa.String(length=255)),
        sa.Column('image_ref', sa.String(length=255)),
        sa.Column('launch_index', sa.Integer()),
        sa.Column('power_state', sa.Integer()),
        sa.Column('vm_state', sa.String(length=255)),
        sa.Column('task_state', sa.String(length=255)),
        sa.Column('memory_mb', sa.Integer()),
        sa.Column('vcpus', sa.Integer()),
        sa.Column('root_gb', sa.Integer()),
        sa.Column('ephemeral_gb', sa.Integer()),
        sa.Column('host', sa.String(length=255)),
        sa.Column('node', sa.String(length=255)),
        sa.Column('instance_type_id', sa.Integer()),
        sa.Column('reservation_id', sa.String(length=255)),
        sa.Column('launched_at', sa.DateTime()),
        sa.Column('terminated_at', sa.DateTime()),
        sa.Column('availability_zone', sa.String(length=255)),
        sa.Column('display_name', sa.String(length=255)),
        sa.Column('hidden', sa.Boolean()),
        sa.Column('build_attempts', sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint('uuid', name='uniq_instances0uuid'),
        mysql_charset='utf8mb3',
        mysql_engine='InnoDB'
    )
    op.create_index(
        'instances_created_at_idx', 'instances', ['deleted', 'created_at'])
    op.create_index(
        'instances_host_deleted_cleaned_idx', 'instances', ['host', 'deleted'])
    op.create_index(
        'instances_project_id_deleted_idx', 'instances',
        ['project_id', 'deleted'])
    op.create_table(
        'services',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('deleted_at', sa.DateTime()),
        sa.Column('deleted', sa.Integer()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('uuid', sa.String(length=36)),
        sa.Column('host', sa.String(length=255)),
        sa.Column('binary', sa.String(length=255)),
        sa.Column('topic', sa.String(length=255)),
        sa.Column('report_count', sa.Integer(), nullable=False),
        sa.Column('disabled', sa.Boolean()),
        sa.Column('disabled_reason', sa.String(length=255)),
        sa.Column('last_seen_up', sa.DateTime()),
        sa.Column('forced_down', sa.Boolean()),
        sa.Column('version', sa.Integer()),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint(
            'host', 'binary', 'deleted',
            name='uniq_services0host0binary0deleted'),
        sa.UniqueConstraint(
            'host', 'topic', 'deleted',
            name='uniq_services0host0topic0deleted'),
        sa.UniqueConstraint('uuid', name='uniq_services0uuid'),
        mysql_charset='utf8mb3',
        mysql_engine='InnoDB'
    )
    op.create_table(
        'instance_actions',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('deleted_at', sa.DateTime()),
        sa.Column('deleted', sa.Integer()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('action', sa.String(length=255)),
        sa.Column('instance_uuid', sa.String(length=36)),
        sa.Column('request_id', sa.String(length=255)),
        sa.Column('user_id', sa.String(length=255)),
        sa.Column('project_id', sa.String(length=255)),
        sa.Column('start_time', sa.DateTime()),
        sa.Column('finish_time', sa.DateTime()),
        sa.Column('message', sa.String(length=255)),
        sa.ForeignKeyConstraint(
            ['instance_uuid'], ['instances.uuid'], name='fk_actions_instance'),
        sa.PrimaryKeyConstraint('id'),
        mysql_charset='utf8mb3',
        mysql_engine='InnoDB'
    )
    op.create_index(
        'instance_actions_instance_uuid_idx', 'instance_actions',
        ['instance_uuid'])
    op.create_table(
        'instance_extra',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('deleted_at', sa.DateTime()),
        sa.Column('deleted', sa.Integer()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('instance_uuid', sa.String(length=36), nullable=False),
        sa.Column('flavor', MEDIUM_TEXT),
        sa.ForeignKeyConstraint(
            ['instance_uuid'], ['instances.uuid'], name='fk_extra_instance'),
        sa.PrimaryKeyConstraint('id'),
        mysql_charset='utf8mb3',
        mysql_engine='InnoDB'
    )
    op.create_index('instance_extra_idx', 'instance_extra', ['instance_uuid'])
    op.create_table(
        'instance_faults',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('deleted_at', sa.DateTime()),
        sa.Column('deleted', sa.Integer()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('instance_uuid', sa.String(length=36)),
        sa.Column('code', sa.Integer(), nullable=False),
        sa.Column('message', sa.String(length=255)),
        sa.Column('details', MEDIUM_TEXT),
        sa.Column('host', sa.String(length=255)),
        sa.ForeignKeyConstraint(
            ['instance_uuid'], ['instances.uuid'], name='fk_faults_instance'),
        sa.PrimaryKeyConstraint('id'),
        mysql_charset='utf8mb3',
        mysql_engine='InnoDB'
    )
    op.create_index(
        'instance_faults_instance_uuid_deleted_created_at_idx',
        'instance_faults', ['instance_uuid', 'deleted', 'created_at'])
