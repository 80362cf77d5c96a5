# SPDX-License-Identifier: Apache-2.0
"""Rules of server groups: ``api.server_groups``."""

from cellsched.policies import base

_API = 'os_compute_api:os-server-groups'

RULES = [
    *base.rules(base.PROJECT_MEMBER_OR_ADMIN, {
        f'{_API}:create': 'Add a server group: api.server_groups.create.',
        f'{_API}:delete': 'Delete a server group: api.server_groups.delete.',
    }),
    *base.rules(base.PROJECT_READER_OR_ADMIN, {
        f'{_API}:show': 'Show a server group: api.server_groups.get.',
        f'{_API}:index':
            'List server groups: api.server_groups.list_all. Administrators '
            'list those of all projects.',
    }),
]
