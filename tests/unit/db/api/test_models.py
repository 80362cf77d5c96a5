# SPDX-License-Identifier: Apache-2.0
"""Tables of the API database, with Nova's names and columns."""

import sqlalchemy as sa

from cellsched.db import api
from cellsched.db.api import models
from tests.unit.db.api import base
from tests.unit.db import drift

#: Columns that every table of Nova's has here.
EVERY = {'created_at', 'updated_at', 'id'}

#: What Nova has, of what is here.
TABLES = {
    'cell_mappings': {'uuid', 'name', 'transport_url', 'database_connection',
                      'disabled'},
    'host_mappings': {'cell_id', 'host'},
    'instance_mappings': {'instance_uuid', 'cell_id', 'project_id',
                          'user_id', 'queued_for_delete'},
    'build_requests': {'instance_uuid', 'project_id', 'instance',
                       'block_device_mappings', 'tags'},
    'request_specs': {'instance_uuid', 'spec'},
    'flavors': {'name', 'memory_mb', 'vcpus', 'root_gb', 'ephemeral_gb',
                'flavorid', 'swap', 'rxtx_factor', 'vcpu_weight', 'disabled',
                'is_public', 'description'},
    'flavor_extra_specs': {'key', 'value', 'flavor_id'},
    'instance_groups': {'user_id', 'project_id', 'uuid', 'name'},
    'instance_group_policy': {'policy', 'group_id', 'rules'},
    'instance_group_member': {'instance_uuid', 'group_id'},
    'aggregates': {'uuid', 'name'},
    'aggregate_hosts': {'host', 'aggregate_id'},
    'aggregate_metadata': {'aggregate_id', 'key', 'value'},
    'quotas': {'project_id', 'resource', 'hard_limit'},
    'project_user_quotas': {'user_id', 'project_id', 'resource',
                            'hard_limit'},
    'quota_classes': {'class_name', 'resource', 'hard_limit'},
}

#: What is here and not in Nova.
OURS = {'aggregates': {'lane', 'position'},
        'build_requests': {'min_count', 'lease_owner', 'lease_expires_at',
                           'lease_count', 'revision', 'buried', 'failure',
                           'quota'},
        'instance_mappings': {'vcpus', 'memory_mb'}}

#: Tables that are here and not in Nova.
OUR_TABLES = {
    'aggregate_lanes': {'lane', 'position'},
    'leaders': EVERY | {'name', 'owner', 'expires_at'},
    'scheduler_decisions': EVERY | {
        'uuid', 'request_id', 'decided_at', 'document'},
    'decision_instances': EVERY | {'decision_uuid', 'instance_uuid'},
    'quota_locks': EVERY | {'project_id'},
    'shared_providers': EVERY | {
        'uuid', 'name', 'aggregate_uuid', 'traits', 'inventories'},
}


class TestModels(base.TestCase):

    def test_changed_schema_is_a_difference(self):
        for statement in ('ALTER TABLE flavors ADD COLUMN more INTEGER',
                          'DROP INDEX aggregate_uuid_idx',
                          'DROP TABLE aggregate_hosts'):
            self.execute(sa.text(statement))

            self.assertNotEqual(
                [], drift.differences(self.database, api.SCHEMA))

    def test_tables_and_columns_have_novas_names(self):
        self.assertEqual(
            OUR_TABLES | {
                name: columns | EVERY | OURS.get(name, set())
                for name, columns in TABLES.items()},
            {table.name: set(table.columns.keys())
             for table in models.METADATA.tables.values()})

    def test_unique_constraints_have_names_for_error_messages(self):
        for table in models.METADATA.tables.values():
            for constraint in table.constraints:
                if isinstance(constraint, sa.UniqueConstraint):
                    self.assertIn(constraint.name, drift.constraints(
                        self.database)[table.name])
                    self.assertTrue(constraint.name.startswith('uniq_'))
