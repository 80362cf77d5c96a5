# SPDX-License-Identifier: Apache-2.0
from cellsched import context
from cellsched.notify.payloads import instance
from cellsched import objects
from tests.unit import base
from tests.unit.notify import wire

CONTEXT = context.RequestContext(user_id='bob', project_id='ops')

OLD, NEW = ('active', None), ('error', 'deleting')


class TestVersioned(base.TestCase):

    def test_server_that_is_hardly_known_has_every_field(self):
        for payload in (instance.action, instance.rebuild):
            full = payload(CONTEXT, wire.instance())['nova_object.data']
            bare = payload(CONTEXT, objects.Instance(
                uuid=wire.INSTANCE))['nova_object.data']

            self.assertEqual(set(full), set(bare))
            self.assertEqual('pending', bare['power_state'])
            self.assertIsNone(bare['flavor'])

    def test_initiator_differs_from_the_owner(self):
        told = instance.action(CONTEXT, wire.instance())['nova_object.data']

        self.assertEqual(('alice', 'bob', 'shop', 'ops'), (
            told['user_id'], told['action_initiator_user'],
            told['tenant_id'], told['action_initiator_project']))

    def test_power_states_have_names(self):
        for number, name in ((1, 'running'), (4, 'shutdown'), (5, None)):
            told = instance.action(
                CONTEXT, wire.instance(power_state=number))

            self.assertEqual(name, told['nova_object.data']['power_state'])

    def test_update_tells_the_change_beside_the_server(self):
        told = instance.update(
            CONTEXT, wire.instance(), OLD, NEW)['nova_object.data']

        self.assertEqual(
            {'old_state': 'active', 'state': 'error', 'old_task_state': None,
             'new_task_state': 'deleting'},
            told['state_update']['nova_object.data'])
        self.assertEqual(('building', 'scheduling'),
                         (told['state'], told['task_state']))


class TestLegacy(base.TestCase):

    def test_unknown_legacy_fields_are_empty(self):
        told = instance.legacy(objects.Instance(uuid=wire.INSTANCE))

        for name in ('created_at', 'launched_at', 'deleted_at',
                     'state_description', 'progress', 'cell_name'):
            self.assertEqual('', told[name], name)
        self.assertIsNone(told['host'])

    def test_disk_is_also_sent_as_a_sum(self):
        self.assertEqual(25, instance.legacy(wire.instance())['disk_gb'])

    def test_times_are_in_the_form_that_they_had(self):
        told = instance.legacy(wire.instance(
            launched_at='2026-01-02T03:05:00Z'))

        self.assertEqual('2026-01-02 03:04:05+00:00', told['created_at'])
        self.assertEqual('2026-01-02T03:05:00.000000', told['launched_at'])

    def test_update_has_the_current_state(self):
        told = instance.legacy_update(wire.instance(), OLD, NEW)

        self.assertEqual(('active', 'error', None, 'deleting', {}), (
            told['old_state'], told['state'], told['old_task_state'],
            told['new_task_state'], told['bandwidth']))
