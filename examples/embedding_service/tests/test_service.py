# SPDX-License-Identifier: Apache-2.0
"""The service builds machines, also after it was killed during a build."""

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

#: Each run of the service is a process, forked before a database is opened.
FORK = multiprocessing.get_context('fork')


class TestMachineService(unittest.TestCase):

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = pathlib.Path(temporary.name)
        self.assertEqual(0, self.run_process(cloud.write, self.directory))

    def run_process(self, function, *args):
        """Run a function in a process; return its exit code."""
        process = FORK.Process(target=function, args=args)
        process.start()
        process.join(DEADLINE_S)
        if process.is_alive():
            process.kill()
            self.fail('the service did not stop in time')
        return process.exitcode

    def machines(self):
        store = machines.MachineStore(f'{self.directory}/machines.sqlite')
        return {each.name: each for each in store.list_all()}

    def assertFinalStates(self):
        """Check the final states, and one server in one cell for each."""
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

    def test_machines_are_built_or_have_an_error_reason(self):
        self.assertEqual(0, self.run_process(run_service, self.directory))

        self.assertFinalStates()

    def test_service_killed_at_the_cell_decision_resumes(self):
        self.check_resumed('Decide')

    def test_service_killed_after_writing_cell_rows_resumes(self):
        self.check_resumed('WriteRows')

    def check_resumed(self, step):
        self.assertEqual(-signal.SIGKILL, self.run_process(
            run_service, self.directory, step))
        self.assertIn(machines.ORDERED, {
            each.state for each in self.machines().values()})

        self.assertEqual(0, self.run_process(run_service, self.directory))

        self.assertFinalStates()


def run_service(directory, killed_at=None):
    """Order the missing machines and run until all have a final state.

    :param killed_at: the build step at which the process kills itself
    """
    def reached(step):
        if step == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)

    conf = cloud.service_conf(directory)
    parts = embedding.Components(conf, reached=reached)
    store = machines.MachineStore(conf.machines.database)
    with cloud.running(directory):
        conductor = embedding.EmbeddedConductor(conf, parts)
        machine_service = service.MachineService(store, conductor)
        machine_service.start()
        known = {each.name for each in store.list_all()}
        if not known:
            # Both are stored before the first build can kill the process.
            machine_service.order('orchestra', ['harp', 'oboe'], 1, 512)
        if 'organ' not in known:
            machine_service.order('orchestra', ['organ'], 1, 2 ** 30)
        while store.list_all(machines.ORDERED):
            threading.Event().wait(0.1)
        machine_service.stop()
        parts.close()


def check_claims(directory, uuids):
    """Exit with 0 if exactly these servers have claims."""
    with embedding.EmbeddedConductor(
            cloud.service_conf(directory)) as conductor:
        holding = set(conductor.parts.claims.consumers())
    sys.exit(holding != uuids)


if __name__ == '__main__':
    unittest.main()
