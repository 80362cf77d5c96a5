# SPDX-License-Identifier: Apache-2.0
"""Tables of a cell's database, with Nova's names and columns."""


from cellsched.db.cell import models
from tests.unit.db.cell import base

#: Columns that every table of Nova's has here.
EVERY = {'created_at', 'updated_at', 'deleted_at', 'deleted', 'id'}

#: What Nova has, of what is here.
TABLES = {
    'services': {'uuid', 'host', 'binary', 'topic', 'report_count',
                 'disabled', 'disabled_reason', 'last_seen_up', 'forced_down',
                 'version'},
    'compute_nodes': {
        'uuid', 'service_id', 'host', 'hypervisor_hostname', 'vcpus',
        'memory_mb', 'local_gb', 'vcpus_used', 'memory_mb_used',
        'local_gb_used', 'hypervisor_type', 'hypervisor_version',
        'disk_available_least', 'free_ram_mb', 'free_disk_gb',
        'current_workload', 'running_vms', 'cpu_info', 'host_ip',
        'metrics', 'pci_stats', 'supported_instances', 'stats',
        'ram_allocation_ratio',
        'cpu_allocation_ratio', 'disk_allocation_ratio', 'numa_topology',
        'mapped'},
    'instances': {
        'uuid', 'user_id', 'project_id', 'image_ref', 'launch_index',
        'power_state', 'vm_state', 'task_state', 'memory_mb', 'vcpus',
        'root_gb', 'ephemeral_gb', 'host', 'node', 'instance_type_id',
        'reservation_id', 'launched_at', 'terminated_at',
        'availability_zone', 'display_name', 'hidden'},
    'instance_extra': {'instance_uuid', 'numa_topology', 'pci_requests',
                       'flavor'},
    'instance_system_metadata': {'key', 'value', 'instance_uuid'},
    'instance_faults': {'instance_uuid', 'code', 'message', 'details',
                        'host'},
    'instance_actions': {'action', 'instance_uuid', 'request_id', 'user_id',
                         'project_id', 'start_time', 'finish_time',
                         'message'},
    'instance_actions_events': {'event', 'action_id', 'start_time',
                                'finish_time', 'result', 'traceback', 'host',
                                'details'},
    'block_device_mapping': {
        'uuid', 'instance_uuid', 'source_type', 'destination_type',
        'guest_format', 'device_type', 'disk_bus', 'boot_index',
        'device_name', 'delete_on_termination', 'snapshot_id', 'volume_id',
        'volume_size', 'volume_type', 'image_id', 'tag'},
    'migrations': {
        'uuid', 'source_compute', 'dest_compute', 'source_node', 'dest_node',
        'status', 'instance_uuid', 'migration_type', 'user_id',
        'project_id'},
}

#: Tables of Nova's that have no id of their own.
BARE_TABLES = {'tags': {'resource_id', 'tag'}}

#: What is here and not in Nova.
OURS = {'instances': {'build_attempts', 'network_allocated'},
        'services': {'lane', 'position', 'starts', 'run', 'host_id',
                     'guests'},
        'migrations': {'source_host_id'},
        'instance_actions_events': {'host_id'},
        'compute_nodes': {'lane', 'position', 'traits', 'providers',
                          'vanished_at'}}

#: Tables that are here and not in Nova.
OUR_TABLES = {
    'database_tokens': {'token', 'written_at'},
    'host_lanes': {'lane', 'position'},
    'build_casts': {'instance_uuid', 'host', 'node', 'message', 'cast_at',
                    'casts'}}


class TestModels(base.TestCase):

    def test_tables_and_columns_have_novas_names(self):
        tables = {name: columns | EVERY | OURS.get(name, set())
                  for name, columns in TABLES.items()}

        self.assertEqual(
            OUR_TABLES | BARE_TABLES | tables | {
                f'shadow_{name}': columns | {'archive_id'}
                for name, columns in tables.items()},
            {table.name: set(table.columns.keys())
             for table in models.METADATA.tables.values()})
