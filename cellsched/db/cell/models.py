# SPDX-License-Identifier: Apache-2.0
"""Tables of a cell's database, with Nova's names and columns.

Additions are marked as such. Columns and tables of Nova that this project does
not use are left out. A deleted row has its id in ``deleted``.
"""

import sqlalchemy as sa

from cellsched.db import feed
from cellsched.db import mysql
from cellsched.db import tokens

#: Number of lanes of the feed of hosts: about the number of agents that commit
#: at the same time, since agents with the same lane wait for each other.
LANES = 8

METADATA = sa.MetaData()


def _table(name, *parts):
    return sa.Table(
        name, METADATA,
        sa.Column('created_at', sa.DateTime),
        sa.Column('updated_at', sa.DateTime),
        sa.Column('deleted_at', sa.DateTime),
        sa.Column('deleted', sa.Integer, default=0),
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=True),
        *parts)


services = _table(
    'services',
    sa.Column('uuid', sa.String(36)),
    sa.Column('host', sa.String(255)),
    sa.Column('binary', sa.String(255)),
    sa.Column('topic', sa.String(255)),
    sa.Column('report_count', sa.Integer, nullable=False, default=0),
    sa.Column('disabled', sa.Boolean, default=False),
    sa.Column('disabled_reason', sa.String(255)),
    sa.Column('last_seen_up', sa.DateTime),
    sa.Column('forced_down', sa.Boolean, default=False),
    sa.Column('version', sa.Integer, default=0),
    # A scheduler or a conductor that has stopped in order has no last_seen_up.
    # Additions: the number of starts of its process, the start that owns the
    # host name, the uuid that the host keeps in its state directory, guests
    # that disagree with the cell (JSON, cellsched.db.cell.on_host), and the
    # mark of the last change.
    sa.Column('starts', sa.Integer),
    sa.Column('run', sa.Integer),
    sa.Column('host_id', sa.String(36)),
    sa.Column('guests', mysql.MediumText),
    *feed.mark_columns('services'),
    sa.UniqueConstraint('uuid', name='uniq_services0uuid'),
    sa.UniqueConstraint('host', 'topic', 'deleted',
                        name='uniq_services0host0topic0deleted'),
    sa.UniqueConstraint('host', 'binary', 'deleted',
                        name='uniq_services0host0binary0deleted'),
)

compute_nodes = _table(
    'compute_nodes',
    sa.Column('uuid', sa.String(36)),
    sa.Column('service_id', sa.Integer),
    sa.Column('host', sa.String(255)),
    sa.Column('hypervisor_hostname', sa.String(255)),
    sa.Column('vcpus', sa.Integer, nullable=False),
    sa.Column('memory_mb', sa.Integer, nullable=False),
    sa.Column('local_gb', sa.Integer, nullable=False),
    sa.Column('vcpus_used', sa.Integer, nullable=False),
    sa.Column('memory_mb_used', sa.Integer, nullable=False),
    sa.Column('local_gb_used', sa.Integer, nullable=False),
    sa.Column('hypervisor_type', mysql.MediumText, nullable=False),
    sa.Column('hypervisor_version', sa.Integer, nullable=False),
    sa.Column('disk_available_least', sa.Integer),
    sa.Column('free_ram_mb', sa.Integer),
    sa.Column('free_disk_gb', sa.Integer),
    sa.Column('current_workload', sa.Integer),
    sa.Column('running_vms', sa.Integer),
    sa.Column('cpu_info', mysql.MediumText, nullable=False),
    sa.Column('host_ip', sa.String(39)),
    sa.Column('supported_instances', sa.Text),
    sa.Column('metrics', sa.Text),
    sa.Column('pci_stats', sa.Text),
    sa.Column('stats', sa.Text),
    sa.Column('ram_allocation_ratio', sa.Float),
    sa.Column('cpu_allocation_ratio', sa.Float),
    sa.Column('disk_allocation_ratio', sa.Float),
    sa.Column('numa_topology', sa.Text),
    sa.Column('mapped', sa.Integer, default=0),
    # Additions: JSON lists of trait names and of child providers
    # (cellsched.objects.child_providers), the time since which its driver
    # does not report it, and the mark of the last change.
    sa.Column('traits', sa.Text),
    sa.Column('providers', mysql.MediumText),
    sa.Column('vanished_at', sa.DateTime),
    *feed.mark_columns('compute_nodes'),
    sa.UniqueConstraint('uuid', name='uniq_compute_nodes0uuid'),
    sa.UniqueConstraint('host', 'hypervisor_hostname', 'deleted',
                        name='uniq_compute_nodes0host0hypervisor_hostname'),
)

instances = _table(
    'instances',
    sa.Column('uuid', sa.String(36), nullable=False),
    sa.Column('user_id', sa.String(255)),
    sa.Column('project_id', sa.String(255)),
    sa.Column('image_ref', sa.String(255)),
    sa.Column('launch_index', sa.Integer),
    sa.Column('power_state', sa.Integer),
    sa.Column('vm_state', sa.String(255)),
    sa.Column('task_state', sa.String(255)),
    sa.Column('memory_mb', sa.Integer),
    sa.Column('vcpus', sa.Integer),
    sa.Column('root_gb', sa.Integer),
    sa.Column('ephemeral_gb', sa.Integer),
    sa.Column('host', sa.String(255)),
    sa.Column('node', sa.String(255)),
    sa.Column('instance_type_id', sa.Integer),
    sa.Column('reservation_id', sa.String(255)),
    sa.Column('launched_at', sa.DateTime),
    sa.Column('terminated_at', sa.DateTime),
    sa.Column('availability_zone', sa.String(255)),
    sa.Column('display_name', sa.String(255)),
    sa.Column('hidden', sa.Boolean, default=False),
    # Additions: the number of hosts on which the build was attempted, and
    # whether networks were allocated.
    sa.Column('build_attempts', sa.Integer, nullable=False, default=0),
    sa.Column('network_allocated', sa.Boolean, nullable=False, default=False),
    sa.UniqueConstraint('uuid', name='uniq_instances0uuid'),
    sa.Index('instances_project_id_deleted_idx', 'project_id', 'deleted'),
    sa.Index('instances_host_deleted_cleaned_idx', 'host', 'deleted'),
    sa.Index('instances_created_at_idx', 'deleted', 'created_at'),
)

instance_extra = _table(
    'instance_extra',
    sa.Column('instance_uuid', sa.String(36),
              sa.ForeignKey('instances.uuid', name='fk_extra_instance'),
              nullable=False),
    sa.Column('numa_topology', sa.Text),
    sa.Column('pci_requests', sa.Text),
    sa.Column('flavor', mysql.MediumText),
    sa.Index('instance_extra_idx', 'instance_uuid'),
)

instance_system_metadata = _table(
    'instance_system_metadata',
    sa.Column('key', sa.String(255), nullable=False),
    sa.Column('value', sa.String(255)),
    sa.Column('instance_uuid', sa.String(36),
              sa.ForeignKey('instances.uuid',
                            name='fk_system_metadata_instance'),
              nullable=False),
    sa.Index('instance_uuid', 'instance_uuid'),
)

instance_faults = _table(
    'instance_faults',
    sa.Column('instance_uuid', sa.String(36),
              sa.ForeignKey('instances.uuid', name='fk_faults_instance')),
    sa.Column('code', sa.Integer, nullable=False),
    sa.Column('message', sa.String(255)),
    sa.Column('details', mysql.MediumText),
    sa.Column('host', sa.String(255)),
    sa.Index('instance_faults_instance_uuid_deleted_created_at_idx',
             'instance_uuid', 'deleted', 'created_at'),
)

instance_actions = _table(
    'instance_actions',
    sa.Column('action', sa.String(255)),
    sa.Column('instance_uuid', sa.String(36),
              sa.ForeignKey('instances.uuid', name='fk_actions_instance')),
    sa.Column('request_id', sa.String(255)),
    sa.Column('user_id', sa.String(255)),
    sa.Column('project_id', sa.String(255)),
    sa.Column('start_time', sa.DateTime),
    sa.Column('finish_time', sa.DateTime),
    sa.Column('message', sa.String(255)),
    sa.Index('instance_actions_instance_uuid_idx', 'instance_uuid'),
)

instance_actions_events = _table(
    'instance_actions_events',
    sa.Column('event', sa.String(255)),
    sa.Column('action_id', sa.Integer,
              sa.ForeignKey('instance_actions.id', name='fk_events_action')),
    sa.Column('start_time', sa.DateTime),
    sa.Column('finish_time', sa.DateTime),
    sa.Column('result', sa.String(255)),
    sa.Column('traceback', sa.Text),
    sa.Column('host', sa.String(255)),
    sa.Column('host_id', sa.String(36)),
    sa.Column('details', sa.Text),
    sa.Index('instance_actions_events_action_id_idx', 'action_id'),
)

block_device_mapping = _table(
    'block_device_mapping',
    sa.Column('uuid', sa.String(36)),
    sa.Column('instance_uuid', sa.String(36),
              sa.ForeignKey('instances.uuid', name='fk_bdm_instance')),
    sa.Column('source_type', sa.String(255)),
    sa.Column('destination_type', sa.String(255)),
    sa.Column('guest_format', sa.String(255)),
    sa.Column('device_type', sa.String(255)),
    sa.Column('disk_bus', sa.String(255)),
    sa.Column('boot_index', sa.Integer),
    sa.Column('device_name', sa.String(255)),
    sa.Column('delete_on_termination', sa.Boolean, default=False),
    sa.Column('snapshot_id', sa.String(36)),
    sa.Column('volume_id', sa.String(36)),
    sa.Column('volume_size', sa.Integer),
    sa.Column('volume_type', sa.String(255)),
    sa.Column('image_id', sa.String(36)),
    sa.Column('tag', sa.String(255)),
    sa.UniqueConstraint('uuid', name='uniq_block_device_mapping0uuid'),
    sa.Index('block_device_mapping_instance_uuid_idx', 'instance_uuid'),
)

tags = sa.Table(
    'tags', METADATA,
    sa.Column('resource_id', sa.String(36), primary_key=True,
              nullable=False),
    sa.Column('tag', sa.Unicode(80), primary_key=True, nullable=False),
)

migrations = _table(
    'migrations',
    sa.Column('uuid', sa.String(36), nullable=False),
    sa.Column('source_compute', sa.String(255)),
    sa.Column('dest_compute', sa.String(255)),
    sa.Column('source_node', sa.String(255)),
    sa.Column('dest_node', sa.String(255)),
    sa.Column('status', sa.String(255)),
    sa.Column('instance_uuid', sa.String(36),
              sa.ForeignKey('instances.uuid', name='fk_migrations_instance')),
    sa.Column('migration_type', sa.String(255)),
    sa.Column('user_id', sa.String(255)),
    sa.Column('project_id', sa.String(255)),
    # Addition: the uuid that the source host keeps, as in services.
    sa.Column('source_host_id', sa.String(36)),
    sa.UniqueConstraint('uuid', name='uniq_migrations0uuid'),
    sa.Index('migrations_instance_uuid_idx', 'instance_uuid'),
)

# Addition: messages of unfinished builds, for another cast.
build_casts = sa.Table(
    'build_casts', METADATA,
    sa.Column('instance_uuid', sa.String(36), primary_key=True),
    sa.Column('host', sa.String(255), nullable=False),
    sa.Column('node', sa.String(255), nullable=False),
    sa.Column('message', mysql.MediumText, nullable=False),
    # In seconds since the epoch.
    sa.Column('cast_at', mysql.DOUBLE, nullable=False),
    sa.Column('casts', sa.Integer, nullable=False, default=1),
    sa.Index('build_casts_cast_at_idx', 'cast_at'),
)


def _shadow(table):
    return sa.Table(
        f'shadow_{table.name}', METADATA,
        # Addition: a database may reuse the id of a deleted row.
        sa.Column('archive_id', sa.Integer, primary_key=True,
                  autoincrement=True),
        *(sa.Column(column.name, column.type, nullable=column.nullable)
          for column in table.columns))


#: The shadow table of each table.
SHADOWS = {table: _shadow(table) for table in (
    services, compute_nodes, instances, instance_extra,
    instance_system_metadata, instance_faults, instance_actions,
    instance_actions_events, block_device_mapping, migrations)}

# Addition: shows whether two URLs lead to the same database.
tokens.table(METADATA)

# Addition: the feed of services and compute nodes.
FEED = feed.Feed('host_lanes', METADATA, LANES)
