# SPDX-License-Identifier: Apache-2.0
"""The plug-in that records changes in memory or in a file."""

from concurrent import futures
import json

from cellsched import exception
from cellsched.network import fake
from cellsched.testing.suite import networks as suite
from tests.unit import base
from tests.unit.network import networks


class TestFakeNetworks(suite.NetworkSuite, base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.temporary_directory() / 'records'

    def make_network(self):
        return networks.make(fake.FakeNetworks, records=str(self.path))

    def look(self, network, uuid):
        return network.allocated().get(uuid)

    def test_changes_are_lines_of_the_file_and_repeats_are_not(self):
        network, instance = self.make_network(), self.make_instance()
        for _ in range(2):
            self.allocate(network, instance, requested=['a'])
            network.setup_instance_network_on_host(
                suite.USER, instance, 'host2')
        for _ in range(2):
            network.cleanup_instance_network_on_host(
                suite.USER, instance, 'host1')
        for _ in range(2):
            network.deallocate_for_instance(suite.USER, instance)

        records = [json.loads(line) for line
                   in self.path.read_text().splitlines()]
        self.assertEqual(
            [('allocate', 'host1', ['a']), ('setup', 'host2', None),
             ('cleanup', 'host1', None), ('deallocate', None, None)],
            [(each['call'], each['host'], each['requested_networks'])
             for each in records])
        self.assertEqual({instance.uuid},
                         {each['instance'] for each in records})
        self.assertEqual(records, network.records)

    def test_partial_record_of_a_killed_writer_is_ignored(self):
        network, other = self.make_network(), self.make_network()
        first, second = self.make_instance(), self.make_instance()
        self.allocate(network, first)
        with self.path.open('a') as file:
            file.write('{"call": "alloc')

        self.allocate(other, second)

        for each in network, other, self.make_network():
            self.assertEqual({first.uuid, second.uuid}, {*each.allocated()})
        self.assertIn('cannot be read', self.logs.output)

    def test_processes_sharing_a_file_record_each_change_once(self):
        sharing = [self.make_network() for _ in range(4)]
        instances = [self.make_instance() for _ in range(20)]

        def change(network):
            for instance in instances:
                self.allocate(network, instance)
            for instance in instances[:10]:
                network.deallocate_for_instance(suite.USER, instance)

        with futures.ThreadPoolExecutor(len(sharing)) as threads:
            list(threads.map(change, sharing))

        allocated = sharing[0].allocated()
        self.assertEqual(
            {each.uuid for each in instances[10:]},
            set(allocated) - {each.uuid for each in instances[:10]})
        for network in sharing:
            self.assertEqual(allocated, network.allocated())
            self.assertEqual(sharing[0].records, network.records)

    def test_plugin_without_a_file_records_in_memory(self):
        network = networks.make(fake.FakeNetworks)
        instance = self.make_instance()

        self.allocate(network, instance)

        self.assertEqual({instance.uuid: {'host1'}}, network.allocated())
        self.assertEqual(1, len(network.records))
        self.assertEqual({}, networks.make(fake.FakeNetworks).allocated())

    def test_configured_failure_changes_no_network(self):
        network = networks.make(
            fake.FakeNetworks, fail_allocations=1, fail_setups=1,
            fail_cleanups=1, fail_deallocations=1)
        instance = self.make_instance()

        for method, more, has in (
                ('allocate_for_instance', (None, 'host1'), None),
                ('setup_instance_network_on_host', ('host2',), {'host1'}),
                ('cleanup_instance_network_on_host', ('host1',),
                 {'host1', 'host2'}),
                ('deallocate_for_instance', (), {'host2'})):
            call = getattr(network, method)
            self.assertRaises(
                exception.NetworkError, call, suite.USER, instance, *more)
            self.assertEqual(has, network.allocated().get(instance.uuid))
            call(suite.USER, instance, *more)
        self.assertEqual({}, network.allocated())

    def test_failures_can_be_set_at_runtime(self):
        network, instance = self.make_network(), self.make_instance()
        network.fail('allocate', 2)

        for _ in range(2):
            self.assertRaises(exception.NetworkError, self.allocate, network,
                              instance)
        self.allocate(network, instance)

        self.assertHas(network, instance, 'host1')
