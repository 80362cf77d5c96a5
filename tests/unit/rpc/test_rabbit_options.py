# SPDX-License-Identifier: Apache-2.0
"""Options of RabbitMQ's driver, from the group and from a URL."""

from oslo_concurrency import lockutils
from oslo_config import cfg

from cellsched import exception
from cellsched.rpc import broker_urls
from cellsched.rpc.rabbit_options import GROUP
from cellsched.rpc.rabbit_options import Options
from tests.unit.rpc import base


class OptionsTestCase(base.RPCTestCase):

    def options(self, query=''):
        return Options(self.conf, broker_urls.parse(
            self.conf, f'rabbit://u:p@h/v?{query}'))

    def set(self, **values):
        for name, value in values.items():
            self.conf.set_override(name, value, GROUP)

    def refused(self, query=''):
        error = self.assertRaises(
            exception.ConfigurationInvalid,
            lambda: self.options(query).check())
        self.assertNotIn('s3cret', str(error))
        return str(error)


class TestOptions(OptionsTestCase):

    def test_defaults_are_queue_types_of_new_brokers(self):
        options = self.options()
        options.check()

        for name in ('rabbit_quorum_queue', 'rabbit_transient_quorum_queue',
                     'rabbit_stream_fanout'):
            self.assertIs(True, options[name])
        self.assertTrue(options.durable)

    def test_query_overrides_the_group_with_values_of_its_type(self):
        options = self.options(
            'rabbit_quorum_queue=false&rabbit_qos_prefetch_count=7')

        self.assertIs(False, options['rabbit_quorum_queue'])
        self.assertEqual(7, options['rabbit_qos_prefetch_count'])
        self.assertFalse(options.durable)

    def test_invalid_value_of_a_query_is_named_and_not_quoted(self):
        for name in ('rabbit_quorum_queue', 'rabbit_qos_prefetch_count',
                     'ssl'):
            self.assertIn(f'[{GROUP}] {name}', self.refused(f'{name}=s3cret'))

    def test_contradicting_options_are_named(self):
        for query, name in (
                ('rabbit_ha_queues=1', 'rabbit_ha_queues'),
                ('rabbit_transient_quorum_queue=0',
                 'rabbit_transient_quorum_queue'),
                ('rabbit_qos_prefetch_count=0', 'rabbit_qos_prefetch_count')):
            self.assertIn(f'[{GROUP}] {name}', self.refused(query))

        for query in ('rabbit_ha_queues=1&rabbit_quorum_queue=0',
                      'rabbit_transient_quorum_queue=0&rabbit_stream_fanout=0',
                      'rabbit_qos_prefetch_count=0&rabbit_stream_fanout=0'):
            self.options(query).check()

    def test_transport_with_a_contradiction_is_not_opened(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.transports.get,
            'rabbit://u:s3cret@h/v?rabbit_ha_queues=true')

        self.assertIn('rabbit_ha_queues', error.field)


class TestLocks(OptionsTestCase):

    def setUp(self):
        super().setUp()
        # The library has one directory for the process.
        self.addCleanup(
            lockutils.set_defaults, lockutils.get_lock_path(cfg.CONF))
        lockutils.set_defaults(None)
        self.set(use_queue_manager=True)

    def directory(self, path):
        lockutils.get_lock_path(self.conf)
        self.conf.set_override('lock_path', str(path), 'oslo_concurrency')

    def test_lock_directory_is_set_for_oslo_concurrency(self):
        path = self.temporary_directory() / 'new' / 'locks'
        self.directory(path)

        self.options().check()

        self.assertEqual(str(path), lockutils.get_lock_path(cfg.CONF))
        with lockutils.external_lock('name'):
            self.assertTrue(path.is_dir())

    def test_missing_or_unusable_lock_directory_is_refused(self):
        self.assertIn('[oslo_concurrency] lock_path: it is not set',
                      self.refused())

        file = self.temporary_directory() / 'file'
        file.touch()
        self.directory(file / 'locks')
        self.assertIn(f'{file} is not a writable directory', self.refused())

    def test_directory_is_required_for_the_queue_manager_only(self):
        self.set(use_queue_manager=False)
        self.options().check()

        self.assertIn('lock_path', self.refused('use_queue_manager=true'))

    def test_directory_of_the_process_is_enough(self):
        self.assertIn('lock_path', self.refused())

        lockutils.set_defaults(str(self.temporary_directory()))
        self.options().check()
