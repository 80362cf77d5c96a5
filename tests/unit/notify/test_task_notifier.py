# SPDX-License-Identifier: Apache-2.0
import json

from cellsched import context
from cellsched import exception
from cellsched.notify import task_notifier
from tests.unit.notify import base
from tests.unit.notify import wire

#: No state, the first one, and one later.
NONE, NEW, SPAWNING = (
    (None, None), ('building', 'scheduling'), ('building', 'spawning'))

METHODS = ('build_instances', 'migrate_server', 'rebuild_server')


class TestCase(base.NotifierTestCase):

    def notifier(self, form='both', on_change=None):
        return task_notifier.TaskNotifier(
            self.transports.notifications(), 'host0', form,
            [base.VERSIONED], on_change)


class TestSamples(TestCase):

    def setUp(self):
        super().setUp()
        self.sender = self.notifier(on_change='vm_state')
        self.listeners = {'legacy': self.listen(base.LEGACY),
                          'versioned': self.listen(base.VERSIONED)}

    def assertTold(self, name):
        """What was just told is what the samples of this name say."""
        for form, listener in self.listeners.items():
            self.assertSample(f'{name}.{form}.json', listener.next()[1])

    def test_task_that_is_given_up(self):
        for method in METHODS:
            self.sender.failed(self.context, method, wire.instance(),
                               wire.request(), wire.reason())

            self.assertTold(f'compute_task.{method}')

    def test_change_of_state(self):
        self.sender.updated(self.context, wire.instance(), NONE, NEW)

        self.assertTold('instance.update')

    def test_deletion_that_races_with_a_build(self):
        for phase in ('start', 'end'):
            self.sender.deleted(self.context, phase, wire.instance())

            self.assertTold(f'instance.delete.{phase}')

    def test_rebuild_that_has_its_host(self):
        self.sender.rebuild_scheduled(self.context, wire.instance(
            vm_state='active', task_state='rebuilding', power_state=1,
            host='host1', node='node1', launched_at='2026-01-02T03:05:00Z'))

        self.assertTold('instance.rebuild_scheduled')


class TestTaskNotifier(TestCase):

    def test_format_says_which_are_sent(self):
        listener = self.listen(base.LEGACY, base.VERSIONED)

        for form, *expected in (
                ('unversioned', 'compute_task.host0'),
                ('versioned', 'nova-conductor:host0'),
                ('both', 'compute_task.host0', 'nova-conductor:host0')):
            self.notifier(form).failed(
                self.context, 'build_instances', wire.instance(),
                wire.request(), wire.reason())

            self.assertEqual(set(expected), {
                listener.next()[1]['publisher_id'] for _ in expected})

    def test_changes_are_told_as_configured(self):
        listener = self.listen(base.VERSIONED)
        for configured, expected in (
                (None, []), ('vm_state', [NEW]),
                ('vm_and_task_state', [NEW, SPAWNING])):
            sender = self.notifier('versioned', configured)
            for old, new in ((NONE, NEW), (NEW, SPAWNING), (NEW, NEW)):
                sender.updated(self.context, wire.instance(), old, new)
            # What comes next is the last one, so no other came before it.
            sender.deleted(self.context, 'end', wire.instance())

            told = [listener.next()[1] for _ in [*expected, 'deleted']]
            self.assertEqual('instance.delete.end', told[-1]['event_type'])
            states = [each['payload']['nova_object.data']['state_update'][
                'nova_object.data'] for each in told[:-1]]
            self.assertEqual(expected, [
                (each['state'], each['new_task_state']) for each in states])

    def test_context_goes_without_its_token(self):
        listener = self.listen(base.LEGACY)

        self.notifier().deleted(self.context, 'start', wire.instance())

        sent, _ = listener.next()
        self.assertEqual(self.context.request_id, sent['request_id'])
        self.assertNotIn('t0ken', json.dumps(sent))

    def test_what_no_user_asked_for_has_no_request(self):
        listener = self.listen(base.VERSIONED)

        self.notifier().deleted(
            context.RequestContext(), 'start', wire.instance())

        told = listener.next()[1]['payload']['nova_object.data']
        self.assertEqual((None, None), (
            told['request_id'], told['action_initiator_user']))


class TestNothing(TestCase):

    def tell(self, sender, server):
        """Tell everything there is to tell."""
        for method in METHODS:
            sender.failed(self.context, method, server, server, server)
        sender.updated(self.context, server, NONE, NEW)
        sender.deleted(self.context, 'start', server)
        sender.rebuild_scheduled(self.context, server)

    def test_without_a_driver_nothing_is_looked_at(self):
        for drivers in ([], ['noop']):
            self.conf.set_override('driver', drivers, base.GROUP)

            self.tell(self.notifier(on_change='vm_state'), base.Untold())

        self.tell(task_notifier.TaskNotifier(), base.Untold())
        self.assertEqual([], self.warnings())

    def test_with_a_driver_who_tells_is_not_failed(self):
        self.tell(self.notifier('versioned', 'vm_state'), base.Untold())

        self.assertEqual(len(METHODS) + 3, len(self.warnings()))
        self.assertNotIn('Traceback', self.logs.output)

    def test_unknown_driver_is_answered_with_those_there_are(self):
        self.conf.set_override('driver', ['mesaging'], base.GROUP)

        error = self.assertRaises(exception.PluginNotFound, self.notifier)

        self.assertIn('messagingv2', str(error))
