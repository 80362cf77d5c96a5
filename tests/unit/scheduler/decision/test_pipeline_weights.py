# SPDX-License-Identifier: Apache-2.0
"""The weights of all weighers together are those of Nova's formula."""

import hypothesis
from hypothesis import strategies as st
import numpy as np

from cellsched import exception
from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from cellsched.weighers import metrics
from tests import profile
from tests.unit import base
from tests.unit.scheduler import toys
from tests.unit.scheduler import weights


class Narrowing(toys.Filter):
    """Sees hosts that are left only, and so does what comes after it."""

    by_row = True


class TestWeights(base.TestCase):

    def assertWeights(self, ranking, rows, world, multipliers):
        self.assertEqual(list(rows), ranking.rows.tolist())
        np.testing.assert_allclose(
            ranking.weights, world.weights(rows, multipliers),
            rtol=1e-9, atol=1e-9)

    def decision(self, data, world, multipliers, *filters):
        out = data.draw(st.lists(st.integers(0, 5), max_size=2))
        narrowing = [Narrowing(lambda hosts: np.ones(len(hosts), bool))]
        return pipeline.Pipeline(
            [toys.Filter(lambda hosts: np.isin(
                hosts.rows, out, invert=True)),
             *data.draw(st.sampled_from([[], narrowing])), *filters],
            weights.weighers(multipliers))

    @hypothesis.given(world=weights.worlds(), multipliers=weights.settings(),
                      data=st.data())
    @profile.few_examples
    def test_sum_of_all_weighers_equals_the_formula(
            self, world, multipliers, data):
        decision = self.decision(data, world, multipliers)

        found = decision.candidates(world.table, world.request)
        ranking = decision.weigh(world.request, found)

        self.assertWeights(ranking, found.rows, world, multipliers)

    @hypothesis.given(world=weights.worlds(), multipliers=weights.settings(),
                      data=st.data())
    @profile.few_examples
    def test_shares_of_a_host_add_up_to_its_weight(
            self, world, multipliers, data):
        decision = self.decision(data, world, multipliers)

        found = decision.candidates(world.table, world.request)
        ranking = decision.weigh(world.request, found)

        for row, weight in zip(ranking.rows, ranking.weights):
            shares = [share.weight for share in ranking.weighed(row)[1]]
            np.testing.assert_allclose(sum(shares), weight, 1e-9, 1e-9)
            np.testing.assert_allclose(ranking.weighed(row)[0], weight)

    @hypothesis.given(world=weights.worlds(), multipliers=weights.settings(),
                      data=st.data())
    @profile.few_examples
    def test_weights_after_a_choice_equal_fresh_weights(
            self, world, multipliers, data):
        # What is begun in a cell can put all of its hosts out at a time.
        hosts, request = world.table, world.request
        busy = 1 + data.draw(
            st.sampled_from([*hosts['cell_builds'].tolist(), 99]))
        decision = self.decision(
            data, world, multipliers,
            toys.Filter(lambda hosts: hosts['cell_builds'] < busy))
        found = decision.candidates(hosts, request)
        ranking = decision.weigh(request, found)

        new = [uuid for uuid in dict.fromkeys(world.group.get('members', ()))
               if not len(hosts.rows_of([uuid]))]
        for uuid in [*new, 'a', 'b', 'c'][:3]:
            if not len(ranking):
                break
            row = data.draw(st.sampled_from(ranking.rows.tolist()))
            ranking.detach()
            hosts.take(row, request.resources(), uuid)
            found = decision.recheck(request, found, row)
            ranking = decision.reweigh(request, found, ranking, row)

            again = decision.candidates(hosts, request)
            self.assertWeights(ranking, again.rows, world, multipliers)
            anew = decision.weigh(request, again)
            np.testing.assert_allclose(
                anew.weights, ranking.weights, 1e-9, 1e-9)

    def test_full_host_sets_no_bound_for_other_hosts(self):
        for fixed in (True, False):
            weigher = toys.Weigher([10.0, 5.0, 0.0])
            weigher.fixed, weigher.local = fixed, True
            hosts = builders.hosts(available={'VCPU': [3, 9, 9]})
            request = builders.request(vcpus=2)
            decision = pipeline.Pipeline([toys.Filter(
                lambda hosts: hosts.available('VCPU') >= 2, local=True)],
                [weigher])
            found = decision.candidates(hosts, request)
            ranking = decision.weigh(request, found)
            self.assertEqual([1, 0.5, 0], ranking.weights.tolist())

            ranking.detach()
            hosts.take(0, {'VCPU': 2})
            found = decision.recheck(request, found, 0)
            ranking = decision.reweigh(request, found, ranking, 0)

            self.assertEqual(([1, 2], [1, 0]), (
                ranking.rows.tolist(), ranking.weights.tolist()))

    def test_rejected_host_without_metrics_fails_no_weigher(self):
        hosts = builders.hosts(metrics=['', '[{"name": "a", "value": 1}]',
                                        '[{"name": "a", "value": 3}]'])
        decision = pipeline.Pipeline(
            [toys.Filter([False, True, True])],
            [builders.plugin(metrics.MetricsWeigher, weight_setting='a=1')])
        request = builders.request()

        ranking = decision.weigh(request, decision.candidates(hosts, request))

        self.assertEqual([0, 1], ranking.weights.tolist())
        error = self.assertRaises(
            exception.PluginFailed, decision.weigh, request,
            pipeline.Pipeline([], []).candidates(hosts, request))
        self.assertIn('does not report the metric a', str(error.__cause__))
