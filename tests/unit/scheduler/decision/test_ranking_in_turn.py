# SPDX-License-Identifier: Apache-2.0
"""What is kept from one ranking to the next changes none of them."""

import hypothesis
from hypothesis import strategies as st
import numpy as np

from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from cellsched.weighers import host_state
from cellsched.weighers import resources
from tests.unit import base
from tests.unit.hosts import allocation
from tests.unit.scheduler import toys

COUNT = 6

REQUEST = builders.request(vcpus=1, memory_mb=512, root_gb=1)

TAKEN = {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1}

_ROW = st.integers(0, COUNT - 1)

#: What may happen to a table: something is taken or given back, a host says
#: something new, the claim store does, or one host goes.
_STEPS = st.one_of(
    st.tuples(st.just('take'), _ROW), st.tuples(st.just('give'), _ROW),
    st.tuples(st.just('put'), _ROW), st.tuples(st.just('usage'), _ROW),
    st.tuples(st.just('drop'), _ROW))


def table():
    """Return hosts of which the first and the last are far from the others.

    As long as these stay, so do the extrema of all columns.
    """
    spread = [0, 3, 3, 4, 4, 9]
    return builders.table(
        vcpus_used=spread, free_ram_mb=[16000 - 1000 * each
                                        for each in spread],
        num_io_ops=spread)


def weighers(multipliers):
    kinds = (resources.CPUWeigher, resources.DiskWeigher,
             host_state.IoOpsWeigher, resources.RAMWeigher)
    return [builders.plugin(kind, **{kind.multiplier_name: multiplier})
            for kind, multiplier in zip(kinds, multipliers)]


class KeptFilter(toys.Filter):

    def cache_key(self, hosts, request):
        return ()


class TestRankings(base.TestCase):

    def change(self, table, step, row):
        if row >= len(table):
            return
        uuid = table['uuid'][row]
        if step == 'take':
            allocation.take(table, row, TAKEN)
        elif step == 'give':
            hosts = table.view(builders.NOW)
            hosts.take(row, TAKEN)
            table.rollback(table.reserve(hosts))
        elif step == 'put':
            table.put([uuid], {'free_ram_mb': 12000 + row, 'vcpus_used': 5})
        elif step == 'usage':
            table.set_usage(
                uuid, {'VCPU': 32, 'MEMORY_MB': 16384, 'DISK_GB': 100},
                {'VCPU': 5, 'MEMORY_MB': 4000 + row}, row)
        elif step == 'drop':
            table.drop([uuid])

    def outcome(self, decision, hosts):
        """Return all that a ranking says."""
        found = decision.weigh(REQUEST, decision.candidates(hosts, REQUEST))
        best = found.top(1)
        return {
            'best': best, 'order': list(found), 'rows': found.rows.tolist(),
            'second': found.second(best[0]) if best else None,
            'weights': found.weights.tolist(), 'tied': found.tied(),
            'shares': [found.weighed(row)[1] for row in best]}

    @hypothesis.given(
        steps=st.lists(_STEPS, max_size=8), out=st.lists(_ROW, max_size=2),
        multipliers=st.tuples(
            *[st.sampled_from([-1.5, 0.0, 1.0, 3.0])] * 4),
        kind=st.sampled_from([toys.Filter, KeptFilter]))
    def test_rankings_equal_rankings_of_a_fresh_table(
            self, steps, out, multipliers, kind):
        filters = [kind(lambda hosts: np.isin(
            hosts.rows, out, invert=True))] if out else []
        decision = pipeline.Pipeline(filters, weighers(multipliers))
        first, done = table(), []
        for step in [None, *steps]:
            if step is not None:
                done.append(step)
                self.change(first, *step)
            fresh = table()
            for each in done:
                self.change(fresh, *each)
            hosts = first.view(builders.NOW)
            self.assertEqual(self.outcome(decision, fresh.view(builders.NOW)),
                             self.outcome(decision, hosts))
            first.reuse(hosts)

    def test_other_multipliers_make_other_weights(self):
        hosts = table().view(builders.NOW)
        for multipliers in ([1.0] * 4, [1.0, 2.0, 1.0, 3.0], [1.0] * 4):
            decision = pipeline.Pipeline([], weighers(multipliers))
            self.assertEqual(
                self.outcome(decision, table().view(builders.NOW)),
                self.outcome(decision, hosts))

    def test_alike_rankings_add_up_once(self):
        decision = pipeline.Pipeline([toys.Filter(None)], weighers([1.0] * 4))
        hosts = builders.hosts(vcpus_used=[1, 2, 2], num_io_ops=[1, 2, 3])

        def weigh():
            return decision.weigh(
                REQUEST, decision.candidates(hosts, REQUEST))._weights

        first = weigh()
        self.assertIs(first, weigh())
        hosts.take(1, {'VCPU': 1})
        self.assertIsNot(first, weigh())

    def test_weigher_of_the_request_is_called_each_time(self):
        asked = []

        def score(hosts):
            asked.append(None)
            return np.arange(3.0)

        decision = pipeline.Pipeline([], [toys.Weigher(score)])
        hosts = builders.hosts(3)
        for _ in range(2):
            decision.weigh(REQUEST, decision.candidates(hosts, REQUEST))

        self.assertEqual(2, len(asked))

    def test_change_of_a_detached_ranking_affects_no_other_ranking(self):
        decision = pipeline.Pipeline([], weighers([1.0] * 4))
        hosts = builders.hosts(vcpus_used=[1, 2, 3])
        found = decision.candidates(hosts, REQUEST)
        first, second = (decision.weigh(REQUEST, found) for _ in range(2))
        before = second.weights.tolist()
        first.detach()
        first.change(1)
        first._own()[2] = 100.0

        self.assertEqual(before, second.weights.tolist())
        self.assertEqual(
            before, decision.weigh(REQUEST, found).weights.tolist())

    def test_detached_ranking_is_not_kept_for_later_rankings(self):
        """Its scores of the hosts that are out are not those of the hosts."""
        decision = pipeline.Pipeline([], weighers([1.0, 1.0, 0.0, 1.0]))
        used = [1, 4, 9]
        hosts = builders.hosts(vcpus_used=used)
        detached = decision.weigh(
            REQUEST, decision.candidates(hosts, REQUEST).without([1]))
        detached.detach()
        # That changes no score, and nothing is kept from now on.
        hosts.take(0, {})
        detached.add_up()

        self.assertEqual(
            self.outcome(decision, builders.hosts(vcpus_used=used)),
            self.outcome(decision, hosts))
