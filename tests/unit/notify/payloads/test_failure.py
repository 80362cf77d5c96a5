# SPDX-License-Identifier: Apache-2.0
from cellsched import exception
from cellsched.notify.payloads import failure
from tests.unit import base
from tests.unit.notify import wire


def told(reason):
    return failure.versioned(reason)['nova_object.data']


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

    def test_error_without_a_text_is_told_by_its_name(self):
        self.assertEqual('KeyboardInterrupt',
                         failure.text(KeyboardInterrupt()))

    def test_operators_read_more_than_users(self):
        # Its text is not for users: it names a host.
        reason = exception.HostMappingNotFound(host='h7')

        self.assertIn('h7', failure.text(reason))

    def test_passwords_are_not_told(self):
        try:
            try:
                raise OSError('mysql://u:s3cr:e/t@db/x is away')
            except OSError as exc:
                raise ValueError('rabbit://u:s3cr\ne@t@mq/') from exc
        except ValueError as exc:
            fields, text = told(exc), failure.text(exc)

        self.assertEqual('rabbit://u:****@mq/', text)
        self.assertIn('mysql://u:****', fields['traceback'])
        self.assertNotIn('s3cr', str(fields))

    def test_what_has_no_end_is_cut(self):
        fields = told(ValueError('a' * 10**6))

        self.assertEqual(failure.TEXT_MAX, len(fields['exception_message']))
        self.assertEqual(failure.TRACEBACK_MAX, len(fields['traceback']))
