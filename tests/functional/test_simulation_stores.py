# SPDX-License-Identifier: Apache-2.0
"""Deployments with claims on a server of their own, which can fail.

The stores are the product's; their servers are models. What is sent to one may
be lost, done twice or done late, its answer may be lost, and it may be away.
``tools/test.sh simulation --claims etcd --seed N`` runs one of them again.
"""

from testtools import content

from cellsched.simulator.promises import faults
from cellsched.simulator.promises import simulation
from cellsched.simulator import servers
from tests.functional import test_simulation
from tests import profile


class TestServers(test_simulation.SimulationTestCase):

    def assertKept(self, seed, kinds, rate, name):
        outcome = simulation.Simulation(
            self.harness, seed, kinds, rate, servers.KINDS[name]).run()
        if outcome.failure:
            self.addDetail('trace', content.text_content(outcome.text()))
            self.fail(f'{name}: {outcome.text(last=1)}')
        return outcome

    def test_promises_hold_with_all_kinds_of_faults(self):
        for name in servers.KINDS:
            for seed in range(profile.STORE_SEEDS):
                self.assertKept(seed, None, None, name)

    def test_promises_hold_with_each_server_fault_alone_and_often(self):
        for name in servers.KINDS:
            for kind in faults.SERVER_KINDS:
                for seed in range(profile.SINGLE_FAULT_SEEDS):
                    self.assertKept(seed, [kind], 0.3, name)

    @profile.full_only('test_simulation has the default claim store')
    def test_seed_determines_the_history(self):
        for name in servers.KINDS:
            self.assertDetermined(name)

    def test_without_faults_servers_with_capacity_are_built(self):
        for name in servers.KINDS:
            outcome = self.assertKept(1, [], None, name)
            self.assertIn("('active', None)", outcome.text())
