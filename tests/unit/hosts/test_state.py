# SPDX-License-Identifier: Apache-2.0
"""One row as an object."""

import copy
import datetime

import numpy as np

from cellsched.hosts import columns
from cellsched.hosts import state
from cellsched.testing import builders
from tests.unit import base


class TestHostState(base.TestCase):
    """A host under the names that Nova's has."""

    def test_attributes_have_the_names_of_nova(self):
        hosts = builders.hosts(
            2, host=['a', 'b'], nodename=['n', 'm'], cell=['c', 'd'],
            free_ram_mb=[1, 2], failed_builds=[0, 5], vcpus_used=[0, 3])
        host = state.HostState(hosts, 1)

        self.assertEqual(
            ('b', 'm', 'm', 'd', hosts['uuid'][1]),
            (host.host, host.nodename, host.hypervisor_hostname,
             host.cell_uuid, host.uuid))
        self.assertEqual((2, 100 * 1024), (host.free_ram_mb,
                                           host.free_disk_mb))
        self.assertEqual((8, 3), (host.vcpus_total, host.vcpus_used))
        self.assertEqual((16384, 100, 0), (host.total_usable_ram_mb,
                                           host.total_usable_disk_gb,
                                           host.disk_mb_used))
        self.assertEqual((0, 0, 5), (host.num_instances, host.num_io_ops,
                                     host.failed_builds))
        self.assertEqual(
            (4.0, 1.0, 1.0),
            (host.cpu_allocation_ratio, host.ram_allocation_ratio,
             host.disk_allocation_ratio))
        self.assertEqual({}, host.limits)

    def test_values_are_plain(self):
        host = state.HostState(builders.hosts(), 0)

        self.assertIs(int, type(host.free_ram_mb))
        self.assertIs(float, type(host.cpu_allocation_ratio))
        self.assertIs(bool, type(host.service_disabled))
        self.assertIs(str, type(host.host))

    def test_row_is_read_at_access(self):
        hosts = builders.hosts()
        host = state.HostState(hosts, 0)

        hosts.take(0, {'MEMORY_MB': 1000})

        self.assertEqual(15384, host.free_ram_mb)

    def test_service_has_the_form_of_a_record(self):
        hosts = builders.hosts(
            service_disabled=True, last_seen_up=86400.5, host='a')

        self.assertEqual(
            {'host': 'a', 'disabled': True, 'forced_down': False,
             'last_seen_up': datetime.datetime(1970, 1, 2, 0, 0, 0, 500000)},
            dict(state.HostState(hosts, 0).service))

    def test_zone_is_its_name(self):
        hosts = builders.hosts(availability_zone='east')

        self.assertEqual('east', state.HostState(hosts, 0).availability_zone)

    def test_column_of_a_plugin_is_an_attribute(self):
        rack = columns.Column('rack', 'int32', -1, 'number of the rack')
        hosts = builders.hosts(2, columns=[rack], rack=[3, 4])

        self.assertEqual(4, state.HostState(hosts, 1).rack)

    def test_unknown_column_is_no_attribute(self):
        host = state.HostState(builders.hosts(), 0)

        error = self.assertRaises(AttributeError, getattr, host, 'pci_stats')
        self.assertIn('pci_stats', str(error))
        self.assertFalse(hasattr(host, '_limits'))

    def test_index_counts_hosts_of_the_view(self):
        hosts = builders.hosts(3).at(np.array([0, 2]))

        self.assertEqual('host3', state.HostState(hosts, 1).host)

    def test_unreported_address_is_none(self):
        host = state.HostState(builders.hosts(), 0)

        self.assertEqual((None, None), (host.host_ip, host.hypervisor_type))

    def test_facts_of_the_cell_are_attributes(self):
        host = state.HostState(builders.hosts(num_io_ops=[2, 3]), 1)

        self.assertEqual((5, 1.0), (host.cell_builds, host.cell_free_share))
        self.assertIs(int, type(host.cell_builds))

    def test_aggregates_are_a_list(self):
        some = builders.aggregate(1, x='y'), builders.aggregate(2)
        hosts = builders.hosts(aggregates=[some, ()])

        self.assertEqual([list(some), []], [
            state.HostState(hosts, place).aggregates for place in (0, 1)])

    def test_json_texts_are_parsed(self):
        host = state.HostState(builders.hosts(
            stats='{"a": {"b": 1}}', metrics='[{"name": "m"}]'), 0)

        self.assertEqual(({'a': {'b': 1}}, [{'name': 'm'}]),
                         (host.stats, host.metrics))

    def test_invalid_json_is_empty(self):
        for text in ('', 'nonsense', 'null', '[' * 100_000):
            host = state.HostState(
                builders.hosts(stats=text, metrics=text), 0)

            self.assertEqual(({}, []), (host.stats, host.metrics))

    def test_instances_are_members_located_on_the_host(self):
        hosts = builders.hosts(2, located={'i': 1, 'j': 0, 'k': 1})
        instances = state.HostState(hosts, 1).instances

        self.assertEqual({'i', 'k'}, set(instances))
        self.assertEqual('k', instances['k'].uuid)

    def test_limits_belong_to_a_single_state(self):
        hosts = builders.hosts()
        state.HostState(hosts, 0).limits['vcpu'] = 3

        self.assertEqual({}, state.HostState(hosts, 0).limits)

    def test_text_names_the_host(self):
        host = state.HostState(builders.hosts(), 0)

        self.assertIn('host1', repr(host))
        self.assertIn('host1', repr(copy.copy(host)))
