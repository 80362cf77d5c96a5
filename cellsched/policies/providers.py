# SPDX-License-Identifier: Apache-2.0
"""Rules of resource providers: ``api.providers``."""

from cellsched.policies import base

_API = 'cellsched:resource_providers'

RULES = base.rules(base.ADMIN, {
    f'{_API}:create': 'Add a sharing provider: api.providers.create.',
    f'{_API}:update': 'Change a sharing provider: api.providers.update.',
    f'{_API}:delete': 'Delete a sharing provider: api.providers.delete.',
    f'{_API}:show': 'Show a resource provider: api.providers.get.',
    f'{_API}:index': 'List resource providers: api.providers.list.',
})
