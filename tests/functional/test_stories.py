# SPDX-License-Identifier: Apache-2.0
"""The main stories: each is a scenario in ``tests/functional/stories``.

An operator can play a story with ``cellsched demo --scenario FILE``.
"""

import pathlib
import threading

from cellsched.cli import scenario_player
from cellsched.standalone import scenario
from tests.functional import base

STORIES = pathlib.Path(__file__).parent / 'stories'

#: By then every lease has expired.
LATE_S = 3600


class Death(BaseException):
    """Ends the task of a conductor without cleanup."""


class TestStories(base.TestCase):

    def play(self, name, reached=lambda step: None):
        """Play a story, and check that each server has one fate."""
        story = scenario.load(STORIES / f'{name}.yaml')
        self.deploy({cell.name: cell.hosts for cell in story.cells},
                    story.aggregates, reached, **story.options)
        play = scenario_player.Play(self.world.api, story, base.CLOCK)

        play.run(lambda done: None)

        self.assertEqual([], play.unexpected)
        self.assertEqual(
            sum(request.count for request in story.requests),
            len(play.servers))
        for found in play.servers:
            self.assertFate(found)
        self.assertClaimsMatch()

    def assertFate(self, found):
        """The server is in one cell and on one host, or in cell0, or gone."""
        if found.status == 'DELETED':
            self.assertLeftNothing(found.uuid)
        else:
            self.assertIsIn(found.cell, found.uuid)
            row = self.rows(found.uuid)[found.cell]
            self.assertEqual(
                (found.status.lower(), None, found.host, found.host),
                (row.vm_state, row.task_state, row.host, row.node))
        if not found.host:
            self.assertHoldsNothing(found.uuid)
        elif found.status == 'ACTIVE':
            [claim] = self.held(found.uuid)
            self.assertEqual(
                (self.provider(found.cell, found.host), base.SMALL),
                (claim.provider, claim.resources))
        self.assertEqual(
            [found.host] if found.status == 'ACTIVE' else [],
            [host for host in self.world.agents
             if found.uuid in self.driver(host).list_instances()])

    def test_build(self):
        self.play('build')

    def test_retry(self):
        self.play('retry')

    def test_refusal(self):
        self.play('refusal')

    def test_deletion_during_a_build(self):
        self.play('deletion')

    def test_lost_conductor(self):
        lost = threading.Event()

        def reached(step):
            if step == 'Decide' and not lost.is_set():
                lost.set()
                raise Death

        def recover():
            lost.wait(base.TIMEOUT_S)
            self.recover(LATE_S)

        recovery = threading.Thread(target=recover)
        recovery.start()
        self.addCleanup(recovery.join)
        self.play('lost-conductor', reached)

        self.assertTrue(lost.is_set())
