# SPDX-License-Identifier: Apache-2.0
"""The servers that both sides list."""

import datetime
import random
import uuid

#: The creation of the first server; the next follows after one second.
BEGAN = datetime.datetime(2026, 1, 1)

#: Rows in one INSERT statement.
CHUNK = 5000


def rows(cells, servers):
    """Return the servers of each cell, with the columns that an API sets."""
    chance = random.Random(1)
    numbers = list(range(cells * servers))
    chance.shuffle(numbers)
    return [[row(number, chance) for number in numbers[cell::cells]]
            for cell in range(cells)]


def row(number, chance):
    created_at = BEGAN + datetime.timedelta(seconds=number)
    return {
        'uuid': str(uuid.UUID(int=chance.getrandbits(128))),
        'created_at': created_at, 'updated_at': created_at,
        'launched_at': created_at, 'deleted': 0, 'hidden': False,
        'project_id': uuid.UUID(int=number % 50).hex,
        'user_id': uuid.UUID(int=number % 200).hex,
        'display_name': f'server-{number}', 'image_ref': str(uuid.UUID(int=7)),
        'vm_state': 'active', 'task_state': None, 'power_state': 1,
        'vcpus': 4, 'memory_mb': 8192, 'root_gb': 40, 'ephemeral_gb': 0,
        'instance_type_id': 1, 'launch_index': 0,
        'host': f'host{number % 1000}', 'node': f'host{number % 1000}',
        'availability_zone': 'nova', 'reservation_id': f'r-{number}'}
