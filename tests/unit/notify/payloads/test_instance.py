# SPDX-License-Identifier: Apache-2.0
import json

from cellsched import context
from cellsched import exception
from cellsched.notify.payloads import instance
from cellsched.notify.payloads import request_spec
from cellsched import objects
from tests.unit import base
from tests.unit.notify import wire

CONTEXT = context.RequestContext(user_id='bob', project_id='ops')

OLD, NEW = ('active', None), ('error', 'deleting')


class TestVersioned(base.TestCase):

    def test_incomplete_server_has_every_field(self):
        for form in (instance.action, instance.rebuild):
            full = form(CONTEXT, wire.instance())['nova_object.data']
            bare = form(CONTEXT, objects.Instance(
                uuid=wire.INSTANCE))['nova_object.data']

            self.assertEqual(set(full), set(bare))
            self.assertEqual('pending', bare['power_state'])
            self.assertIsNone(bare['flavor'])

    def test_initiator_differs_from_the_owner(self):
        payload = instance.action(CONTEXT, wire.instance())['nova_object.data']

        self.assertEqual(('alice', 'bob', 'shop', 'ops'), (
            payload['user_id'], payload['action_initiator_user'],
            payload['tenant_id'], payload['action_initiator_project']))

    def test_power_states_have_names(self):
        for number, name in ((1, 'running'), (4, 'shutdown'), (5, None)):
            payload = instance.action(
                CONTEXT, wire.instance(power_state=number))

            self.assertEqual(name, payload['nova_object.data']['power_state'])

    def test_update_has_the_change_and_the_server(self):
        payload = instance.update(
            CONTEXT, wire.instance(), OLD, NEW)['nova_object.data']

        self.assertEqual(
            {'old_state': 'active', 'state': 'error', 'old_task_state': None,
             'new_task_state': 'deleting'},
            payload['state_update']['nova_object.data'])
        self.assertEqual(('building', 'scheduling'),
                         (payload['state'], payload['task_state']))


class TestLegacy(base.TestCase):

    def test_unknown_legacy_fields_are_empty(self):
        payload = instance.legacy(objects.Instance(uuid=wire.INSTANCE))

        for name in ('created_at', 'launched_at', 'deleted_at',
                     'state_description', 'progress', 'cell_name'):
            self.assertEqual('', payload[name], name)
        self.assertIsNone(payload['host'])

    def test_disk_is_also_sent_as_a_sum(self):
        self.assertEqual(25, instance.legacy(wire.instance())['disk_gb'])

    def test_times_keep_their_legacy_format(self):
        payload = instance.legacy(wire.instance(
            launched_at='2026-01-02T03:05:00Z'))

        self.assertEqual('2026-01-02 03:04:05+00:00', payload['created_at'])
        self.assertEqual('2026-01-02T03:05:00.000000', payload['launched_at'])

    def test_update_has_the_current_state(self):
        payload = instance.legacy_update(wire.instance(), OLD, NEW)

        self.assertEqual(('active', 'error', None, 'deleting', {}), (
            payload['old_state'], payload['state'], payload['old_task_state'],
            payload['new_task_state'], payload['bandwidth']))


def versioned(spec):
    return instance.failed_task(
        wire.instance(), spec, wire.reason(), 'error')['nova_object.data']


def legacy(spec):
    return instance.legacy_failed_task(
        'build_instances', wire.instance(), spec, wire.reason(), 'error')


class TestComputeTask(base.TestCase):

    def test_request_has_the_payload_of_the_scheduler(self):
        spec = wire.request()

        self.assertEqual(
            request_spec.versioned(spec, []), versioned(spec)['request_spec'])
        self.assertEqual(
            request_spec.legacy(spec, []),
            {'request_spec': legacy(spec)['request_spec']})

    def test_properties_stand_in_both_places(self):
        payload = legacy(wire.request())

        self.assertEqual(payload['request_spec']['instance_properties'],
                         payload['instance_properties'])

    def test_unknown_request_has_no_request_spec(self):
        self.assertIsNone(versioned(None)['request_spec'])
        self.assertEqual(({}, {}), (
            legacy(None)['request_spec'],
            legacy(None)['instance_properties']))

    def test_secrets_of_the_request_are_omitted(self):
        payload = json.dumps(
            [versioned(wire.request()), legacy(wire.request())])

        for secret in wire.SECRETS:
            self.assertNotIn(secret, payload)


def payload_of(reason):
    return instance.versioned_exception(reason)['nova_object.data']


class TestFailure(base.TestCase):

    def test_module_and_function_are_of_the_raise(self):
        fields = payload_of(wire.reason())

        self.assertEqual(
            ('cellsched.conductor.deciding', 'do'),
            (fields['module_name'], fields['function_name']))
        self.assertIn('deciding.py", line 2, in do', fields['traceback'])

    def test_error_never_raised_has_no_module(self):
        fields = payload_of(ValueError('no'))

        self.assertEqual(('unknown', 'unknown', 'ValueError: no\n'), (
            fields['module_name'], fields['function_name'],
            fields['traceback']))

    def test_remote_error_has_its_original_name(self):
        kind = type('NoValidHost_Remote', (exception.NoValidHost,), {})
        reason = kind(reason='Full.')
        reason.args = (f'{reason}', 'appended')

        fields = payload_of(reason)

        self.assertEqual('NoValidHost', fields['exception'])
        self.assertEqual('No valid host was found. Full.',
                         fields['exception_message'])

    def test_error_without_a_text_is_sent_by_its_class(self):
        self.assertEqual('KeyboardInterrupt',
                         instance.exception_text(KeyboardInterrupt()))

    def test_operators_read_more_than_users(self):
        # The error names a host, so its text is not for users.
        reason = exception.HostMappingNotFound(host='h7')

        self.assertIn('h7', instance.exception_text(reason))

    def test_passwords_are_masked_in_the_payload(self):
        try:
            try:
                raise OSError('mysql://u:s3cr:e/t@db/x is away')
            except OSError as exc:
                raise ValueError('rabbit://u:s3cr\ne@t@mq/') from exc
        except ValueError as exc:
            fields, text = payload_of(exc), instance.exception_text(exc)

        self.assertEqual('rabbit://u:****@mq/', text)
        self.assertIn('mysql://u:****', fields['traceback'])
        self.assertNotIn('s3cr', str(fields))

    def test_long_texts_are_cut(self):
        fields = payload_of(ValueError('a' * 10**6))

        self.assertEqual(
            instance.TEXT_MAX, len(fields['exception_message']))
        self.assertEqual(instance.TRACEBACK_MAX, len(fields['traceback']))
