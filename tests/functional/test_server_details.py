# SPDX-License-Identifier: Apache-2.0
"""A server with all that is known of it, wherever it is."""

from cellsched import context
from cellsched import exception
from tests.functional import base

STRANGER = context.member('other', 'other')


class TestServerDetails(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': ['a1', 'a2'], 'cell2': ['b1', 'b2']})

    def details(self, uuid, context_=base.ADMIN):
        return self.world.api.details.get(context_, uuid)

    def test_running_server_has_its_flavor_image_and_group(self):
        group = self.world.api.server_groups.create(
            base.USER, 'together', 'affinity')
        [found] = self.built(
            hints={'group': [group.uuid]}, image_ref='cirros')

        details = self.details(found.uuid)

        self.assertEqual(found, details.server)
        self.assertEqual(
            ('small', 1, 512, 10), tuple(details.flavor.get(name) for name in (
                'name', 'vcpus', 'memory_mb', 'root_gb')))
        self.assertEqual('cirros', details.image['id'])
        self.assertEqual((group.uuid, 'together'),
                         (details.group.uuid, details.group.name))
        self.assertEqual(([], []), (details.faults, details.moves))

    def test_unscheduled_server_shows_its_request(self):
        uuid = self.unheard().servers.create(
            base.USER, 'waiting', 'small')[0]

        details = self.details(uuid)

        self.assertEqual(('BUILD', None, 'small', None), (
            details.server.status, details.server.cell, details.flavor.name,
            details.group))

    def test_buried_server_has_its_faults(self):
        [found] = self.built(flavor='huge')

        for who, told in ((base.USER, False), (base.ADMIN, True)):
            [fault] = self.details(found.uuid, who).faults
            self.assertEqual(found.reason, fault.message)
            self.assertEqual(told, bool(fault.details))

    def test_moved_server_has_its_moves(self):
        [found] = self.built()
        self.world.api.moves.migrate(base.ADMIN, found.uuid)
        self.until(
            lambda: self.get(found.uuid).host != found.host, 'the move')

        [move] = self.details(found.uuid).moves

        self.assertEqual((found.host, self.get(found.uuid).host),
                         (move.source, move.dest))

    def test_server_of_an_unreachable_cell_shows_its_request(self):
        [found] = self.built(availability_zone=None, image_ref='cirros')
        self.take_down(found.cell)

        details = self.details(found.uuid)

        self.assertEqual(('UNKNOWN', 'small', {'id': 'cirros'}), (
            details.server.status, details.flavor.name, dict(details.image)))
        self.bring_back(found.cell)
        self.assertEqual(found, self.details(found.uuid).server)

    def test_foreign_server_is_not_found(self):
        [found] = self.built()

        self.assertRaises(exception.InstanceNotFound, self.details,
                          found.uuid, STRANGER)
        self.assertRaises(exception.InstanceNotFound, self.details,
                          '00000000-0000-0000-0000-000000000001')
        self.assertRaises(exception.InvalidField, self.details, 'x' * 300)


class TestNames(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': ['a1'], 'cell2': ['b1']})

    def find(self, name, who=base.USER):
        return self.world.api.servers.find(who, name)

    def test_server_is_found_by_its_name_and_the_begin_of_its_uuid(self):
        [found] = self.built()
        servers = self.world.api.servers
        servers.update(base.USER, found.uuid, name='web')

        for name in ('web', found.uuid, found.uuid[:8],
                     found.uuid[:23].upper()):
            self.assertEqual(found.uuid, self.find(name), name)
        for name in 'we', 'Web', 'web1', 'ffff', found.uuid[:8] + 'x':
            self.assertRaises(
                exception.InstanceNotFound, self.find, name)
        self.assertRaises(
            exception.InstanceNotFound, self.find, 'web', STRANGER)
        self.assertRaises(
            exception.InstanceNotFound, self.find, found.uuid[:8], STRANGER)

    def test_name_of_two_servers_is_refused_with_their_uuids(self):
        both = [self.built()[0].uuid for _ in range(2)]
        for uuid in both:
            self.world.api.servers.update(base.USER, uuid, name='web')

        error = self.assertRaises(
            exception.NoUniqueServer, self.find, 'web')

        for uuid in both:
            self.assertIn(uuid, str(error))

    def test_uuid_prefix_equal_to_a_name_is_refused(self):
        first, second = (self.built()[0].uuid for _ in range(2))
        self.world.api.servers.update(base.USER, second, name=first[:8])

        self.assertRaises(
            exception.NoUniqueServer, self.find, first[:8])
