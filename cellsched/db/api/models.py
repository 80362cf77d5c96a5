# SPDX-License-Identifier: Apache-2.0
"""Tables of the API database, with Nova's names and columns.

Additions are marked as such. Columns and tables of Nova that this project does
not use are left out.
"""

import sqlalchemy as sa

from cellsched.db import feed
from cellsched.db import mysql

METADATA = sa.MetaData()


def _table(name, *parts):
    return sa.Table(
        name, METADATA,
        sa.Column('created_at', sa.DateTime),
        sa.Column('updated_at', sa.DateTime),
        sa.Column('id', sa.Integer, primary_key=True, autoincrement=True),
        *parts)


cell_mappings = _table(
    'cell_mappings',
    sa.Column('uuid', sa.String(36), nullable=False),
    sa.Column('name', sa.String(255)),
    sa.Column('transport_url', sa.Text),
    sa.Column('database_connection', sa.Text),
    sa.Column('disabled', sa.Boolean, nullable=False, default=False),
    sa.UniqueConstraint('uuid', name='uniq_cell_mappings0uuid'),
)

host_mappings = _table(
    'host_mappings',
    sa.Column('cell_id', sa.Integer,
              sa.ForeignKey('cell_mappings.id', name='fk_host_mappings_cell'),
              nullable=False),
    sa.Column('host', sa.String(255), nullable=False),
    sa.UniqueConstraint('host', name='uniq_host_mappings0host'),
)

instance_mappings = _table(
    'instance_mappings',
    sa.Column('instance_uuid', sa.String(36), nullable=False),
    sa.Column('cell_id', sa.Integer,
              sa.ForeignKey('cell_mappings.id',
                            name='fk_instance_mappings_cell')),
    sa.Column('project_id', sa.String(255), nullable=False),
    sa.Column('user_id', sa.String(255)),
    sa.Column('queued_for_delete', sa.Boolean),
    # Addition: the quota usage of the server.
    sa.Column('vcpus', sa.Integer),
    sa.Column('memory_mb', sa.Integer),
    sa.UniqueConstraint('instance_uuid',
                        name='uniq_instance_mappings0instance_uuid'),
    sa.Index('instance_mappings_project_id_idx', 'project_id'),
    sa.Index('instance_mappings_user_id_project_id_idx',
             'user_id', 'project_id'),
)

build_requests = _table(
    'build_requests',
    sa.Column('instance_uuid', sa.String(36)),
    sa.Column('project_id', sa.String(255), nullable=False),
    sa.Column('instance', mysql.MediumText),
    sa.Column('block_device_mappings', mysql.MediumText),
    sa.Column('tags', sa.Text),
    # Additions: the minimum number of servers of its batch; the lease with
    # owner, expiry (seconds since the epoch) and number of attempts; the
    # number of changes by the user; whether cell0 has an earlier record of it;
    # the failure, if cell0 could not record it; the quota limits under which
    # an embedding service accepted it (JSON, cellsched.quota.base.QuotaBatch).
    sa.Column('min_count', sa.Integer, nullable=False, default=1),
    sa.Column('lease_owner', sa.String(255)),
    sa.Column('lease_expires_at', mysql.DOUBLE),
    sa.Column('lease_count', sa.Integer, nullable=False, default=0),
    sa.Column('revision', sa.Integer, nullable=False, default=0),
    sa.Column('buried', sa.Boolean, nullable=False, default=False),
    sa.Column('failure', sa.Text),
    sa.Column('quota', sa.Text),
    sa.UniqueConstraint('instance_uuid',
                        name='uniq_build_requests0instance_uuid'),
    sa.Index('build_requests_project_id_idx', 'project_id'),
    sa.Index('build_requests_lease_expires_at_idx', 'lease_expires_at'),
)

request_specs = _table(
    'request_specs',
    sa.Column('instance_uuid', sa.String(36), nullable=False),
    sa.Column('spec', mysql.MediumText, nullable=False),
    sa.UniqueConstraint('instance_uuid',
                        name='uniq_request_specs0instance_uuid'),
)

flavors = _table(
    'flavors',
    sa.Column('name', sa.String(255), nullable=False),
    sa.Column('memory_mb', sa.Integer, nullable=False),
    sa.Column('vcpus', sa.Integer, nullable=False),
    sa.Column('root_gb', sa.Integer),
    sa.Column('ephemeral_gb', sa.Integer),
    sa.Column('flavorid', sa.String(255), nullable=False),
    sa.Column('swap', sa.Integer, nullable=False, default=0),
    sa.Column('rxtx_factor', sa.Float),
    sa.Column('vcpu_weight', sa.Integer),
    sa.Column('disabled', sa.Boolean, default=False),
    sa.Column('is_public', sa.Boolean, default=True),
    sa.Column('description', sa.Text),
    sa.UniqueConstraint('flavorid', name='uniq_flavors0flavorid'),
    sa.UniqueConstraint('name', name='uniq_flavors0name'),
)

flavor_extra_specs = _table(
    'flavor_extra_specs',
    sa.Column('key', sa.String(255), nullable=False),
    sa.Column('value', sa.String(255)),
    sa.Column('flavor_id', sa.Integer,
              sa.ForeignKey('flavors.id', name='fk_flavor_extra_specs_flavor'),
              nullable=False),
    sa.UniqueConstraint('flavor_id', 'key',
                        name='uniq_flavor_extra_specs0flavor_id0key'),
)

instance_groups = _table(
    'instance_groups',
    sa.Column('user_id', sa.String(255)),
    sa.Column('project_id', sa.String(255)),
    sa.Column('uuid', sa.String(36), nullable=False),
    sa.Column('name', sa.String(255)),
    sa.UniqueConstraint('uuid', name='uniq_instance_groups0uuid'),
    sa.Index('instance_groups_project_id_idx', 'project_id'),
)

instance_group_policy = _table(
    'instance_group_policy',
    sa.Column('policy', sa.String(255)),
    sa.Column('group_id', sa.Integer,
              sa.ForeignKey('instance_groups.id',
                            name='fk_instance_group_policy_group'),
              nullable=False),
    sa.Column('rules', sa.Text),
    sa.Index('instance_group_policy_policy_idx', 'policy'),
    sa.Index('instance_group_policy_group_id_idx', 'group_id'),
)

# The unique constraint is an addition.
instance_group_member = _table(
    'instance_group_member',
    sa.Column('instance_uuid', sa.String(255)),
    sa.Column('group_id', sa.Integer,
              sa.ForeignKey('instance_groups.id',
                            name='fk_instance_group_member_group'),
              nullable=False),
    sa.UniqueConstraint(
        'group_id', 'instance_uuid',
        name='uniq_instance_group_member0group_id0instance_uuid'),
    sa.Index('instance_group_member_instance_idx', 'instance_uuid'),
)

aggregates = _table(
    'aggregates',
    sa.Column('uuid', sa.String(36)),
    sa.Column('name', sa.String(255)),
    # Addition: the mark of the last change, also of hosts and metadata.
    *feed.mark_columns('aggregates'),
    sa.UniqueConstraint('name', name='uniq_aggregate0name'),
    sa.Index('aggregate_uuid_idx', 'uuid'),
)

aggregate_hosts = _table(
    'aggregate_hosts',
    sa.Column('host', sa.String(255)),
    sa.Column('aggregate_id', sa.Integer,
              sa.ForeignKey('aggregates.id',
                            name='fk_aggregate_hosts_aggregate'),
              nullable=False),
    sa.UniqueConstraint('host', 'aggregate_id',
                        name='uniq_aggregate_hosts0host0aggregate_id'),
)

aggregate_metadata = _table(
    'aggregate_metadata',
    sa.Column('aggregate_id', sa.Integer,
              sa.ForeignKey('aggregates.id',
                            name='fk_aggregate_metadata_aggregate'),
              nullable=False),
    sa.Column('key', sa.String(255), nullable=False),
    sa.Column('value', sa.String(255), nullable=False),
    sa.UniqueConstraint('aggregate_id', 'key',
                        name='uniq_aggregate_metadata0aggregate_id0key'),
    sa.Index('aggregate_metadata_key_idx', 'key'),
)

quotas = _table(
    'quotas',
    sa.Column('project_id', sa.String(255)),
    sa.Column('resource', sa.String(255), nullable=False),
    sa.Column('hard_limit', sa.Integer),
    sa.UniqueConstraint('project_id', 'resource',
                        name='uniq_quotas0project_id0resource'),
)

project_user_quotas = _table(
    'project_user_quotas',
    sa.Column('user_id', sa.String(255), nullable=False),
    sa.Column('project_id', sa.String(255), nullable=False),
    sa.Column('resource', sa.String(255), nullable=False),
    sa.Column('hard_limit', sa.Integer),
    sa.UniqueConstraint(
        'user_id', 'project_id', 'resource',
        name='uniq_project_user_quotas0user_id0project_id0resource'),
    sa.Index('project_user_quotas_project_id_idx', 'project_id'),
)

quota_classes = _table(
    'quota_classes',
    sa.Column('class_name', sa.String(255)),
    sa.Column('resource', sa.String(255)),
    sa.Column('hard_limit', sa.Integer),
    sa.Index('quota_classes_class_name_idx', 'class_name'),
)

# Addition: a row for each project with limits; counting locks it.
quota_locks = _table(
    'quota_locks',
    sa.Column('project_id', sa.String(255), nullable=False),
    sa.UniqueConstraint('project_id', name='uniq_quota_locks0project_id'),
)

# Addition: recorded decisions of schedulers and their instances.
scheduler_decisions = _table(
    'scheduler_decisions',
    sa.Column('uuid', sa.String(36), nullable=False),
    sa.Column('request_id', sa.String(255)),
    # In seconds since the epoch.
    sa.Column('decided_at', mysql.DOUBLE, nullable=False),
    sa.Column('document', mysql.MediumText, nullable=False),
    sa.UniqueConstraint('uuid', name='uniq_scheduler_decisions0uuid'),
    sa.Index('scheduler_decisions_request_id_idx', 'request_id'),
    sa.Index('scheduler_decisions_decided_at_idx', 'decided_at'),
)

decision_instances = _table(
    'decision_instances',
    sa.Column('decision_uuid', sa.String(36),
              sa.ForeignKey('scheduler_decisions.uuid',
                            name='fk_decision_instances_decision'),
              nullable=False),
    sa.Column('instance_uuid', sa.String(36), nullable=False),
    sa.UniqueConstraint(
        'decision_uuid', 'instance_uuid',
        name='uniq_decision_instances0decision_uuid0instance_uuid'),
    sa.Index('decision_instances_instance_uuid_idx', 'instance_uuid'),
)

# Addition: leases of tasks that one of several services performs.
leaders = _table(
    'leaders',
    sa.Column('name', sa.String(255), nullable=False),
    sa.Column('owner', sa.String(255), nullable=False),
    # In seconds since the epoch.
    sa.Column('expires_at', mysql.DOUBLE, nullable=False),
    sa.UniqueConstraint('name', name='uniq_leaders0name'),
)

# Addition: providers that the hosts of an aggregate share, such as storage.
shared_providers = _table(
    'shared_providers',
    sa.Column('uuid', sa.String(36), nullable=False),
    sa.Column('name', sa.String(255), nullable=False),
    sa.Column('aggregate_uuid', sa.String(36), nullable=False),
    # JSON: a list of trait names, and the inventory by resource class, from
    # which the claim store's inventory is set.
    sa.Column('traits', sa.Text, nullable=False),
    sa.Column('inventories', sa.Text, nullable=False),
    sa.UniqueConstraint('uuid', name='uniq_shared_providers0uuid'),
    sa.UniqueConstraint('name', name='uniq_shared_providers0name'),
    sa.Index('shared_providers_aggregate_uuid_idx', 'aggregate_uuid'),
)

# Addition: the feed of aggregates and shared providers. Changes are rare, so
# one lane suffices, and transactions that change several cannot deadlock.
FEED = feed.Feed('aggregate_lanes', METADATA, 1)
