# SPDX-License-Identifier: Apache-2.0
import json

from cellsched import exception
from cellsched.notify.payloads import compute_task
from cellsched.notify.payloads import request_spec
from tests.unit import base
from tests.unit.notify import wire


def versioned(spec):
    return compute_task.versioned(
        wire.instance(), spec, wire.reason(), 'error')['nova_object.data']


def legacy(spec):
    return compute_task.legacy(
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
        told = legacy(wire.request())

        self.assertEqual(told['request_spec']['instance_properties'],
                         told['instance_properties'])

    def test_request_that_is_not_known_is_none(self):
        self.assertIsNone(versioned(None)['request_spec'])
        self.assertEqual(({}, {}), (
            legacy(None)['request_spec'],
            legacy(None)['instance_properties']))

    def test_secrets_of_the_request_are_omitted(self):
        told = json.dumps([versioned(wire.request()), legacy(wire.request())])

        for secret in wire.SECRETS:
            self.assertNotIn(secret, told)


def told(reason):
    return compute_task.versioned_exception(reason)['nova_object.data']


class TestFailure(base.TestCase):

    def test_place_is_where_it_was_raised(self):
        fields = told(wire.reason())

        self.assertEqual(
            ('cellsched.conductor.deciding', 'do'),
            (fields['module_name'], fields['function_name']))
        self.assertIn('deciding.py", line 2, in do', fields['traceback'])

    def test_error_that_was_not_raised_has_no_place(self):
        fields = told(ValueError('no'))

        self.assertEqual(('unknown', 'unknown', 'ValueError: no\n'), (
            fields['module_name'], fields['function_name'],
            fields['traceback']))

    def test_error_that_came_over_a_transport_has_its_name(self):
        kind = type('NoValidHost_Remote', (exception.NoValidHost,), {})
        reason = kind(reason='Full.')
        reason.args = (f'{reason}', 'appended')

        fields = told(reason)

        self.assertEqual('NoValidHost', fields['exception'])
        self.assertEqual('No valid host was found. Full.',
                         fields['exception_message'])

    def test_error_without_a_text_is_sent_by_its_class(self):
        self.assertEqual('KeyboardInterrupt',
                         compute_task.exception_text(KeyboardInterrupt()))

    def test_operators_read_more_than_users(self):
        # Its text is not for users: it names a host.
        reason = exception.HostMappingNotFound(host='h7')

        self.assertIn('h7', compute_task.exception_text(reason))

    def test_passwords_are_masked_in_the_payload(self):
        try:
            try:
                raise OSError('mysql://u:s3cr:e/t@db/x is away')
            except OSError as exc:
                raise ValueError('rabbit://u:s3cr\ne@t@mq/') from exc
        except ValueError as exc:
            fields, text = told(exc), compute_task.exception_text(exc)

        self.assertEqual('rabbit://u:****@mq/', text)
        self.assertIn('mysql://u:****', fields['traceback'])
        self.assertNotIn('s3cr', str(fields))

    def test_long_texts_are_cut(self):
        fields = told(ValueError('a' * 10**6))

        self.assertEqual(
            compute_task.TEXT_MAX, len(fields['exception_message']))
        self.assertEqual(compute_task.TRACEBACK_MAX, len(fields['traceback']))
