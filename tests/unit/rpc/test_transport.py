# SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import importlib.util

from oslo_config import cfg
import oslo_messaging

from cellsched import exception
from cellsched.rpc import transport
from tests.unit.rpc import base


class TestTransports(base.RPCTestCase):

    def refused(self, url):
        return str(self.assertRaises(exception.ConfigurationInvalid,
                                     self.transports.get, url))

    def test_transport_is_opened_once(self):
        with concurrent.futures.ThreadPoolExecutor(8) as callers:
            opened = set(callers.map(
                self.transports.get, [f'{self.world}/new'] * 32))

        self.assertEqual(1, len(opened))

    def test_cells_have_separate_transports(self):
        self.assertIsNot(self.transports.get(f'{self.world}/one'),
                         self.transports.get(f'{self.world}/two'))

    def test_transport_without_a_url_is_of_the_configuration(self):
        self.conf.set_override('transport_url', f'{self.world}/cell')

        self.assertIs(self.transport, self.transports.get())
        self.assertIs(self.transport, self.transports.get(''))

    def test_missing_url_in_the_configuration_is_named(self):
        self.assertIn('[DEFAULT] transport_url', self.refused(None))

    def test_url_in_a_file_is_a_url_in_the_configuration(self):
        path = self.temporary_directory() / 'a.conf'
        path.write_text(f'[DEFAULT]\ntransport_url = {self.world}/cell\n')
        conf = cfg.ConfigOpts()
        conf([], default_config_files=[str(path)])
        transports = transport.Transports(conf)
        self.addCleanup(transports.close)

        self.assertEqual('local', transports.get()._driver._url.transport)

    def test_notifications_use_the_configured_transport(self):
        self.conf.set_override('transport_url', f'{self.world}/cell')

        told = self.transports.notifications()

        self.assertIs(told, self.transports.notifications())
        self.assertIsNot(self.transport, told)
        self.assertEqual('cell', told._driver._url.virtual_host)

    def test_notifications_may_have_a_separate_transport(self):
        self.conf.set_override('transport_url', f'{self.world}/cell')
        self.conf.set_override('transport_url', f'{self.world}/told',
                               'oslo_messaging_notifications')

        told = self.transports.notifications()

        self.assertEqual('told', told._driver._url.virtual_host)

    def test_bad_url_for_notifications_is_named(self):
        self.conf.set_override('transport_url', 'rabit://u:s3cret@host/',
                               'oslo_messaging_notifications')

        message = str(self.assertRaises(
            exception.ConfigurationInvalid, self.transports.notifications))

        self.assertIn('[oslo_messaging_notifications] transport_url', message)
        self.assertNotIn('s3cret', message)

    def test_url_without_a_transport_is_an_error(self):
        error = self.assertRaises(
            exception.Invalid, self.transports.get, 'none:///')

        self.assertNotIsInstance(error, exception.ConfigurationInvalid)
        self.assertIn('no transport', str(error))

    def test_error_for_an_unknown_scheme_lists_schemes(self):
        message = self.refused('rabit://guest:s3cret@host/')

        self.assertIn('transport_url', message)
        self.assertIn('local, rabbit', message)

    def test_error_for_a_url_without_scheme_shows_the_format(self):
        self.assertIn('scheme://', self.refused('//guest:s3cret@host/'))

    def test_unimportable_transport_names_the_missing_module(self):
        if importlib.util.find_spec('confluent_kafka'):
            self.skipTest('what kafka:// needs is installed')

        message = self.refused('kafka://guest:s3cret@host/')

        self.assertIn('confluent_kafka', message)
        self.assertNotIn('s3cret', message)

    def test_errors_quote_no_password(self):
        for url in ('rabbit://guest:s3cret', 'rabbit://guest:s3cret/@host/',
                    'rabbit://guest:s3/cret@host/', 'guest:s3cret@host/',
                    'rabbit://guest:p@s3cret:host/', 's3cret',
                    'rabbit://[guest:s3cret@host/', '//guest:s3cret@host/',
                    'rabit://guest:s3cret@host/',
                    'rabbit://h/?rabbit_retry_interval=s3cret',
                    'rabbit://h/?s3cret=1'):
            error = self.assertRaises(exception.ConfigurationInvalid,
                                      self.transports.get, url)
            self.assertNotIn('s3', repr(error), url)
            self.assertIsNone(error.__context__, url)

    def test_bad_url_names_the_option_or_the_cell(self):
        self.conf.set_override('transport_url', 'rabit://host/')

        self.assertIn('[DEFAULT] transport_url', self.refused(None))
        self.assertNotIn('DEFAULT', self.refused('rabit://host/'))

    def test_close_closes_each_transport(self):
        opened = [self.transport, self.transports.get(f'{self.world}/two')]

        self.transports.close()

        for each in opened:
            client = oslo_messaging.get_rpc_client(
                each, oslo_messaging.Target(topic='topic'))
            self.assertRaises(oslo_messaging.MessageDeliveryFailure,
                              client.cast, {}, 'note')
        self.assertIsNot(opened[0], self.transports.get(f'{self.world}/cell'))

    def test_errors_of_more_modules_can_be_allowed(self):
        class Endpoint:
            def fail(self, context):
                raise oslo_messaging.InvalidTarget('no', None)

        self.serve(Endpoint())
        transports = transport.Transports(
            self.conf, ['oslo_messaging.exceptions'])
        self.addCleanup(transports.close)
        client = oslo_messaging.get_rpc_client(
            transports.get(f'{self.world}/cell'),
            oslo_messaging.Target(topic='topic'))

        self.assertRaises(oslo_messaging.RemoteError, client.call, {}, 'fail')
