# SPDX-License-Identifier: Apache-2.0
"""Results that are kept and repaired equal those that are made anew."""

from unittest import mock

import hypothesis
from hypothesis import strategies as st

from cellsched.filters import availability_zone
from cellsched.filters import compute
from cellsched.scheduler.decision import kept
from cellsched.scheduler.decision import mandatory_stages
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.decision import ranking
from cellsched.testing import builders
from cellsched.weighers import host_state
from cellsched.weighers import resources
from tests.unit import base

COUNT = 60

TAKEN = {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1}

REQUESTS = [builders.request(
    vcpus=vcpus, memory_mb=512, root_gb=1,
    **({'availability_zone': zone} if zone else {}))
    for vcpus in (1, 20) for zone in (None, 'zone0', 'zone2')]

_KINDS = (resources.CPUWeigher, resources.DiskWeigher, resources.RAMWeigher,
          host_state.IoOpsWeigher, host_state.HypervisorVersionWeigher,
          host_state.BuildFailureWeigher)


def table(equal=False):
    spread = [0 if equal else number * 7 % 23 for number in range(COUNT)]
    return builders.table(
        vcpus_used=spread, free_ram_mb=[
            16000 - 500 * each for each in spread],
        num_io_ops=[each % 4 for each in spread],
        hypervisor_version=[1 + each % 2 for each in spread],
        availability_zone=[f'zone{number // 20}' for number in range(COUNT)],
        **{'available:VCPU': [32 - each for each in spread],
           'available:MEMORY_MB': [16000 - 500 * each for each in spread],
           'available:DISK_GB': [100] * COUNT})


def decision(sign):
    destinations = mandatory_stages.destination_stages(60.0)
    return pipeline.Pipeline(
        [builders.plugin(compute.ComputeFilter),
         builders.plugin(availability_zone.AvailabilityZoneFilter)],
        [builders.plugin(kind, **{kind.multiplier_name: sign * (1.0 + number)})
         for number, kind in enumerate(_KINDS)], destinations)


def plain_decision(sign):
    """Return a decision that keeps nothing."""
    made = decision(sign)
    calls = made._calls

    def scores(weigher, hosts, request):
        found = calls.scores(weigher, hosts, request)
        return None if found is None else (found, None)
    calls.key = lambda *arguments: None
    calls.kept_scores = scores
    return made


_STEP = st.tuples(
    st.sampled_from(['take', 'take', 'give', 'report', 'usage', 'beat',
                     'drop', 'cell', 'wait']),
    st.integers(0, COUNT - 1))


def change(table, now, step, row):
    """Change a table; return the time."""
    if row >= len(table):
        return now
    uuid = table['uuid'][row]
    if step in ('take', 'give'):
        with table.viewed(now) as hosts:
            hosts.take(row, TAKEN)
            taken = table.reserve(hosts)
        (table.confirm if step == 'take' else table.rollback)(taken)
    elif step == 'report':
        table.put([uuid], {
            'num_io_ops': row % 5, 'failed_builds': row % 2,
            'hypervisor_version': 3, 'vcpus_total': 16 + row})
    elif step == 'usage':
        table.set_usage(
            uuid, {'VCPU': 32, 'MEMORY_MB': 16384, 'DISK_GB': 100},
            {'VCPU': row % 33, 'MEMORY_MB': 4000 + row}, row % 3)
    elif step == 'beat':
        table.put([table['uuid'][each] for each in range(row, len(table), 7)],
                  {'last_seen_up': now})
    elif step == 'drop':
        table.drop([uuid])
    elif step == 'cell':
        table.cells.disable({'cell1': 'one'} if row % 2 else {})
    return now + (25 if step == 'wait' else 0)


def outcome(decides, hosts, request, start):
    """Return all that a decision says."""
    found = decides.candidates(hosts, request)
    ranking = decides.weigh(request, found)
    answer = {
        'steps': [(step.stage.name, step.entered, step.left,
                   step.rejected.tolist()) for step in found.filtered.steps],
        'rows': found.rows.tolist(), 'count': len(ranking),
        'best': ranking.top(1, start=start), 'few': ranking.top(5),
        'turned': ranking.top(9, start=start),
        'among': ranking.top(3, among=found.rows[::2])}
    for row in answer['best']:
        weight, shares = ranking.weighed(row)
        answer |= {'second': ranking.second(row), 'weight': weight, 'shares': {
            share.by: share for share in shares if share.weight}}
    return answer | {'weights': ranking.weights.tolist(),
                     'order': list(ranking)}


class TestKeptResults(base.TestCase):

    @hypothesis.settings(max_examples=60, deadline=None)
    @hypothesis.given(
        steps=st.lists(st.tuples(_STEP, st.integers(0, 5)), max_size=10),
        start=st.sampled_from([0.0, 0.4, 0.99]),
        sign=st.sampled_from([1.0, -1.0]), equal=st.booleans(),
        most=st.sampled_from([8, 1000]))
    def test_kept_results_equal_results_of_a_fresh_table(
            self, steps, start, sign, equal, most):
        decides, plain = decision(sign), plain_decision(sign)
        first, done = table(equal), []
        now = builders.NOW
        with mock.patch.multiple(
                kept, LARGE=0, CHUNK=8, _BLOCK_MIN=2, _LEADERS=4,
                _LEADERS_MAX=8, _CONTENDERS_MAX=most), mock.patch.object(
                    ranking, 'CHUNK', 7):
            for step, number in [(('none', 0), 0), *steps, *steps[-1:]]:
                now = change(first, now, *step)
                done.append(step)
                fresh, time = table(equal), builders.NOW
                for each in done:
                    time = change(fresh, time, *each)
                hosts = first.view(now)
                self.assertEqual(
                    outcome(plain, fresh.view(now), REQUESTS[number], start),
                    outcome(decides, hosts, REQUESTS[number], start))
                first.reuse(hosts)

    @mock.patch.object(kept, 'LARGE', 0)
    def test_only_changed_hosts_are_filtered_again(self):
        decides, hosts = decision(1.0), table()
        view = hosts.view(builders.NOW)
        outcome(decides, view, REQUESTS[0], 0.0)
        hosts.reuse(view)
        change(hosts, builders.NOW, 'take', 3)
        asked = []

        def keep(self, some, request):
            asked.append(some.rows.tolist())
            return some['vcpus_used'] < 30
        with mock.patch.object(
                type(decides._needs(view, REQUESTS[0])[-1]), 'keep', keep):
            view = hosts.view(builders.NOW)
            decides.candidates(view, REQUESTS[0])

        self.assertEqual([[3]] * 3, asked)
