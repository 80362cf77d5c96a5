# SPDX-License-Identifier: Apache-2.0
"""Every rule with its default, in the order of oslo.policy's sample file.

The rules that other rules refer to come first. A rule that Nova has too has
Nova's name and default, so that a ``policy.yaml`` written for Nova keeps its
meaning. The description names the method of the API that checks the rule.
"""

from collections.abc import Mapping

from oslo_policy import policy

CONTEXT_IS_ADMIN = 'context_is_admin'

_ADMIN = 'rule:admin_api'
_MEMBER_OR_ADMIN = 'rule:project_member_or_admin'
_READER_OR_ADMIN = 'rule:project_reader_or_admin'

_BASE = {
    CONTEXT_IS_ADMIN: ('role:admin', (
        'Administrators, who read and change the resources of every project. '
        'A front end may also set is_admin in the context.')),
    'admin_api': ('is_admin:True', (
        'Administrators, as context_is_admin defines them.')),
    'project_manager_api': ('role:manager and project_id:%(project_id)s', (
        'Managers of the project that owns the resource. No default refers '
        'to this rule.')),
    'project_member_api': ('role:member and project_id:%(project_id)s', (
        'Members of the project that owns the resource.')),
    'project_reader_api': ('role:reader and project_id:%(project_id)s', (
        'Readers of the project that owns the resource.')),
    'project_manager_or_admin': (
        'rule:project_manager_api or rule:admin_api', (
            'Managers of the project, and administrators. No default refers '
            'to this rule.')),
    'project_member_or_admin': (
        'rule:project_member_api or rule:admin_api', (
            'Members of the project, and administrators.')),
    'project_reader_or_admin': (
        'rule:project_reader_api or rule:admin_api', (
            'Readers of the project, and administrators.')),
}

_SERVERS = 'os_compute_api:servers'
_GROUPS = 'os_compute_api:os-server-groups'
_AGGREGATES = 'os_compute_api:os-aggregates'
_PROVIDERS = 'cellsched:resource_providers'
_QUOTAS = 'os_compute_api:os-quota-sets'
_SERVICES = 'os_compute_api:os-services'
_CREATE = f'{_SERVERS}:create'
_MIGRATE = 'os_compute_api:os-migrate-server:migrate'

#: Rules of methods, each with its description, by default.
_OPERATIONS: tuple[tuple[str, Mapping[str, str]], ...] = (
    (_MEMBER_OR_ADMIN, {
        _CREATE: 'Create servers: api.servers.create.',
        f'{_SERVERS}:delete': 'Delete a server: api.servers.delete.',
        f'{_SERVERS}:update': 'Rename a server: api.servers.update.',
        'os_compute_api:os-server-tags:update_all':
            'Replace the tags of a server: api.servers.set_tags.',
        'cellsched:servers:retry':
            'Build a server in cell0 again: api.servers.retry.',
    }),
    (_READER_OR_ADMIN, {
        f'{_SERVERS}:show':
            'Show a server: api.servers.get, api.details.get. Only '
            'administrators see hosts and tracebacks.',
        f'{_SERVERS}:index':
            'List servers: api.servers.list. Administrators list the servers '
            'of all projects.',
        'os_compute_api:os-instance-actions:list':
            'List the actions on a server: api.history.actions.',
        f'{_SERVERS}:migrations:index':
            'List the moves of a server: api.history.migrations. Only '
            'administrators see hosts.',
    }),
    (_ADMIN, {
        f'{_CREATE}:forced_host':
            'Force servers to a host or a node that no filter checks: '
            'api.servers.create with the zone ZONE:HOST.',
        'compute:servers:create:requested_destination':
            'Choose the host or the node of servers, which the filters '
            'check: api.servers.create with host or hypervisor_hostname.',
        'os_compute_api:os-migrations:index:all_projects':
            'List the moves of all servers: api.history.migrations without a '
            'server. The rule for the moves of one server is checked too.',
    }),
    (_MEMBER_OR_ADMIN, {
        f'{_SERVERS}:rebuild':
            'Rebuild a server on its host: api.moves.rebuild.',
        'os_compute_api:os-shelve:shelve':
            'Shelve a server and remove it from its host: api.moves.shelve.',
        'os_compute_api:os-shelve:unshelve':
            'Restore a shelved server: api.moves.unshelve.',
    }),
    (_ADMIN, {
        'os_compute_api:os-evacuate':
            'Rebuild a server of a failed host on another host: '
            'api.moves.evacuate.',
        'os_compute_api:os-admin-actions:reset_state':
            'Set the state of a server: api.servers.reset_state.',
        _MIGRATE: 'Migrate a server to another host: api.moves.migrate.',
        f'{_MIGRATE}:host':
            'Choose the destination host: api.moves.migrate with a host.',
    }),
    (_MEMBER_OR_ADMIN, {
        f'{_GROUPS}:create':
            'Create a server group: api.server_groups.create.',
        f'{_GROUPS}:delete':
            'Delete a server group: api.server_groups.delete.',
    }),
    (_READER_OR_ADMIN, {
        f'{_GROUPS}:show': 'Show a server group: api.server_groups.get.',
        f'{_GROUPS}:index':
            'List server groups: api.server_groups.list_all. Administrators '
            'list the groups of all projects.',
    }),
    ('@', {
        'cellsched:flavors:show':
            'Show and list flavors: api.flavors.get, api.flavors.list_all. '
            'Every user may, as in Nova.',
    }),
    (_ADMIN, {
        'os_compute_api:os-flavor-manage:create':
            'Create a flavor: api.flavors.create.',
        'os_compute_api:os-flavor-manage:delete':
            'Delete a flavor: api.flavors.delete.',
        'os_compute_api:os-flavor-extra-specs:update':
            'Set and remove extra specs of a flavor: '
            'api.flavors.set_extra_specs.',
        f'{_AGGREGATES}:create':
            'Create an aggregate: api.aggregates.create.',
        f'{_AGGREGATES}:delete':
            'Delete an aggregate: api.aggregates.delete.',
        f'{_AGGREGATES}:show': 'Show an aggregate: api.aggregates.get.',
        f'{_AGGREGATES}:index': 'List aggregates: api.aggregates.list_all.',
        f'{_AGGREGATES}:set_metadata':
            'Change the metadata of an aggregate: '
            'api.aggregates.set_metadata.',
        f'{_AGGREGATES}:add_host':
            'Add hosts to an aggregate: api.aggregates.add_hosts.',
        f'{_AGGREGATES}:remove_host':
            'Remove hosts from an aggregate: api.aggregates.remove_hosts.',
        f'{_PROVIDERS}:create':
            'Create a sharing provider: api.providers.create.',
        f'{_PROVIDERS}:update':
            'Change a sharing provider: api.providers.update.',
        f'{_PROVIDERS}:delete':
            'Delete a sharing provider: api.providers.delete.',
        f'{_PROVIDERS}:show': 'Show a resource provider: api.providers.get.',
        f'{_PROVIDERS}:index':
            'List resource providers: api.providers.list.',
    }),
    (_READER_OR_ADMIN, {
        f'{_QUOTAS}:show':
            'Show the limits and the usage of a project: api.quotas.get.',
    }),
    (_ADMIN, {
        f'{_QUOTAS}:update': 'Set limits of a project: api.quotas.set.',
        f'{_QUOTAS}:delete': 'Remove limits of a project: api.quotas.unset.',
        'cellsched:quotas:by_cell':
            'Show the usage of a project in each cell: api.quotas.by_cell.',
        f'{_SERVICES}:list': 'List services: api.services.list.',
        f'{_SERVICES}:update':
            'Disable, enable or force down a service: api.services.set.',
        f'{_SERVICES}:delete': 'Delete a service: api.services.delete.',
        'cellsched:hosts:drain':
            'Disable a host and migrate its servers: api.host_drain.drain. '
            'The rules for services and migrations are checked too.',
        'cellsched:hosts:evacuate':
            'Evacuate all servers of a failed host: api.host_drain.evacuate. '
            'The rule for evacuations is checked too.',
        'cellsched:cells:index': 'List cells: api.cells.list.',
        'cellsched:cells:show': 'Show a cell: api.cells.get.',
    }),
)


def list_rules() -> list[policy.RuleDefault]:
    """Return all rules; the entry point of oslo.policy's commands."""
    return [
        *(policy.RuleDefault(name, check, description=description)
          for name, (check, description) in _BASE.items()),
        *(policy.RuleDefault(name, check, description=description,
                             scope_types=['project'])
          for check, rules in _OPERATIONS
          for name, description in rules.items())]
