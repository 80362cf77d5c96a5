# SPDX-License-Identifier: Apache-2.0
"""The service builds machines, and survives that it is killed."""

import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import threading
import unittest

import cloud

from cellsched import embedding
from embedding_service import machines
from embedding_service import service

DEADLINE_S = 60

#: Each life of the service is a process, forked before anything is opened.
FORK = multiprocessing.get_context('fork')


class TestMachineService(unittest.TestCase):

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = pathlib.Path(temporary.name)
        self.assertEqual(0, self.run_process(cloud.write, self.directory))

    def run_process(self, function, *args):
        """Run a function in a process; return the code that it ended with."""
        process = FORK.Process(target=function, args=args)
        process.start()
        process.join(DEADLINE_S)
        if process.is_alive():
            process.kill()
            self.fail('the service did not come to an end')
        return process.exitcode

    def machines(self):
        store = machines.MachineStore(f'{self.directory}/machines.sqlite')
        return {each.name: each for each in store.list_all()}

    def assertFates(self):
        """Each machine has one fate, and one server in one cell."""
        found = self.machines()
        for name in ('harp', 'oboe'):
            self.assertEqual('ACTIVE', found[name].state, found[name])
            self.assertIn(found[name].place, ('cell1-host', 'cell2-host'))
        self.assertEqual('ERROR', found['organ'].state)
        self.assertIn('No valid host was found', found['organ'].reason)
        self.assertEqual(
            0, self.run_process(check_claims, self.directory, {
                each.uuid for each in found.values()
                if each.state == 'ACTIVE'}))

    def test_machines_are_built_or_say_why_not(self):
        self.assertEqual(0, self.run_process(live, self.directory))

        self.assertFates()

    def test_service_that_is_killed_at_the_decision_goes_on(self):
        self.check_death('Decide')

    def test_service_that_is_killed_when_a_cell_has_rows_goes_on(self):
        self.check_death('WriteRows')

    def check_death(self, step):
        self.assertEqual(
            -signal.SIGKILL, self.run_process(live, self.directory, step))
        self.assertIn(machines.ORDERED, {
            each.state for each in self.machines().values()})

        self.assertEqual(0, self.run_process(live, self.directory))

        self.assertFates()


def live(directory, dies_at=None):
    """Live once: order what is not ordered, and wait for all fates."""
    def reached(step):
        if step == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    conf = cloud.service_conf(directory)
    parts = embedding.ConductorParts(conf, reached=reached)
    store = machines.MachineStore(conf.machines.database)
    with cloud.running(directory):
        conductor = embedding.EmbeddedConductor(conf, parts)
        lived = service.MachineService(store, conductor)
        lived.start()
        known = {each.name for each in store.list_all()}
        if not known:
            # Both are kept before one of them is built, and then it dies.
            lived.order('orchestra', ['harp', 'oboe'], 1, 512)
        if 'organ' not in known:
            lived.order('orchestra', ['organ'], 1, 2 ** 30)
        while store.list_all(machines.ORDERED):
            threading.Event().wait(0.1)
        lived.stop()
        parts.close()


def check_claims(directory, uuids):
    """End with 0 if these servers hold something, and no others do."""
    with embedding.EmbeddedConductor(
            cloud.service_conf(directory)) as conductor:
        holding = set(conductor.parts.claims.consumers())
    sys.exit(holding != uuids)


if __name__ == '__main__':
    unittest.main()
