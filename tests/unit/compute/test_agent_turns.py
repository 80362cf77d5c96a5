# SPDX-License-Identifier: Apache-2.0
"""Builds on one host that wait for their turn."""

from concurrent import futures
import threading

from cellsched.db.cell import instances
from tests.unit.compute import agents
from tests.unit.db import samples


class TestTurns(agents.AgentTestCase):

    def check(self, builds_max, wanted, at_once):
        """Let so many builds come; see how many are done at the same time."""
        begun = threading.Semaphore(0)
        agent = self.make_agent(
            'host1', builds_max=builds_max,
            reached=lambda step: step == 'Begin' and begun.release())
        uuids = samples.uuids(wanted)
        with self.cell.writer() as connection:
            instances.create(connection, map(samples.instance, uuids),
                             self.clock.now())
        go_on = self.driver.hold_builds()
        with futures.ThreadPoolExecutor(wanted) as threads:
            try:
                builds = [threads.submit(
                    agent.build_and_run_instance, agents.USER,
                    samples.instance(uuid), None, {}, 'node1', {}, [])
                    for uuid in uuids]
                for _ in range(at_once):
                    self.assertTrue(begun.acquire(timeout=agents.DEADLINE_S))
                futures.wait(builds, 0.05)
                self.assertFalse(begun.acquire(blocking=False))
            finally:
                go_on.set()
            for build in builds:
                build.result(agents.DEADLINE_S)
        self.assertEqual(sorted(uuids), self.driver.list_instances())

    def test_others_wait_for_their_turn(self):
        self.check(builds_max=2, wanted=5, at_once=2)

    def test_without_a_bound_all_are_done_at_once(self):
        self.check(builds_max=0, wanted=5, at_once=5)
