# SPDX-License-Identifier: Apache-2.0
"""Rules of services, their hosts and cells.

They are those of ``api.services``, ``api.host_drain`` and ``api.cells``.
"""

from cellsched.policies import base

_API = 'os_compute_api:os-services'

RULES = base.rules(base.ADMIN, {
    f'{_API}:list': 'List services: api.services.list.',
    f'{_API}:update':
        'Disable, enable or force down a service: api.services.set.',
    f'{_API}:delete': 'Delete a service: api.services.delete.',
    'cellsched:hosts:drain':
        'Have the servers of a host go to others: api.host_drain.drain. Its '
        'service is disabled and its servers migrate by rules of their own.',
    'cellsched:hosts:evacuate':
        'Have the servers of a host that is down built on others: '
        'api.host_drain.evacuate. They do so by a rule of their own.',
    'cellsched:cells:index': 'List cells: api.cells.list.',
    'cellsched:cells:show': 'Show a cell: api.cells.get.',
})
