# SPDX-License-Identifier: Apache-2.0
"""Many orders in which things happen; in none a promise is broken.

``tools/test.sh simulation --seed N`` runs one of them again.
"""

import logging
import os
import subprocess
import sys

from testtools import content

from cellsched.simulator.promises import faults
from cellsched.simulator.promises import harness
from cellsched.simulator.promises import simulation
from cellsched.simulator.promises.simulation import Outcome
from tests import profile
from tests.unit import base

#: Prints what some seeds do, with a claim store.
_TRACES = '''
import sys

from cellsched.simulator import servers
from cellsched.simulator.promises import harness
from cellsched.simulator.promises import simulation
import hashlib
import logging
logging.disable(logging.CRITICAL)
shared = harness.Harness(bool(sys.argv[3:]))
for seed in range(int(sys.argv[1])):
    trace = simulation.Simulation(
        shared, seed, claims=servers.KINDS.get(sys.argv[2])).run().trace
    print(len(trace), hashlib.sha256(repr(trace).encode()).hexdigest())
'''


#: Runs the simulation in an environment without greenlet.
_WITHOUT_GREENLET = """
import runpy
import sys

sys.modules['greenlet'] = None
runpy.run_module('cellsched.simulator', run_name='__main__')
"""


class SimulationTestCase(base.TestCase):

    #: The full profile tries 1 000 seeds in one test.
    timeout_s = 7200

    hardware = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.harness = harness.Harness(cls.hardware)
        cls.addClassCleanup(cls.harness.close)

    def setUp(self):
        super().setUp()
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)

    def assertDetermined(self, claims=''):
        """Neither the order of sets nor that of threads changes a trace."""
        traces = [subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', _TRACES,
             str(profile.TRACED_SEEDS), claims,
             *(['hardware'] if self.hardware else [])], check=True,
            capture_output=True, text=True,
            env={**os.environ, 'PYTHONHASHSEED': number}).stdout
            for number in ('1', '2')]
        self.assertEqual(
            profile.TRACED_SEEDS, len(traces[0].splitlines()))
        self.assertEqual(*traces)

    def assertKept(self, seed, *args):
        """Return the outcome of a seed, which must keep all invariants."""
        outcome = simulation.Simulation(self.harness, seed, *args).run()
        if outcome.failure:
            self.addDetail('trace', content.text_content(outcome.text()))
            self.fail(outcome.text(last=1))
        return outcome


class TestSimulation(SimulationTestCase):

    def test_promises_hold_with_all_kinds_of_faults(self):
        for seed in range(profile.SIMULATION_SEEDS):
            self.assertKept(seed)

    def test_promises_hold_with_each_fault_alone_and_often(self):
        for kind in (*faults.KINDS, *faults.EVENTS):
            for seed in range(profile.SINGLE_FAULT_SEEDS):
                self.assertKept(seed, [kind], 0.3)

    def test_without_faults_servers_with_capacity_are_built(self):
        outcome = self.assertKept(1, [])
        self.assertIn("('active', None)", outcome.text())

    def test_trace_names_seed_and_step(self):
        outcome = Outcome(
            7, ('kill',), 2, 'S1: broken', [(0.5, 'api', 'write api'),
                                            (1.0, 'a1', 'reached Spawn')])
        self.assertEqual(
            '    2     1.000 a1: reached Spawn\n'
            'seed 7, faults kill, step 2: S1: broken', outcome.text(last=1))

    def test_seed_determines_the_history(self):
        self.assertDetermined()


class TestHardware(SimulationTestCase):
    """Each server has dedicated CPUs, pages and a device."""

    hardware = True

    @profile.full_only('a run without faults has the same checks by default')
    def test_promises_hold_with_all_kinds_of_faults(self):
        for seed in range(profile.STORE_SEEDS):
            self.assertKept(seed)

    def test_servers_have_the_parts_of_their_claims(self):
        outcome = self.assertKept(1, [])

        self.assertIn("('active', None)", outcome.text())
        self.assertEqual(outcome.trace, self.assertKept(1, []).trace)

    @profile.full_only('a seed is compared with itself by default')
    def test_seed_determines_the_history(self):
        self.assertDetermined()


class TestCommand(base.TestCase):

    def test_missing_library_is_named_with_its_extra(self):
        ran = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', _WITHOUT_GREENLET],
            capture_output=True, text=True)

        self.assertEqual((1, '', (
            'simulator: greenlet is not installed; expected greenlet, which '
            'cellsched[simulate] installs\n')), (
                ran.returncode, ran.stdout, ran.stderr))
