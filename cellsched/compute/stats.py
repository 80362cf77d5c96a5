# SPDX-License-Identifier: Apache-2.0
"""The statistics of a node, with Nova's names."""

import collections
from collections.abc import Iterable
from typing import Any

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
