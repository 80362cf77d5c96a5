# SPDX-License-Identifier: Apache-2.0
"""Builders for tests of plug-ins."""

from oslo_config import cfg

from cellsched.filters import compute
from cellsched.filters import num_instances
from cellsched.hosts import columns
from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from tests.unit import base


class TestHosts(base.TestCase):

    def test_default_table_has_a_single_host(self):
        self.assertEqual(1, len(builders.hosts()))
        self.assertEqual(1, len(builders.hosts(num_instances=3)))
        self.assertEqual(3, len(builders.hosts(3, num_instances=3)))
        self.assertEqual(2, len(builders.hosts(num_instances=[1, 2])))
        self.assertEqual(0, len(builders.hosts(0)))
        self.assertEqual(0, len(builders.hosts(num_instances=[])))

    def test_hosts_are_up_and_take_a_request(self):
        hosts = builders.hosts(3)
        decision = pipeline.Pipeline(
            [builders.plugin(compute.ComputeFilter)], [])

        found = decision.candidates(hosts, builders.request())

        self.assertEqual([0, 1, 2], found.rows.tolist())

    def test_hosts_have_unique_names(self):
        hosts = builders.hosts(2)

        self.assertEqual(['host1', 'host2'], hosts['host'].tolist())
        self.assertNotEqual(*hosts['uuid'])

    def test_capacity_follows_from_the_free_amounts(self):
        hosts = builders.hosts(
            free_ram_mb=[16384, 1000], vcpus_used=[0, 3],
            free_disk_mb=[2047, 2048])

        self.assertEqual([16384, 1000], hosts.available('MEMORY_MB').tolist())
        self.assertEqual([32, 29], hosts.available('VCPU').tolist())
        self.assertEqual([1, 2], hosts.available('DISK_GB').tolist())

    def test_room_follows_from_the_ratio(self):
        hosts = builders.hosts(
            unreserved_ram_mb=1000, ram_allocation_ratio=1.5, free_ram_mb=900)

        self.assertEqual([1400], hosts.available('MEMORY_MB').tolist())

    def test_available_amounts_can_be_given(self):
        hosts = builders.hosts(2, available={'VCPU': [1, 2], 'CUSTOM_X': 7})

        self.assertEqual([1, 2], hosts.available('VCPU').tolist())
        self.assertEqual([7, 7], hosts.available('CUSTOM_X').tolist())

    def test_uuids_can_be_given(self):
        hosts = builders.hosts(uuid=['a', 'b'], located={'i': 1})

        self.assertEqual(['a', 'b'], hosts['uuid'].tolist())
        self.assertEqual([1], hosts.rows_of(['i']).tolist())

    def test_column_of_a_plugin_can_be_given(self):
        rack = columns.Column('rack', 'int32', -1, 'number of the rack')

        hosts = builders.hosts(2, columns=[rack], rack=[1, 2])

        self.assertEqual([1, 2], hosts['rack'].tolist())

    def test_unknown_argument_is_an_error(self):
        for wrong in ({'num_instance': [1]},
                      {'num_instances': [1], 'vcpus_used': [1, 2]},
                      {'count': 3, 'num_instances': [1]}):
            self.assertRaises(ValueError, builders.hosts, **wrong)


class TestRequest(base.TestCase):

    def test_fields_are_set_in_request_and_flavor(self):
        request = builders.request(memory_mb=7, availability_zone='a')

        self.assertEqual((7, 1), (request.flavor.memory_mb,
                                  request.flavor.vcpus))
        self.assertEqual('a', request.availability_zone)

    def test_hint_is_a_value_or_several(self):
        request = builders.request(hints={'group': 'a', 'others': ['b', 'c']})

        self.assertEqual(['a'], request.hint('group'))
        self.assertEqual(['b', 'c'], request.hint('others'))
        self.assertEqual([], request.hint('none'))

    def test_image_is_its_properties_or_its_fields(self):
        for image in ({'img_hv_type': 'kvm'},
                      {'id': 'i', 'properties': {'img_hv_type': 'kvm'}}):
            request = builders.request(image=image)

            self.assertEqual('kvm', request.image_property('img_hv_type'))
        self.assertEqual('i', request.image.id)
        self.assertIsNone(builders.request(image=None).image)

    def test_group_is_its_fields(self):
        group = builders.request(group={
            'policy': 'anti-affinity', 'members': ['a'],
            'rules': {'max_server_per_host': 2}}).instance_group

        self.assertEqual(('anti-affinity', ['a'], []),
                         (group.policy, group.members, group.hosts))
        self.assertEqual({'max_server_per_host': 2}, group.rules)

    def test_unknown_argument_is_an_error(self):
        self.assertRaises(ValueError, builders.request, ram_mb=3)


class TestPlugin(base.TestCase):

    def test_options_have_defaults_or_the_given_values(self):
        kind = num_instances.NumInstancesFilter

        self.assertEqual(
            [50, 3], [plugin.options.max_instances_per_host for plugin in (
                builders.plugin(kind),
                builders.plugin(kind, max_instances_per_host=3))])

    def test_options_of_the_default_group_are_found(self):
        plugin = builders.plugin(compute.ComputeFilter, service_down_time=9)

        self.assertEqual(9, plugin.options.service_down_time)

    def test_unknown_argument_is_an_error(self):
        self.assertRaises(cfg.NoSuchOptError, builders.plugin,
                          num_instances.NumInstancesFilter, limit=3)
