# SPDX-License-Identifier: Apache-2.0
"""What a request must be; service and stories send it over RPC too."""

import uuid

from cellsched.conf import loader
from cellsched import exception
from cellsched import objects
from cellsched.scheduler import request_validation
from cellsched.testing import builders
from tests.unit import base
from tests.unit.db import samples

UUIDS = [str(uuid.UUID(int=number)) for number in range(1, 4)]

MOST = 2 ** 31 - 1

BOUNDS = request_validation.RequestBounds(3, 4, 5)

A_HOST = 'a name of 1 to 255 characters'


class TestCheck(base.TestCase):

    def check(self, spec, uuids=UUIDS, most=3):
        request_validation.check(
            spec, uuids, request_validation.RequestBounds(most))

    def assertRefused(self, field, spec, *args):
        error = self.assertRaises(
            exception.InvalidField, self.check, spec, *args)
        self.assertEqual(field, error.field)
        self.assertTrue(str(error).isprintable())

    def test_ids_of_project_and_user_are_bounded(self):
        for name in 'project_id', 'user_id':
            for good in (None, '', 'x' * 255, 'a project', '\u00e4'):
                self.check(builders.request(**{name: good}))
            for bad in 'x' * 256, 'x\0', '\ud800':
                self.assertRefused(
                    f'spec_obj.{name}', builders.request(**{name: bad}))

    def test_number_of_servers_is_bounded(self):
        self.check(builders.request(
            hints={'group': ['x']}, image={'hw_architecture': 'x86_64'},
            instance_group=objects.InstanceGroup(members=UUIDS, hosts=None),
            num_instances=1000, ignore_hosts=['a'] * 10))
        for number in (0, -1, MOST + 1):
            self.assertRefused('spec_obj.num_instances',
                               builders.request(num_instances=number))

    def test_extra_spec_with_an_invalid_amount_is_refused(self):
        for name, said in (('VGPU', 'x'), ('VGPU', '-1'), ('GPU', '1')):
            error = self.assertRaises(
                exception.InvalidField, self.check, builders.request(
                    extra_specs={f'resources:{name}': said}))
            self.assertEqual(f'extra_specs.resources:{name}', error.field)
        self.check(builders.request(extra_specs={'resources:VGPU': '1'}))

    def test_request_without_resources_is_refused(self):
        nothing = dict.fromkeys(
            ('resources:VCPU', 'resources:MEMORY_MB', 'resources:DISK_GB'),
            '0')

        self.assertRefused(
            'spec_obj.flavor', builders.request(extra_specs=nothing))
        self.check(builders.request(
            extra_specs={**nothing, 'resources:CUSTOM_GOLD': '1'}))

    def test_unread_hint_is_refused(self):
        spec = builders.request(hints={
            'query': ['["=", 1, 1]'], 'group': ['x']})
        for known in (None, frozenset({'query'})):
            request_validation.check(
                spec, UUIDS, request_validation.RequestBounds(), known)

        error = self.assertRaises(
            exception.InvalidField, request_validation.check, spec, UUIDS,
            request_validation.RequestBounds(), frozenset({'same_host'}))

        self.assertEqual('spec_obj.scheduler_hints.query', error.field)
        self.assertIn('group, same_host', str(error))

    def test_unread_hint_can_be_ignored(self):
        known = frozenset({'same_host'})
        spec = builders.request(
            hints={'query': ['x'], 'group': ['x'], 'same_host': UUIDS})

        request_validation.check(
            spec, UUIDS, request_validation.RequestBounds(), known, False)

        self.assertEqual(
            ['query'], request_validation.unknown_hints(spec, known))
        self.assertEqual([], request_validation.unknown_hints(spec, None))
        self.assertEqual([], request_validation.unknown_hints(
            builders.request(), known))

    def test_hint_with_an_underscore_is_always_refused(self):
        long = '_' + 'x' * 39
        for name, shown in (('_x', '_x'), ('_\r\n', '_\\r\\n'), (long, long),
                            (long + 'x', long)):
            for known in (
                None, frozenset({'same_host', request_validation.REBUILD})):
                for strictly in (False, True):
                    error = self.assertRaises(
                        exception.InvalidField, request_validation.check,
                        builders.request(hints={name: ['rebuild']}), UUIDS,
                        request_validation.RequestBounds(), known, strictly)
                    self.assertEqual(
                        (f'spec_obj.scheduler_hints.{shown}',
                         'a name that does not begin with _'),
                        (error.field, error.kwargs['expected']))

    def test_rebuild_hint_is_accepted_only_from_known_readers(self):
        for value, known, good in (
                ('rebuild', frozenset({request_validation.REBUILD}), True),
                ('rebuild', frozenset(), False), ('rebuild', None, False),
                ('x', frozenset({request_validation.REBUILD}), False),
                (['rebuild', 'x'], frozenset(
                    {request_validation.REBUILD}), False)):
            spec = builders.request(hints={request_validation.REBUILD: value})
            for strictly in (False, True):
                arguments = (
                    spec, UUIDS, request_validation.RequestBounds(), known,
                    strictly)
                if good:
                    request_validation.check(*arguments)
                else:
                    error = self.assertRaises(
                        exception.InvalidField, request_validation.check,
                        *arguments)
                    self.assertIn(request_validation.REBUILD, error.field)

    def test_rebuild_hint_is_hidden_from_users(self):
        error = self.assertRaises(
            exception.InvalidField, request_validation.check,
            builders.request(
                hints={'x': 'x'}), UUIDS, request_validation.RequestBounds(),
            frozenset({request_validation.REBUILD, 'query'}))

        self.assertIn('group, query', str(error))
        self.assertNotIn(request_validation.REBUILD, str(error))

    def test_ids_can_be_looked_up(self):
        for bad in ('x' * 37, 'a\0', 'a\n', '\ud800', '\u0430'):
            self.assertRefused(
                'spec_obj.instance_group.members', builders.request(
                    instance_group=objects.InstanceGroup(
                        members=[UUIDS[0], bad])))

    def test_requested_cell_has_a_uuid(self):
        self.assertRefused(
            'spec_obj.requested_destination.cell.uuid', builders.request(
                requested_destination=objects.Destination(
                    cell=objects.CellMapping(name='cell1'))))

    def test_instances_are_counted_before_validation(self):
        read = []

        class Unread(str):
            def __eq__(self, other):
                read.append(other)

            __hash__ = str.__hash__

        self.assertRefused('instance_uuids', builders.request(),
                           [Unread(each) for each in UUIDS], 2)
        self.assertEqual([], read)

    def test_uuids_are_in_a_list(self):
        for uuids in ({*UUIDS}, dict.fromkeys(UUIDS), UUIDS[0], 7):
            self.assertRefused('instance_uuids', builders.request(), uuids)

    def test_migration_has_a_single_instance(self):
        uuids = [*UUIDS]
        for request, named in (
                (builders.request(migration_uuid='x' * 300), uuids[:1]),
                (builders.request(migration_uuid=uuids[0]), uuids[1:]),
                (builders.request(migration_uuid=uuids[0], num_instances=2),
                 uuids[:1])):
            self.assertRefused('spec_obj.migration_uuid', request, named)


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

    def test_amounts_are_bounded(self):
        for name in ('vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb', 'swap'):
            spec = builders.request()
            for amount in 0, MOST:
                setattr(spec.flavor, name, amount)
                request_validation.check(spec, None, BOUNDS)
            for amount in -1, MOST + 1:
                setattr(spec.flavor, name, amount)
                self.assertRefused(
                    f'spec_obj.flavor.{name}',
                    'an amount from 0 to 2147483647',
                    request_validation.check, spec, None, BOUNDS)

    def test_flavor_has_its_amounts(self):
        for name in 'vcpus', 'memory_mb', 'root_gb':
            flavor = {'vcpus': 1, 'memory_mb': 1, 'root_gb': 1}
            del flavor[name]
            self.assertRefused(
                f'spec_obj.flavor.{name}', 'a number',
                request_validation.check, objects.RequestSpec(
                    flavor=objects.Flavor(**flavor)), None, BOUNDS)


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
