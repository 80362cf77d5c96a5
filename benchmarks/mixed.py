# SPDX-License-Identifier: Apache-2.0
"""Decisions on different requests, on hosts that change in between.

Parameters: ``cloud`` and ``filters`` of ``decision.py``, and ``flavors``, the
number of flavors. A request has one of the flavors, one of the cloud's zones
or none, and one of a few images or none. The resources of a request are used
on its host before the next request. After every ``report_every`` requests, one
host in ``reporting`` reports again, other hosts each time.

The floor is that of ``decision.py``.
"""

import itertools

import cloud
import decision
import numpy as np

IMAGES = (None, {'hw_architecture': 'x86_64'}, {'img_hv_type': 'kvm'},
          {'hw_architecture': 'x86_64', 'hw_vm_mode': 'hvm'})

#: Columns that a host reports.
REPORTED = ('vcpus_used', 'free_ram_mb', 'free_disk_mb', 'disk_mb_used',
            'num_instances', 'num_io_ops', 'failed_builds', 'last_seen_up',
            'available:VCPU', 'available:MEMORY_MB', 'available:DISK_GB')


def run(parameters, repeat):
    """Return the samples of decisions and of their floor, in alternation."""
    decides = decision.make(parameters.get('filters'))
    table, located = cloud.table(cloud.document(parameters['cloud']))
    requests = itertools.cycle(different(parameters))
    read, numbers = decision.columns_read(
        decides, table, located, next(requests), 1
    ), np.random.default_rng(0).random(len(table))
    reports = reported(table, parameters['reporting'])
    samples = {'decision': [], 'floor': []}
    for number in range(repeat):
        if number % parameters['report_every'] == 0:
            table.put(*next(reports))
            table.publish()
        samples['decision'].append(decision.timed(
            decide, decides, table, located, next(requests)))
        samples['floor'].append(decision.timed(
            decision.read_once, read, numbers, 1))
    return samples


def decide(decides, table, located, request):
    """Select a host, and confirm the resources of the request on it."""
    hosts = decision.view_of(decides, table, located, request)
    ranking = decision.decide(decides, hosts, request, 1)
    hosts.take(ranking.top(1)[0], request.resources())
    table.confirm(table.reserve(hosts))
    table.reuse(hosts)


def different(parameters):
    """Return requests that all differ, in random order."""
    random = np.random.default_rng(parameters['cloud']['seed'])
    zones = [None, *(f'zone{number}' for number
                     in range(parameters['cloud']['zones']))]
    flavors = [{'vcpus': vcpus, 'memory_mb': 1024 * vcpus * share,
                'root_gb': gigabytes}
               for vcpus in (1, 2, 4, 8) for share in (1, 2, 4, 6, 8)
               for gigabytes in (10, 40)][:parameters['flavors']]
    found = [(flavor, zone, image) for flavor in flavors for zone in zones
             for image in IMAGES]
    random.shuffle(found)
    return [cloud.request(cloud.request_document({
        **flavor, **({'availability_zone': zone} if zone else {}),
        **({'image': image} if image else {})}))
        for flavor, zone, image in found]


def reported(table, one_in):
    """Yield other hosts each time, and the columns that they report."""
    before = {name: table[name].copy() for name in ('uuid', *REPORTED)}
    for first in itertools.count():
        rows = np.arange(first % one_in, len(table), one_in)
        yield before['uuid'][rows], {
            name: before[name][rows] for name in REPORTED}
