# SPDX-License-Identifier: Apache-2.0
"""Rules of servers: ``api.servers``, ``api.details``, ``api.history``."""

from cellsched.policies import base

_API = 'os_compute_api:servers'

RULES = [
    *base.rules(base.PROJECT_MEMBER_OR_ADMIN, {
        f'{_API}:create': 'Create servers: api.servers.create.',
        f'{_API}:delete': 'Delete a server: api.servers.delete.',
        f'{_API}:update': 'Rename a server: api.servers.update.',
        'os_compute_api:os-server-tags:update_all':
            'Change the tags of a server: api.servers.set_tags.',
        'cellsched:servers:retry':
            'Have a server in cell0 built again: api.servers.retry.',
    }),
    *base.rules(base.PROJECT_READER_OR_ADMIN, {
        f'{_API}:show':
            'Show a server: api.servers.get, api.details.get. Hosts and '
            'tracebacks are shown to administrators only.',
        f'{_API}:index':
            'List servers: api.servers.list. Administrators list those of '
            'all projects.',
        'os_compute_api:os-instance-actions:list':
            'List what was done with a server: api.history.actions.',
        f'{_API}:migrations:index':
            'List the moves of a server: api.history.migrations. Hosts are '
            'shown to administrators only.',
    }),
    *base.rules(base.ADMIN, {
        'os_compute_api:os-migrations:index:all_projects':
            'List the moves of all servers: api.history.migrations, where '
            'no server is named. The rule for those of one is asked too.',
    }),
]
