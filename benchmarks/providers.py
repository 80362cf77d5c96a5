# SPDX-License-Identifier: Apache-2.0
"""Decisions over hosts with child providers, beside plain ones there.

Parameters: ``hosts``; ``children`` of each, of which each has two of the six
resource classes that the host itself has not; ``requests``, the extra specs of
each beside a plain one of the same size, by what it is called.

One sample of each is taken in turn, on a table that nothing changes.
"""

import time
import uuid

import numpy as np

from cellsched.scheduler.decision import allocation
from cellsched.scheduler.decision import provider_groups
from cellsched.testing import builders
import decision

#: Of each kind of child provider, the classes and how much it has at most.
KINDS = (
    {'VGPU': 8, 'CUSTOM_GPU_MEMORY_GB': 64},
    {'NET_BW_EGR_KILOBIT_PER_SEC': 10_000_000,
     'NET_BW_IGR_KILOBIT_PER_SEC': 10_000_000},
    {'CUSTOM_DEVICE': 8, 'CUSTOM_LICENCE': 16},
)

SEED = 5


def run(parameters, repeat):
    """Return samples by request, taken in turns."""
    table = make(parameters['hosts'], parameters['children'])
    made = decision.make()
    size = {'vcpus': 4, 'memory_mb': 8192, 'root_gb': 40}
    requests = {'plain': builders.request(**size), **{
        name: builders.request(**size, extra_specs=specs)
        for name, specs in parameters['requests'].items()}}
    samples = {name: [] for name in requests}
    for request in requests.values():
        choose(made, table, request)
    for _ in range(repeat):
        for name, request in requests.items():
            began = time.perf_counter()
            choose(made, table, request)
            samples[name].append(time.perf_counter() - began)
    return samples


def choose(made, table, request):
    """Choose a host, and which of its providers give what."""
    hosts = table.view(builders.NOW)
    try:
        [row] = made.weigh(request, made.candidates(hosts, request)).top(1)
        amounts = request.resources()
        wants = provider_groups.asked(hosts, request, amounts)
        if wants is not None:
            amounts = allocation.allocate(hosts, row, wants).resources
        hosts.take(row, amounts)
    finally:
        table.reuse(hosts)


def make(count, children):
    """Return a table of hosts that are partly taken."""
    random = np.random.default_rng(SEED)
    uuids = [str(uuid.UUID(int=row + 1)) for row in range(count)]
    table = builders.table(
        count, uuid=uuids, vcpus_total=64, total_usable_ram_mb=262144,
        total_usable_disk_gb=4000,
        cell=[f'cell{row % 80}' for row in range(count)],
        child_uuids=[tuple(child(row, number) for number in range(children))
                     for row in range(count)],
        children=[tuple((0, frozenset({f'CUSTOM_KIND{number % len(KINDS)}'}))
                        for number in range(children))] * count)
    shares = random.random((count, children + 1)) * 0.9
    for row in range(count):
        share = shares[row, 0]
        table.set_usage(
            uuids[row], {'VCPU': 256, 'MEMORY_MB': 262144, 'DISK_GB': 4000},
            {'VCPU': int(256 * share), 'MEMORY_MB': int(262144 * share),
             'DISK_GB': int(4000 * share)}, 1)
        for number in range(children):
            has = KINDS[number % len(KINDS)]
            table.set_usage(child(row, number), has, {
                name: int(amount * shares[row, number + 1])
                for name, amount in has.items()}, 1)
    return table


def child(row, number):
    return str(uuid.UUID(int=(row + 1) * 1000 + 10 ** 9 + number))
