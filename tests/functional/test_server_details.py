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
