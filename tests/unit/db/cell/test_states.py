# SPDX-License-Identifier: Apache-2.0
"""What a server may become."""

from cellsched.db.cell import states
from tests.unit import base


class TestAllowed(base.TestCase):

    def test_transitions_of_a_build_are_allowed(self):
        for before, after in (
                (None, states.SCHEDULING), (None, states.ERROR),
                (states.SCHEDULING, states.SPAWNING),
                (states.SPAWNING, states.ACTIVE),
                (states.SPAWNING, states.WAITING),
                (states.WAITING, states.SCHEDULING),
                (states.SPAWNING, states.ERROR),
                (states.SCHEDULING, None),
                (states.ACTIVE, states.State('active', 'deleting')),
                (states.State('active', 'deleting'), states.DELETED),
                (states.ERROR, states.DELETED),
                (states.ACTIVE, states.ACTIVE)):
            self.assertTrue(states.is_allowed(before, after), (before, after))

    def test_states_are_not_skipped_or_reversed(self):
        for before, after in (
                (None, states.ACTIVE), (None, states.SPAWNING),
                (states.SCHEDULING, states.ACTIVE),
                (states.WAITING, states.SPAWNING),
                (states.ERROR, states.SPAWNING),
                (states.ACTIVE, states.ERROR),
                (states.ACTIVE, None), (states.DELETED, states.ACTIVE),
                (states.State('active', 'deleting'), states.ACTIVE),
                (states.State('active', 'deleting'),
                 states.State('building', 'deleting'))):
            self.assertFalse(
                states.is_allowed(before, after), (before, after))

    def test_each_state_has_transitions_to_and_from_other_states(self):
        befores = {state for each in states.TRANSITIONS.values()
                   for state in each.before or ()
                   if state.task_state not in states.NOVA_TASKS}
        afters = {each.after for each in states.TRANSITIONS.values()}

        afters |= {states.State(vm_state, each.task_state)
                   for each in afters - {states.State('', 'deleting')}
                   if not each.vm_state for vm_state in states.EVACUABLE}
        afters = {each for each in afters
                  if each.vm_state or each.task_state == 'deleting'}

        self.assertEqual(befores - states.FIRST, befores & afters
                         - states.FIRST)
        self.assertEqual(
            {states.DELETED, states.State('', 'deleting')}, afters - befores)
