# SPDX-License-Identifier: Apache-2.0
"""Text compared by bytes, and all of Unicode, on MariaDB and MySQL."""

from alembic import op

from cellsched.db import mysql

revision = '3b7e61c9f0d4'
down_revision = 'f19c02d8ab53'

TABLES = (
    'cell_mappings',
    'host_mappings',
    'instance_mappings',
    'build_requests',
    'request_specs',
    'flavors',
    'flavor_extra_specs',
    'instance_groups',
    'instance_group_policy',
    'instance_group_member',
    'aggregates',
    'aggregate_hosts',
    'aggregate_metadata',
    'quotas',
    'project_user_quotas',
    'quota_classes',
    'quota_locks',
    'scheduler_decisions',
    'decision_instances',
)


def upgrade():
    mysql.set_collation(op.get_bind(), TABLES)
