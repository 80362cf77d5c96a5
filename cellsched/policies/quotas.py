# SPDX-License-Identifier: Apache-2.0
"""Rules of quotas: ``api.quotas``."""

from cellsched.policies import base

_API = 'os_compute_api:os-quota-sets'

RULES = [
    *base.rules(base.PROJECT_READER_OR_ADMIN, {
        f'{_API}:show':
            'Show what a project may have, and has: api.quotas.get.',
    }),
    *base.rules(base.ADMIN, {
        f'{_API}:update': 'Set limits of a project: api.quotas.set.',
        f'{_API}:delete': 'Remove limits of a project: api.quotas.unset.',
        'cellsched:quotas:by_cell':
            'Show what a project has in each cell: api.quotas.by_cell.',
    }),
]
