# SPDX-License-Identifier: Apache-2.0
import socket
import sys

from amqp import exceptions as amqp_exc
from kombu import exceptions as kombu_exc
import oslo_messaging
from oslo_messaging._drivers import common

from cellsched import exception
from cellsched.rpc import broker_urls
from cellsched.rpc import delivery
from tests.unit.rpc import base


class TestErrors(base.RPCTestCase):

    def test_errors_of_every_layer_are_known(self):
        for error in (oslo_messaging.MessageDeliveryFailure(),
                      oslo_messaging.MessagingTimeout(),
                      kombu_exc.OperationalError(), amqp_exc.AccessRefused(),
                      amqp_exc.NotAllowed(), ConnectionResetError(),
                      TimeoutError()):
            self.assertIsInstance(error, delivery.ERRORS)

    def test_error_is_described_in_a_single_line_without_passwords(self):
        self.assertEqual(
            'ValueError: to amqp://user:****@broker',
            exception.describe(ValueError('to\n amqp://user:s3cret@broker')))

    def test_long_text_is_cut(self):
        self.assertLess(len(exception.describe(ValueError('x' * 9999))), 600)

    def test_traceback_of_another_service_is_omitted(self):
        error = common.deserialize_remote_exception(
            common.serialize_remote_exception(sent(
                exception.NoValidHost(reason='there is none'))),
            ['cellsched.exception'])

        self.assertIn('Traceback', str(error))
        self.assertEqual('NoValidHost: No valid host was found. there is none',
                         exception.describe(error))


def sent(error):
    """Return an error as a server sends it."""
    try:
        raise error
    except Exception:
        return sys.exc_info()


class TestCheck(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        # It is bound and does not listen, so that nobody else can.
        bound = socket.socket()
        self.addCleanup(bound.close)
        bound.bind(('127.0.0.1', 0))
        self.place = f'127.0.0.1:{bound.getsockname()[1]}'

    def check(self, url, **options):
        delivery.check_broker(
            self.conf, broker_urls.parse(self.conf, url), 'the field',
            **options)

    def refused(self, url):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.check, url)
        self.assertNotIn('s3cret', str(error))
        return error.field

    def test_unreachable_broker_is_logged_in_a_single_line(self):
        self.check(f'rabbit://u:s3cret@{self.place}/v')

        [line] = self.logs.output.splitlines()
        self.assertIn('the field', line)
        self.assertIn(self.place, line)
        self.assertIn('refused', line)
        self.assertNotIn('s3cret', line)

    def test_each_unreachable_host_is_named(self):
        self.check(f'rabbit://u:s3cret@{self.place},u:s3cret@nowhere.invalid/')

        [line] = self.logs.output.splitlines()
        self.assertIn(self.place, line)
        self.assertIn('nowhere.invalid:5672', line)

    def test_broker_without_an_answer_is_unreachable(self):
        with socket.create_server(('127.0.0.1', 0)) as silent:
            place = '127.0.0.1:%d' % silent.getsockname()[1]

            self.check(f'rabbit://u:p@{place}/v', timeout_s=0.1)

        self.assertIn(place, self.logs.output)

    def test_transports_without_a_broker_are_not_looked_at(self):
        for url in 'local://h/v', 'kombu+memory:///':
            self.check(url)

        self.assertEqual('', self.logs.output)

    def test_unusable_option_of_tls_is_named(self):
        path = self.temporary_directory() / 'empty.pem'
        path.touch()
        for query, name in (
                ('ssl=s3cret', 'ssl'), ('ssl_version=s3cret', 'ssl_version'),
                ('ssl_ca_file=/nowhere', 'ssl_ca_file'),
                (f'ssl_ca_file={path}', 'ssl_ca_file'),
                ('ssl_cert_file=/nowhere', 'ssl_cert_file'),
                (f'ssl_cert_file={path}&ssl_key_file={path}',
                 'ssl_key_file')):
            query = query if query == 'ssl=s3cret' else f'ssl=1&{query}'
            field = self.refused(f'rabbit://u:p@{self.place}/?{query}')

            self.assertIn('[oslo_messaging_rabbit]', field)
            self.assertIn(name, field)

    def test_options_of_tls_are_read_only_with_tls(self):
        self.conf.set_override(
            'ssl_ca_file', '/nowhere', 'oslo_messaging_rabbit')
        self.check(f'rabbit://u:p@{self.place}/v')

        self.conf.set_override('ssl', True, 'oslo_messaging_rabbit')

        self.assertIn('ssl_ca_file',
                      self.refused(f'rabbit://u:p@{self.place}/v'))


class TestTransports(base.RPCTestCase):

    def test_unset_url_is_named(self):
        self.assertIn('[DEFAULT] transport_url', str(self.assertRaises(
            exception.ConfigurationInvalid, self.transports.check)))


class TestConfiguredTransports(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        self.conf.set_override('transport_url', f'{self.world}/cell')

    def override(self, name, value):
        self.conf.set_override(
            name, value, 'oslo_messaging_notifications')

    def test_own_broker_is_looked_at(self):
        self.conf.set_override('transport_url', 'rabbit://u:p@no.invalid/')

        self.transports.check()

        self.assertIn('[DEFAULT] transport_url', self.logs.output)
        self.assertIn('no.invalid', self.logs.output)

    def test_broker_of_notifications_is_checked_only_if_enabled(self):
        self.override('transport_url', 'rabbit://u:p@no.invalid/')
        for driver in [], ['noop'], ['log']:
            self.override('driver', driver)
            self.transports.check()
            self.assertEqual('', self.logs.output)

        self.override('driver', ['log', 'messagingv2'])
        self.transports.check()

        self.assertIn('[oslo_messaging_notifications] transport_url',
                      self.logs.output)

    def test_unreadable_url_is_named_but_not_quoted(self):
        self.conf.set_override('transport_url', 'rabbit://u:12/s3cret@h/')

        message = str(self.assertRaises(
            exception.ConfigurationInvalid, self.transports.check))

        self.assertIn('%2F', message)
        self.assertNotIn('s3cret', message)
