# SPDX-License-Identifier: Apache-2.0
"""What a caller asks the scheduler for."""

from cellsched import objects
from tests.unit import base
from tests.unit.db import samples


class TestRequestSpec(base.TestCase):

    def test_hint_is_a_list(self):
        spec = objects.RequestSpec(scheduler_hints={'group': ['a', 'b']})

        self.assertEqual(['a', 'b'], spec.hint('group'))

    def test_hint_that_is_not_given_is_empty(self):
        for spec in (objects.RequestSpec(),
                     objects.RequestSpec(scheduler_hints=None),
                     objects.RequestSpec(scheduler_hints={'group': []})):
            self.assertEqual([], spec.hint('group'))

    def test_changing_a_hint_does_not_change_the_request(self):
        spec = objects.RequestSpec(scheduler_hints={'group': ['a']})

        spec.hint('group').append('b')

        self.assertEqual(['a'], spec.hint('group'))

    def test_hint_is_read_as_by_filters_written_for_nova(self):
        spec = objects.RequestSpec(
            scheduler_hints={'one': ['a'], 'two': ['a', 'b'], 'none': []})

        self.assertEqual('a', spec.get_scheduler_hint('one'))
        self.assertEqual(['a', 'b'], spec.get_scheduler_hint('two'))
        self.assertEqual([], spec.get_scheduler_hint('none', 'x'))
        self.assertIsNone(spec.get_scheduler_hint('three'))
        for hints in ({}, {'scheduler_hints': None}):
            self.assertEqual('x', objects.RequestSpec(
                **hints).get_scheduler_hint('one', 'x'))

    def test_image_property_is_read_where_there_is_one(self):
        properties = objects.ImageMetaProps(hw_architecture='x86_64')
        spec = objects.RequestSpec(
            image=objects.ImageMeta(properties=properties))

        self.assertEqual('x86_64', spec.image_property('hw_architecture'))
        self.assertIsNone(spec.image_property('img_hv_type'))
        for image in (None, objects.ImageMeta(),
                      objects.ImageMeta(properties=None)):
            self.assertIsNone(objects.RequestSpec(
                image=image).image_property('hw_architecture'))
        self.assertEqual(
            'any', objects.RequestSpec().image_property('x', 'any'))

    def resources(self, is_bfv=False, **flavor):
        return objects.RequestSpec(
            flavor=samples.flavor(**flavor), is_bfv=is_bfv).resources()

    def test_resources_are_those_of_the_flavor(self):
        self.assertEqual(
            {'VCPU': 2, 'MEMORY_MB': 512, 'DISK_GB': 15},
            self.resources(vcpus=2, memory_mb=512, root_gb=10,
                           ephemeral_gb=5))

    def test_swap_is_taken_in_whole_gigabytes(self):
        for swap, disk_gb in ((0, 10), (1, 11), (1024, 11), (1025, 12)):
            self.assertEqual(
                disk_gb, self.resources(root_gb=10, swap=swap)['DISK_GB'])

    def test_root_disk_on_a_volume_takes_no_disk_of_the_host(self):
        self.assertEqual(
            5, self.resources(True, root_gb=10, ephemeral_gb=5)['DISK_GB'])

    def test_extra_specs_say_what_is_taken_of_a_class(self):
        said = {'resources:VCPU': '4', 'resources:DISK_GB': '0',
                'resources:CUSTOM_X': '2', 'resources:VGPU': '0'}
        for is_bfv in False, True:
            self.assertEqual(
                {'VCPU': 4, 'MEMORY_MB': 512, 'CUSTOM_X': 2},
                self.resources(is_bfv, vcpus=2, memory_mb=512, root_gb=10,
                               extra_specs=said))

    def test_disk_that_an_extra_spec_names_is_taken_with_a_volume_too(self):
        self.assertEqual(7, self.resources(
            True, root_gb=10,
            extra_specs={'resources:DISK_GB': '7'})['DISK_GB'])

    def test_nothing_is_asked_of_what_is_not_needed(self):
        self.assertEqual({'VCPU': 1, 'MEMORY_MB': 512},
                         self.resources(True, root_gb=10))

    def test_flavor_with_the_fields_needed_is_enough(self):
        flavor = objects.Flavor(vcpus=1, memory_mb=512, root_gb=10)

        self.assertEqual(
            {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 10},
            objects.RequestSpec(flavor=flavor).resources())


class TestSchedulerLimits(base.TestCase):

    def test_dict_has_the_limits_that_are_set(self):
        self.assertEqual({}, objects.SchedulerLimits().to_dict())
        self.assertEqual(
            {'vcpu': 4, 'numa_topology': {'a': 1}},
            objects.SchedulerLimits(vcpu=4, disk_gb=None,
                                    numa_topology={'a': 1}).to_dict())
