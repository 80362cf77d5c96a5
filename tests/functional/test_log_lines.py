# SPDX-License-Identifier: Apache-2.0
"""A server can be followed in the logs of all services by its uuid."""

import logging

import fixtures

from tests.functional import base


class Kept(logging.Handler):
    """Keeps the records about instances."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        uuid = getattr(record, 'instance_uuid', None)
        if uuid is not None:
            context = getattr(record, 'context', None)
            self.lines.append((
                uuid, record.name.removeprefix('cellsched.'),
                record.getMessage(), context and context.request_id))


class TestLogLines(base.TestCase):

    def test_each_step_of_a_build_has_a_line_with_the_instance(self):
        kept = Kept()
        logger = logging.getLogger('cellsched')
        logger.addHandler(kept)
        self.addCleanup(logger.removeHandler, kept)
        self.useFixture(fixtures.MonkeyPatch('logging.root.level', 20))
        self.deploy({'cell1': ['a1']})

        [built] = self.built()
        self.delete(built.uuid)
        self.until(
            lambda: 'Deleting the guest' in [text for *_, text, _
                                             in kept.lines], 'the deletion')
        [buried] = self.built(flavor='huge')

        # An interrupted deletion begins again.
        lines = [*dict.fromkeys(
            line[1:3] for line in kept.lines if line[0] == built.uuid)]
        self.assertEqual(
            ['scheduler.selection.placer', 'conductor.tasks.steps',
             'compute.agent', 'compute.agent', 'compute.agent'],
            [name for name, _ in lines])
        selected, sent, building, *rest = [text for _, text in lines]
        self.assertRegex(
            selected, 'Selected host a1 in cell .* with weight .*; of 1 hosts '
            'the stages left: .*ComputeFilter 1')
        self.assertIn('Sending the build to host a1 in cell ', sent)
        self.assertEqual(
            ('Building on node a1', 'The build is complete',
             'Deleting the guest'), (building, *rest))
        lines = [line[1:3] for line in kept.lines if line[0] == buried.uuid]
        self.assertEqual(['scheduler.selection.placer', 'cells.cell0'],
                         [name for name, _ in lines])
        refused, recorded = [text for _, text in lines]
        self.assertIn('No valid host was found', refused)
        self.assertRegex(
            recorded, 'Recorded in cell0: .*No valid host was found')
        self.assertEqual({base.USER.request_id}, {
            request for *_, request in kept.lines})
