# SPDX-License-Identifier: Apache-2.0
"""Rules of flavors: ``api.flavors``."""

from oslo_policy import policy

from cellsched.policies import base

_MANAGE = 'os_compute_api:os-flavor-manage'

RULES = [
    policy.RuleDefault(
        'cellsched:flavors:show', '@', scope_types=['project'],
        description='Show and list flavors: api.flavors.get, '
                    'api.flavors.list_all. Nova asks no rule for that '
                    'either.'),
    *base.rules(base.ADMIN, {
        f'{_MANAGE}:create': 'Add a flavor: api.flavors.create.',
        f'{_MANAGE}:delete': 'Delete a flavor: api.flavors.delete.',
        'os_compute_api:os-flavor-extra-specs:update':
            'Set and remove extra specs of a flavor: '
            'api.flavors.set_extra_specs.',
    }),
]
