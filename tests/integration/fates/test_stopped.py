# SPDX-License-Identifier: Apache-2.0
"""Services are stopped for a while, and each build ends once."""

import os
import signal

from tests.integration.fates import killed
from tests.integration import processes
from tests import profile


#: Steps at which a conductor is stopped.
STEPS = (('Lease', 'Schedule', 'WriteRows') if profile.FULL
         else ('Schedule',))


@profile.full_only('a stopped service: by default it is a conductor')
class TestScheduler(killed.Killed):

    def test_builds_of_a_stopped_scheduler_are_decided_by_the_other(self):
        self.start('conductor', 'api')
        stopped = self.start('scheduler', 'api')
        os.kill(stopped.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, stopped.pid, signal.SIGCONT)

        # Of messages to both each has every second one.
        uuids = [self.create(f'stopped{number}')[0] for number in range(6)]
        for uuid in uuids:
            self.assertEnds(uuid, 'ACTIVE')
        held = {uuid: self.world.held(uuid) for uuid in uuids}
        self.assertTrue(stopped.is_stopped)

        # It answers now what was asked it then, and nobody listens.
        os.kill(stopped.pid, signal.SIGCONT)
        [last] = self.create('last')
        self.assertEnds(last, 'ACTIVE')
        for uuid in uuids:
            self.assertEnds(uuid, 'ACTIVE')
        self.assertEqual(
            held, {uuid: self.world.held(uuid) for uuid in uuids})
        self.remove(last, *uuids)


class TestConductor(killed.Killed):

    def wake(self, step: str) -> None:
        """Wake a conductor when another one has done its work."""
        victim = self.start('conductor', 'api', die_at=step,
                            signal=int(signal.SIGSTOP))
        uuids = self.create(step, count=2)
        processes.wait_until(
            lambda: victim.is_stopped, f'the conductor to stop at {step}')
        self.addCleanup(victim.kill)
        other = self.start('conductor', 'api')
        for uuid in uuids:
            self.assertEnds(uuid, 'ACTIVE')

        os.kill(victim.pid, signal.SIGCONT)
        [last] = self.create('last')
        self.assertEnds(last, 'ACTIVE')

        for uuid in uuids:
            self.assertEnds(uuid, 'ACTIVE')
        self.remove(last, *uuids)
        for each in victim, other:
            each.kill()

    def test_build_of_a_stopped_conductor_is_taken_over_for_good(self):
        for step in STEPS:
            self.wake(step)
