# SPDX-License-Identifier: Apache-2.0
"""Decisions on random hosts, without claims.

Parameters: ``cloud``, the parameters of ``cloud.document``; ``request``, those
of ``cloud.request_document``; ``filters`` and ``weighers`` by name, by default
the defaults and all weighers; ``instances``, the number of instances, which
are placed one at a time.

The floor is the time to read each column of the decision once, and to find the
maximum of an array of the same length.
"""

import time

import cloud
import numpy as np
from oslo_config import cfg

from cellsched.conf import opts
from cellsched.hosts import view
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.testing import builders


def run(parameters, repeat):
    """Return the samples of decisions and of their floor, in alternation."""
    decision = make(parameters.get('filters'), parameters.get('weighers'))
    table, located = cloud.table(cloud.document(parameters['cloud']))
    request = cloud.request(cloud.request_document(parameters['request']))
    instances = parameters.get('instances', 1)
    read, numbers = columns_read(
        decision, table, located, request, instances
    ), np.random.default_rng(0).random(len(table))
    samples = {'decision': [], 'floor': []}
    for _ in range(repeat):
        samples['decision'].append(timed(
            choose, decision, table, located, request, instances))
        samples['floor'].append(timed(
            read_once, read, numbers, instances))
    return samples


def timed(function, *args):
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


def choose(decision, table, located, request, instances):
    """Select hosts for the instances of a request; return the last ranking."""
    hosts = view_of(decision, table, located, request)
    try:
        return decide(decision, hosts, request, instances)
    finally:
        table.reuse(hosts)


def view_of(decision, table, located, request):
    """Return the hosts as a request sees them.

    Like a scheduler, it looks up the instances that the request names.
    """
    return table.view(builders.NOW, {
        uuid: located[uuid] for uuid in decision.located(request)
        if uuid in located})


def decide(decision, hosts, request, instances):
    """Select hosts in the view of a request; return the last ranking."""
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
        raise RuntimeError('no host passed; expected at least one')
    return ranking


def read_once(some_columns, numbers, times):
    for _ in range(times):
        for column in some_columns:
            if column.dtype == bool:
                np.count_nonzero(column)
            elif column.dtype != object:
                column.max()
        numbers.argmax()


def columns_read(decision, table, located, request, instances):
    """Return the columns that a decision reads."""
    recorder = Recorder(table.snapshot)
    decide(decision, view.Hosts(recorder, builders.NOW, located), request,
           instances)
    return [table[name] for name in sorted(recorder.read)]


class Recorder(view.MergedColumns):
    """Columns that record which of them were read."""

    def __init__(self, snapshot):
        super().__init__(snapshot)
        self.read = set()

    def __getitem__(self, name):
        self.read.add(name)
        return super().__getitem__(name)


def make(filter_names=None, weigher_names=None):
    """Return the decision pipeline of a scheduler."""
    conf = cfg.ConfigOpts()
    opts.register_opts(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    return filter_scheduler.pipeline_of(conf, filter_names, weigher_names)
