# SPDX-License-Identifier: Apache-2.0
"""What a request must be; service and stories send it over RPC too."""

import uuid

from cellsched import exception
from cellsched import objects
from cellsched.scheduler import request_validation
from cellsched.testing import builders
from tests.unit import base

UUIDS = [str(uuid.UUID(int=number)) for number in range(1, 4)]

MOST = 2 ** 31 - 1


class TestCheck(base.TestCase):

    def check(self, spec, uuids=UUIDS, most=3):
        request_validation.check(
            spec, uuids, request_validation.RequestBounds(most))

    def assertRefused(self, field, spec, *args):
        error = self.assertRaises(
            exception.InvalidField, self.check, spec, *args)
        self.assertEqual(field, error.field)
        self.assertTrue(str(error).isprintable())

    def test_amounts_are_bounded(self):
        for name in ('vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb', 'swap'):
            for amount, good in ((-1, False), (0, True), (MOST, True),
                                 (MOST + 1, False)):
                spec = builders.request()
                setattr(spec.flavor, name, amount)
                if good:
                    self.check(spec)
                else:
                    self.assertRefused(f'spec_obj.flavor.{name}', spec)

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

    def test_reserved_hint_is_shown_in_a_single_line(self):
        self.assertRefused('spec_obj.scheduler_hints._\\r\\n',
                           builders.request(hints={'_\r\n': ['x']}))

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
        spec = builders.request(hints={'_x': ['rebuild']})
        for known in (
            None, frozenset({'same_host', request_validation.REBUILD})):
            for strictly in (False, True):
                error = self.assertRaises(
                    exception.InvalidField, request_validation.check, spec,
                    UUIDS, request_validation.RequestBounds(), known, strictly)
                self.assertEqual('spec_obj.scheduler_hints._x', error.field)

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
