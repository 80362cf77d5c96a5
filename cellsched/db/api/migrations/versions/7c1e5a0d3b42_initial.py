# SPDX-License-Identifier: Apache-2.0
"""Tables of the API database as they were first."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '7c1e5a0d3b42'
down_revision = None

MEDIUM_TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade():
    op.create_table(
        'aggregates',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('uuid', sa.String(length=36)),
        sa.Column('name', sa.String(length=255)),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint('name', name='uniq_aggregate0name'),
        mysql_charset='utf8mb3',
        mysql_engine='InnoDB'
    )
    op.create_index('aggregate_uuid_idx', 'aggregates', ['uuid'])
    op.create_table(
        'build_requests',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('instance_uuid', sa.String(length=36)),
        sa.Column('project_id', sa.String(length=255), nullable=False),
        sa.Column('instance', MEDIUM_TEXT),
        sa.Column('block_device_mappings', MEDIUM_TEXT),
        sa.Column('tags', sa.Text()),
        sa.Column('min_count', sa.Integer(), nullable=False),
        sa.Column('lease_owner', sa.String(length=255)),
        sa.Column('lease_expires_at', sa.Float(precision=53)),
        sa.Column('lease_count', sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint(
            'instance_uuid', name='uniq_build_requests0instance_uuid'),
        mysql_charset='utf8mb3',
        mysql_engine='InnoDB'
    )
    op.create_index(
        'build_requests_lease_expires_at_idx', 'build_requests',
        ['lease_expires_at'])
    op.create_index(
        'build_requests_project_id_idx', 'build_requests', ['project_id'])
    op.create_table(
        'cell_mappings',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('uuid', sa.String(length=36), nullable=False),
        sa.Column('name', sa.String(length=255)),
        sa.Column('transport_url', sa.Text()),
        sa.Column('database_connection', sa.Text()),
        sa.Column('disabled', sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint('uuid', name='uniq_cell_mappings0uuid'),
        mysql_charset='utf8mb3',
        mysql_engine='InnoDB'
    )
    op.create_table(
        'flavors',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('name', sa.String(length=255), nullable=False),
        sa.Column('memory_mb', sa.Integer(), nullable=False),
        sa.Column('vcpus', sa.Integer(), nullable=False),
        sa.Column('root_gb', sa.Integer()),
        sa.Column('ephemeral_gb', sa.Integer()),
        sa.Column('flavorid', sa.String(length=255), nullable=False),
        sa.Column('swap', sa.Integer(), nullable=False),
        sa.Column('rxtx_factor', sa.Float()),
        sa.Column('vcpu_weight', sa.Integer()),
        sa.Column('disabled', sa.Boolean()),
        sa.Column('is_public', sa.Boolean()),
        sa.Column('description', sa.Text()),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint('flavorid', name='uniq_flavors0flavorid'),
        sa.UniqueConstraint('name', name='uniq_flavors0name'),
        mysql_charset='utf8mb3',
        mysql_engine='InnoDB'
    )
    op.create_table(
        'request_specs',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('instance_uuid', sa.String(length=36), nullable=False),
        sa.Column('spec', MEDIUM_TEXT, nullable=False),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint(
            'instance_uuid', name='uniq_request_specs0instance_uuid'),
        mysql_charset='utf8mb3',
        mysql_engine='InnoDB'
    )
    op.create_table(
        'aggregate_hosts',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('host', sa.String(length=255)),
        sa.Column('aggregate_id', sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ['aggregate_id'], ['aggregates.id'],
            name='fk_aggregate_hosts_aggregate'),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint(
            'host', 'aggregate_id',
            name='uniq_aggregate_hosts0host0aggregate_id'),
        mysql_charset='utf8mb3',
        mysql_engine='InnoDB'
    )
    op.create_table(
        'aggregate_metadata',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('aggregate_id', sa.Integer(), nullable=False),
        sa.Column('key', sa.String(length=255), nullable=False),
        sa.Column('value', sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ['aggregate_id'], ['aggregates.id'],
            name='fk_aggregate_metadata_aggregate'),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint(
            'aggregate_id', 'key',
            name='uniq_aggregate_metadata0aggregate_id0key'),
        mysql_charset='utf8mb3',
        mysql_engine='InnoDB'
    )
    op.create_index(
        'aggregate_metadata_key_idx', 'aggregate_metadata', ['key'])
    op.create_table(
        'flavor_extra_specs',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('key', sa.String(length=255), nullable=False),
        sa.Column('value', sa.String(length=255)),
        sa.Column('flavor_id', sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ['flavor_id'], ['flavors.id'],
            name='fk_flavor_extra_specs_flavor'),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint(
            'flavor_id', 'key', name='uniq_flavor_extra_specs0flavor_id0key'),
        mysql_charset='utf8mb3',
        mysql_engine='InnoDB'
    )
    op.create_table(
        'host_mappings',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('cell_id', sa.Integer(), nullable=False),
        sa.Column('host', sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ['cell_id'], ['cell_mappings.id'], name='fk_host_mappings_cell'),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint('host', name='uniq_host_mappings0host'),
        mysql_charset='utf8mb3',
        mysql_engine='InnoDB'
    )
    op.create_table(
        'instance_mappings',
        sa.Column('created_at', sa.DateTime()),
        sa.Column('updated_at', sa.DateTime()),
        sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
        sa.Column('instance_uuid', sa.String(length=36), nullable=False),
        sa.Column('cell_id', sa.Integer()),
        sa.Column('project_id', sa.String(length=255), nullable=False),
        sa.Column('user_id', sa.String(length=255)),
        sa.Column('queued_for_delete', sa.Boolean()),
        sa.ForeignKeyConstraint(
            ['cell_id'], ['cell_mappings.id'],
            name='fk_instance_mappings_cell'),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint(
            'instance_uuid', name='uniq_instance_mappings0instance_uuid'),
        mysql_charset='utf8mb3',
        mysql_engine='InnoDB'
    )
    op.create_index(
        'instance_mappings_project_id_idx', 'instance_mappings',
        ['project_id'])
    op.create_index(
        'instance_mappings_user_id_project_id_idx', 'instance_mappings',
        ['user_id', 'project_id'])
