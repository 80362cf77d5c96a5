# SPDX-License-Identifier: Apache-2.0
"""The statistics of a node, with Nova's names."""

import collections
from collections.abc import Iterable
import json
from typing import Any

#: Characters that the properties of images may take as JSON. The column has
#: room for twice as many in MySQL.
_IMAGES_MAX = 32_000

#: What servers are in the middle of, that keeps disks and network busy.
_BUSY_TASKS = frozenset({
    'image_backup', 'image_snapshot', 'rebuilding', 'rescuing',
    'resize_migrating', 'resize_prep', 'unshelving'})


def of_servers(rows: Iterable[Any]) -> dict[str, int]:
    """Return the statistics that servers make.

    :param rows: how many ``servers`` there are of each ``vm_state``,
        ``task_state`` and ``project_id``
    """
    counts = collections.Counter({'num_instances': 0, 'io_workload': 0})
    for row in rows:
        counts['num_instances'] += row.servers
        counts[f'num_vm_{row.vm_state}'] += row.servers
        counts[f'num_task_{row.task_state}'] += row.servers
        counts[f'num_proj_{row.project_id}'] += row.servers
        # As in Nova, a server may count twice: as one that is built, and for
        # what is done with it.
        counts['io_workload'] += row.servers * (
            (row.vm_state == 'building') + (row.task_state in _BUSY_TASKS))
    return dict(counts)


def of_images(
    rows: Iterable[tuple[str, str, int]]
) -> dict[str, dict[str, dict[str, int]]]:
    """Return what the images of servers say, as a statistic.

    Where they say too much, the values that most servers have are kept.

    :param rows: property, value, and how many servers have it
    """
    said: dict[str, dict[str, int]] = {}
    left = _IMAGES_MAX
    for name, value, servers in sorted(
            rows, key=lambda row: (-row[2], row[0], row[1])):
        left -= len(json.dumps([name, value, servers])) + 4
        if left < 0:
            break
        said.setdefault(name, {})[value] = servers
    return {'image_props': said} if said else {}
