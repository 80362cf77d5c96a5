# SPDX-License-Identifier: Apache-2.0
"""Bounds of requests are those of the options, on both of their sides."""

from cellsched.conf import loader
from cellsched import exception
from cellsched import objects
from cellsched.scheduler import request_validation
from cellsched.testing import builders
from tests.unit import base
from tests.unit.db import samples

BOUNDS = request_validation.RequestBounds(3, 4, 5)

A_HOST = 'a name of 1 to 255 characters'


class TestOptions(base.TestCase):

    def test_each_option_is_the_bound_of_its_name(self):
        path = self.temporary_directory() / 'conf'
        path.write_text('[scheduler]\nmax_instances_per_request = 3\n'
                        'max_names_per_request = 4\n'
                        'max_values_per_list = 5\n')
        conf = loader.load(files=[str(path)], dirs=[])

        self.assertEqual(
            request_validation.RequestBounds(
                instances_max=3, names_max=4, values_max=5),
            request_validation.bounds(conf.scheduler))


class BoundsCase(base.TestCase):

    def assertRefused(self, field, expected, call, *args):
        error = self.assertRaises(exception.InvalidField, call, *args)

        self.assertEqual(
            ('select_destinations', field, expected),
            tuple(error.kwargs[name] for name in (
                'where', 'field', 'expected')))


class TestBounds(BoundsCase):

    def check(self, uuids=(), **wishes):
        request_validation.check(
            builders.request(**wishes),
            samples.uuids(1) if uuids == () else uuids, BOUNDS)

    def test_lists_have_at_most_the_maximum_of_values(self):
        def group(**fields):
            return {'instance_group': objects.InstanceGroup(**fields)}

        def target(**fields):
            return {'requested_destination': objects.Destination(**fields)}

        for field, wish in (
                ('ignore_hosts', lambda those: {'ignore_hosts': those}),
                ('force_hosts', lambda those: {'force_hosts': those}),
                ('force_nodes', lambda those: {'force_nodes': those}),
                ('instance_group.members', lambda those: group(
                    members=those)),
                ('instance_group.hosts', lambda those: group(hosts=those)),
                ('requested_destination.aggregates', lambda those: target(
                    aggregates=those)),
                ('requested_destination.forbidden_aggregates',
                 lambda those: target(forbidden_aggregates=set(those)))):
            for count in 0, 5:
                self.check(**wish(samples.uuids(count)))
            self.assertRefused(
                f'spec_obj.{field}', 'at most 5 values',
                lambda: self.check(**wish(samples.uuids(6))))

    def test_mappings_have_at_most_the_maximum_of_names(self):
        for field, kind in (('flavor.extra_specs', 'extra specs'),
                            ('image.properties', 'properties'),
                            ('scheduler_hints', 'hints')):
            def check(count):
                option = {'flavor.extra_specs': 'extra_specs',
                          'image.properties': 'image',
                          'scheduler_hints': 'hints'}[field]
                value = ['x'] if option == 'hints' else 'x'
                self.check(**{option: {
                    f'a{number}': value for number in range(count)}})

            check(4)
            self.assertRefused(
                f'spec_obj.{field}', f'at most 4 {kind}', check, 5)

    def test_instances_are_at_most_the_maximum(self):
        self.check(samples.uuids(3))
        for uuids in samples.uuids(4), []:
            self.assertRefused(
                'instance_uuids', '1 to 3 different uuids', self.check, uuids)
        [uuid] = samples.uuids(1)
        self.assertRefused(
            'instance_uuids', '1 to 3 different uuids', self.check,
            [uuid, uuid])

    def test_unnamed_instances_are_at_most_the_maximum(self):
        for count in 1, 3:
            self.check(None, num_instances=count)
        self.assertRefused(
            'spec_obj.num_instances', 'a whole number from 1 to 3',
            lambda: self.check(None, num_instances=4))
        # Where they are named, the number of the request is history.
        self.check(num_instances=2 ** 31 - 1)

    def test_missing_number_of_instances_is_1(self):
        spec = builders.request()
        del spec.num_instances

        request_validation.check(
            spec, None, request_validation.RequestBounds(1, 4, 5))
        self.assertRefused(
            'spec_obj.num_instances', 'a whole number from 1 to 0',
            request_validation.check, spec, None,
            request_validation.RequestBounds(0, 4, 5))

    def test_instance_of_the_request_can_be_looked_up(self):
        self.check(instance_uuid='x' * 36)
        self.assertRefused(
            'spec_obj.instance_uuid', 'uuids of at most 36 characters',
            lambda: self.check(instance_uuid='x' * 37))

    def test_invalid_amounts_are_refused_with_their_bounds(self):
        flavor = {'vcpus': 1, 'memory_mb': 1, 'root_gb': 1}
        for name in flavor:
            for value, expected in (
                    (None, 'a number'),
                    (-1, 'an amount from 0 to 2147483647')):
                fields = {**flavor, name: value}
                if value is None:
                    del fields[name]
                self.assertRefused(
                    f'spec_obj.flavor.{name}', expected,
                    request_validation.check, objects.RequestSpec(
                        flavor=objects.Flavor(**fields)), None, BOUNDS)

    def test_long_hint_is_shortened_in_the_error(self):
        for length in 40, 41:
            self.assertRefused(
                'spec_obj.scheduler_hints._' + 'x' * 39,
                'a name that does not begin with _',
                lambda: self.check(hints={'_'.ljust(length, 'x'): ['y']}))


class TestValues(BoundsCase):

    def test_host_has_a_name(self):
        for name in 'x', 'x' * 255, 'h\u00f6st':
            request_validation.check_host('of', name)
        for name in '', 'x' * 256, 'a\n', None, 7:
            self.assertRefused(
                'of', A_HOST, request_validation.check_host, 'of', name)

    def test_ids_are_texts_of_a_length(self):
        for ids in [], ['x'], ['x' * 36, 'y']:
            request_validation.check_ids('of', ids)
        for ids in ['x', 'y' * 37], ['x', 7], [None], ['\u00e9'], ['x', '\t']:
            self.assertRefused(
                'of', 'uuids of at most 36 characters',
                request_validation.check_ids, 'of', ids)
