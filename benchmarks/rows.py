# SPDX-License-Identifier: Apache-2.0
"""The cost of a filter that checks one host at a time.

Parameters: those of ``decision.py``; one host is selected. The same decision
is made with such a filter named last, where it sees the hosts that passed the
filters on columns, and with it named first, where it sees all hosts with
enough capacity. It is an error if it sees other hosts, or if another host is
selected.

The floor is the decision without this filter.
"""

import cloud
import decision
from oslo_config import cfg

from cellsched.conf import opts
from cellsched.filters import base as filters
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.decision import registry
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.testing import builders


class CountingFilter(filters.BaseHostFilter):
    """A filter as written for Nova, which also counts the hosts it sees."""

    def __init__(self):
        self.seen = 0

    def host_passes(self, host_state, spec_obj):
        self.seen += 1
        return (host_state.free_ram_mb >= spec_obj.flavor.memory_mb
                and host_state.num_instances < 1000)


def run(parameters, repeat):
    """Return the samples of the three decisions, in alternation."""
    table, located = cloud.table(cloud.document(parameters['cloud']))
    request = cloud.request(cloud.request_document(parameters['request']))
    names, by_row = parameters['filters'], CountingFilter()
    floor = make(names)
    expected = decision.choose(floor, table, located, request, 1)

    def passing(made):
        hosts = table.view(builders.NOW, located)
        return len(made.candidates(hosts, request))

    decisions = {
        'floor': (floor, 0),
        f'last, sees {passing(floor)} hosts': (
            make(names, last=by_row), passing(floor)),
        f'first, sees {passing(make([]))} hosts': (
            make(names, first=by_row), passing(make([])))}
    samples = {what: [] for what in decisions}
    for _ in range(repeat):
        for what, (made, seen) in decisions.items():
            by_row.seen = 0
            samples[what].append(decision.timed(
                decision.choose, made, table, located, request, 1))
            if by_row.seen != seen:
                raise RuntimeError(f'{what}: it saw {by_row.seen} hosts')
    for what, (made, _) in decisions.items():
        found = decision.choose(made, table, located, request, 1)
        if found.top(1) != expected.top(1):
            raise RuntimeError(f'{what}: another host was chosen')
    return samples


def make(names, first=None, last=None):
    """Return a decision with these filters, and one on rows at either end."""
    conf = cfg.ConfigOpts()
    opts.register_opts(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    enabled = [*([filters.RowFilter(first)] if first else []),
               *registry.make_filters(conf, names),
               *([filters.RowFilter(last)] if last else [])]
    return pipeline.Pipeline(
        enabled, registry.make_weighers(
            conf, conf.filter_scheduler.weight_classes),
        filter_scheduler.mandatory_filters(conf))
