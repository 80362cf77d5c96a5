# SPDX-License-Identifier: Apache-2.0
"""Rules of moves: ``api.moves``."""

from cellsched.policies import base

RULES = [
    *base.rules(base.PROJECT_MEMBER_OR_ADMIN, {
        'os_compute_api:servers:rebuild':
            'Build a server anew on its host: api.moves.rebuild.',
        'os_compute_api:os-shelve:shelve':
            'Have a server leave its host: api.moves.shelve.',
        'os_compute_api:os-shelve:unshelve':
            'Have a shelved server come back: api.moves.unshelve.',
    }),
    *base.rules(base.ADMIN, {
        'os_compute_api:os-evacuate':
            'Build a server of a host that is down on another one: '
            'api.moves.evacuate.',
        'os_compute_api:os-migrate-server:migrate':
            'Have a server go to another host: api.moves.migrate.',
        'os_compute_api:os-migrate-server:migrate:host':
            'Say to which host it goes: api.moves.migrate with a host.',
    }),
]
