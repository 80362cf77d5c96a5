# SPDX-License-Identifier: Apache-2.0
"""Decisions on many hosts: requests like earlier ones, and others.

Parameters: ``hosts``, ``cells``, ``zones``, ``seed``, and ``fill`` with the
smallest and the largest used share. The host of each request changes before
the next request. ``other`` requests have amounts that no request had before.
After each, two requests have one and the same flavor: ``returned`` follows the
other request, and ``known`` follows a request like it.

The floor is that of ``decision.py``.
"""

import uuid

import decision
import mixed
import numpy as np

from cellsched.hosts.table import HostTable
from cellsched.testing import builders


def run(parameters, repeat):
    """Return the samples of decisions and of their floor, in alternation."""
    decides, table = decision.make(), table_of(parameters)
    known = builders.request(vcpus=4, memory_mb=8192, root_gb=40)
    read = decision.columns_read(decides, table, {}, known, 1)
    numbers = np.random.default_rng(0).random(len(table))
    samples = {'known': [], 'returned': [], 'other': [], 'floor': []}
    for _ in range(3):
        mixed.decide(decides, table, {}, known)
    for number in range(repeat):
        other = builders.request(
            vcpus=1 + number % 8, memory_mb=4097 + number, root_gb=1 + number)
        for name, request in (
                ('other', other), ('returned', known), ('known', known)):
            samples[name].append(decision.timed(
                mixed.decide, decides, table, {}, request))
        samples['floor'].append(decision.timed(
            decision.read_once, read, numbers, 1))
    return samples


def table_of(parameters):
    """Return random hosts of a few sizes, partly used, some down or disabled.

    They are like those of ``cloud.document``, which needs too much memory for
    so many.
    """
    random = np.random.default_rng(parameters['seed'])
    count, cells = parameters['hosts'], parameters['cells']
    vcpus = random.choice([32, 64, 128], count)
    used = random.uniform(*parameters['fill'], count)
    free = 1 - used * random.uniform(0.8, 1.0, (2, count))
    ram_mb, disk_gb = vcpus * 4096, vcpus * 40
    free_mb, free_gb = (ram_mb * free[0]) // 1, (disk_gb * free[1]) // 1
    vcpus_used = (vcpus * 4 * used) // 1
    numbers = range(count)
    uuids = [str(uuid.UUID(int=2 ** 64 + cell)) for cell in range(cells)]
    names = [f'host{number}' for number in numbers]
    made = HostTable()
    made.put([str(uuid.UUID(int=number + 1)) for number in numbers], {
        'host': names, 'nodename': names,
        'cell': [uuids[number * cells // count] for number in numbers],
        'availability_zone': [
            f'zone{number * cells // count % parameters["zones"]}'
            for number in numbers],
        'vcpus_total': vcpus, 'vcpus_used': vcpus_used,
        'cpu_allocation_ratio': 4.0, 'total_usable_ram_mb': ram_mb,
        'unreserved_ram_mb': ram_mb, 'free_ram_mb': free_mb,
        'total_usable_disk_gb': disk_gb, 'unreserved_disk_mb': disk_gb * 1024,
        'free_disk_mb': free_gb * 1024,
        'disk_mb_used': (disk_gb - free_gb) * 1024,
        'num_instances': vcpus * used // 4,
        'num_io_ops': random.integers(0, 9, count),
        'failed_builds': random.random(count) < 0.02,
        'hypervisor_type': 'QEMU',
        'hypervisor_version': random.choice([8002000, 9000000], count),
        'service_disabled': random.random(count) < 0.01,
        'last_seen_up': builders.NOW - np.where(
            random.random(count) < 0.01, 600.0, 5.0),
        'available:VCPU': vcpus * 4 - vcpus_used,
        'available:MEMORY_MB': free_mb, 'available:DISK_GB': free_gb})
    return made
