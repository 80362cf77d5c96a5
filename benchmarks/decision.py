# SPDX-License-Identifier: Apache-2.0
"""Decisions over random hosts, without claims.

Parameters: ``cloud``, the hosts as ``cloud.py`` makes them; ``request`` as
``cloud.py`` makes it; ``filters`` and ``weighers`` by name, all weighers if
they are not named; ``instances`` to choose hosts for, one by one.

The floor is to read each column that the decision reads once, and to find
the greatest of as many numbers.
"""

import time

import cloud
import numpy as np
from oslo_config import cfg

from cellsched.conf import opts
from cellsched.hosts import table as table_
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.testing import builders


def run(parameters, repeat):
    """Return the samples of decisions and of their floor, taken in turns."""
    decision = make(parameters.get('filters'), parameters.get('weighers'))
    table, located = cloud.table(
        cloud.document(parameters['cloud']), Recorder)
    request = cloud.request(cloud.request_document(parameters['request']))
    instances = parameters.get('instances', 1)
    before = contents(table)
    table.read.clear()
    choose(decision, table, located, request, instances)
    read, numbers = sorted(table.read), np.random.default_rng(0).random(
        len(table))
    samples = {'decision': [], 'floor': []}
    for _ in range(repeat):
        if instances > 1:
            table.put(before['uuid'], before)
        samples['decision'].append(timed(
            choose, decision, table, located, request, instances))
        samples['floor'].append(timed(
            read_once, [table[name] for name in read], numbers, instances))
    return samples


def timed(function, *args):
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


def choose(decision, table, located, request, instances):
    """Choose hosts for instances of a request; return the last choice."""
    # Those that the request names are looked up, as a scheduler does.
    hosts = table.view(builders.NOW, {
        uuid: located[uuid] for uuid in decision.located(request)
        if uuid in located})
    candidates = decision.candidates(hosts, request)
    ranking = decision.weigh(request, candidates)
    for number in range(instances - 1):
        if not number:
            ranking.detach()
        row = ranking.top(1)[0]
        hosts.take(row, request.resources())
        candidates = decision.recheck(request, candidates, row)
        ranking = decision.reweigh(request, candidates, ranking, row)
    if not ranking.top(1):
        raise RuntimeError('no host passed: this times nothing')
    return ranking


def read_once(some_columns, numbers, times):
    for _ in range(times):
        for column in some_columns:
            if column.dtype == bool:
                np.count_nonzero(column)
            elif column.dtype != object:
                column.max()
        numbers.argmax()


class Recorder(table_.HostTable):
    """A table that knows which of its columns were read."""

    read: set[str] = set()

    def __getitem__(self, name):
        self.read.add(name)
        return super().__getitem__(name)


def make(filter_names=None, weigher_names=None):
    """Return a decision as a scheduler makes it."""
    conf = cfg.ConfigOpts()
    opts.register_opts(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    return filter_scheduler.pipeline_of(conf, filter_names, weigher_names)


def contents(table):
    """Return what decisions change, to be put back between them."""
    changing = ('vcpus_used', 'free_ram_mb', 'free_disk_mb', 'disk_mb_used',
                'num_instances', 'num_io_ops', 'room:VCPU', 'room:MEMORY_MB',
                'room:DISK_GB')
    return {name: table[name].copy() for name in ('uuid', *changing)}
