# SPDX-License-Identifier: Apache-2.0
"""Rules of host aggregates: ``api.aggregates``."""

from cellsched.policies import base

_API = 'os_compute_api:os-aggregates'

RULES = base.rules(base.ADMIN, {
    f'{_API}:create': 'Add an aggregate: api.aggregates.create.',
    f'{_API}:delete': 'Delete an aggregate: api.aggregates.delete.',
    f'{_API}:show': 'Show an aggregate: api.aggregates.get.',
    f'{_API}:index': 'List aggregates: api.aggregates.list_all.',
    f'{_API}:set_metadata':
        'Change the metadata of an aggregate: api.aggregates.set_metadata.',
    f'{_API}:add_host': 'Add hosts to an aggregate: api.aggregates.add_hosts.',
    f'{_API}:remove_host':
        'Take hosts out of an aggregate: api.aggregates.remove_hosts.',
})
