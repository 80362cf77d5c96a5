# SPDX-License-Identifier: Apache-2.0
"""Decisions over random hosts, without claims.

Parameters: ``hosts``, ``cells``, ``zones``, ``seed``; ``filters`` and
``weighers`` by name; ``request`` with fields of the request and its flavor,
and in ``avoid`` how many servers to keep away from; ``instances`` to choose
hosts for, one by one; ``best``, how many hosts to order.

The floor is to read each column that the plug-ins read once, and to find the
greatest of as many numbers.
"""

import time
import uuid

import numpy as np

from cellsched.filters import base as filters
from cellsched.hosts import columns
from cellsched.hosts import table
from cellsched import plugins
from cellsched.scheduler import pipeline
from cellsched.testing import builders
from cellsched.weighers import base as weighers


def run(parameters, repeat):
    """Return the samples of decisions and of their floor, taken in turns."""
    decision = pipeline.Pipeline(
        make(plugins.FILTERS, parameters['filters'], filters.Filter),
        make(plugins.WEIGHERS, parameters['weighers'], weighers.Weigher))
    hosts, request = make_hosts(parameters), make_request(parameters)
    instances, best = parameters.get('instances', 1), parameters['best']
    before = contents(hosts)
    hosts.read.clear()
    choose(decision, hosts, request, instances, best)
    read, numbers = sorted(hosts.read), np.random.default_rng(0).random(
        len(hosts))
    samples = {'decision': [], 'floor': []}
    for _ in range(repeat):
        if instances > 1:
            hosts.put(before['uuid'], before)
        samples['decision'].append(timed(
            choose, decision, hosts, request, instances, best))
        samples['floor'].append(timed(
            read_once, [hosts[name] for name in read], numbers, instances))
    return samples


def timed(function, *args):
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


def choose(decision, hosts, request, instances, best):
    """Choose hosts for instances, and order the best for the last of them."""
    candidates = decision.candidates(hosts, request)
    ranking = decision.weigh(hosts, request, candidates)
    resources = request.resources()
    for _ in range(instances - 1):
        hosts.take(next(iter(ranking)), resources)
        candidates = decision.recheck(hosts, request, candidates)
        ranking = decision.weigh(hosts, request, candidates)
    if len(ranking.top(best)) != best:
        raise RuntimeError('too few hosts passed: this times nothing')


def read_once(some_columns, numbers, times):
    for _ in range(times):
        for column in some_columns:
            if column.dtype == bool:
                np.count_nonzero(column)
            else:
                column.max()
        numbers.argmax()


class Recorder(table.HostTable):
    """A table that knows which of its columns were read."""

    read: set[str] = set()

    def __getitem__(self, name):
        self.read.add(name)
        return super().__getitem__(name)


def make(namespace, names, base):
    return [builders.plugin(plugin) for plugin
            in plugins.load_all(namespace, names, base=base).values()]


def make_hosts(parameters):
    """Return hosts of a few sizes, in use, a few of them down or disabled."""
    random = np.random.default_rng(parameters['seed'])
    count = parameters['hosts']
    uuids = [str(uuid.UUID(int=number + 1)) for number in range(count)]
    vcpus = random.choice([32, 64, 128], count)
    ram_mb, disk_gb = vcpus * 4096, vcpus * 40
    used = random.uniform(0.0, 1.0, count)
    vcpus_used = (vcpus * 4 * used).astype(int)
    free_ram_mb = (ram_mb * (1 - used * random.uniform(0.8, 1.0, count))
                   ).astype(int)
    free_disk_gb = (disk_gb * (1 - used * random.uniform(0.3, 1.0, count))
                    ).astype(int)
    cell = np.arange(count) * parameters['cells'] // count
    zone = cell % parameters['zones']
    hosts = Recorder(columns.STANDARD)
    hosts.put(uuids, {
        'host': [f'host{number}' for number in range(count)],
        'cell': [f'cell{number}' for number in cell],
        'availability_zone': [f'zone{number}' for number in zone],
        'service_disabled': random.random(count) < 0.01,
        'last_seen_up': builders.NOW - random.choice(
            [5.0, 600.0], count, p=[0.99, 0.01]),
        'vcpus_total': vcpus, 'vcpus_used': vcpus_used,
        'cpu_allocation_ratio': 4.0,
        'total_usable_ram_mb': ram_mb, 'unreserved_ram_mb': ram_mb,
        'free_ram_mb': free_ram_mb,
        'total_usable_disk_gb': disk_gb, 'unreserved_disk_mb': disk_gb * 1024,
        'free_disk_mb': free_disk_gb * 1024,
        'num_instances': (vcpus_used // 8),
        'room:VCPU': vcpus * 4 - vcpus_used, 'room:MEMORY_MB': free_ram_mb,
        'room:DISK_GB': free_disk_gb,
    })
    located = {str(uuid.UUID(int=2 ** 64 + number)): uuids[row]
               for number, row in enumerate(random.integers(0, count, 100))}
    return hosts.view(builders.NOW, located)


def make_request(parameters):
    fields = dict(parameters['request'])
    avoid = [str(uuid.UUID(int=2 ** 64 + number))
             for number in range(fields.pop('avoid', 0))]
    hints = {'different_host': avoid} if avoid else {}
    return builders.request(hints=hints, **fields)


def contents(hosts):
    """Return what decisions change, to be put back between them."""
    changing = ('vcpus_used', 'free_ram_mb', 'free_disk_mb', 'disk_mb_used',
                'num_instances', 'num_io_ops', 'room:VCPU', 'room:MEMORY_MB',
                'room:DISK_GB')
    return {name: hosts[name].copy() for name in ('uuid', *changing)}
