# SPDX-License-Identifier: Apache-2.0
"""Steps of builds, of which those who watch are told."""

from cellsched import exception
from tests.unit.conductor import base


class TestReached(base.TestCase):

    def reached(self):
        steps = []
        [uuid] = self.accept()
        self.task(reached=steps.append).run(base.USER, [uuid])
        return uuid, steps

    def test_steps_of_a_build_are_told_in_their_order(self):
        uuid, steps = self.reached()

        self.assertBuilding('cell1', uuid)
        self.assertEqual(
            ['Lease', 'Expire', 'Exhume', 'Schedule', 'FindCell', 'Decide',
             'WriteRows', 'Release', 'Cast', 'Bury'], steps)

    def test_steps_of_a_build_that_is_buried_are_told_to_the_end(self):
        def refuse(**arguments):
            raise exception.NoValidHost(reason='Full.')

        self.scheduler.answer = refuse

        uuid, steps = self.reached()

        self.assertBuried(uuid, 'Full.')
        self.assertEqual(['Lease', 'Expire', 'Exhume', 'Schedule',
                          'undone Schedule', 'Bury'], steps)
