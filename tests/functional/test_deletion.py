# SPDX-License-Identifier: Apache-2.0
"""A deletion wins over a build, at every moment."""

from cellsched import exception
from cellsched.rpc import conductor
from tests.functional import base


class TestDeletion(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': ['a1'], 'cell2': ['b1']})

    def assertIsGone(self, uuid):
        self.gone(uuid)
        self.assertLeftNothing(uuid)
        self.assertRaises(exception.InstanceNotFound, self.delete, uuid)
        self.assertClaimsMatch()
        for host in 'a1', 'b1':
            self.assertEqual([], self.driver(host).list_instances())

    def building(self):
        """Return a server whose build goes on when the events are set."""
        events = [self.driver(host).hold_builds() for host in ('a1', 'b1')]
        [uuid] = self.create()
        self.until(lambda: self.get(uuid).task_state == 'spawning',
                   'the build has begun')
        return uuid, events

    def test_request_unknown_to_conductors_is_deleted(self):
        [uuid] = self.unheard().servers.create(base.USER, 'server', 'small')
        self.assertEqual(('BUILD', None), (
            self.get(uuid).status, self.get(uuid).cell))

        self.delete(uuid)
        self.assertIsGone(uuid)

        # The message comes late, and several times.
        api = conductor.ConductorAPI(
            self.world.api.parts.transports.get())
        for _ in range(3):
            api.build_and_schedule(base.USER, [uuid])
        [other] = self.built()
        self.delete(other.uuid)
        self.gone(other.uuid)
        self.assertIsGone(uuid)

    def test_batch_member_unknown_to_conductors_is_deleted(self):
        uuids = self.unheard().servers.create(
            base.USER, 'server', 'small', min_count=3)

        self.delete(uuids[1])
        self.task().run(base.USER, uuids)

        self.assertLeftNothing(uuids[1])
        for found in self.settled([uuids[0], uuids[2]]):
            self.assertEqual('ACTIVE', found.status)
        self.assertClaimsMatch()

    def test_second_deletion_is_accepted(self):
        uuid, events = self.building()
        self.delete(uuid)
        self.delete(uuid)
        for event in events:
            event.set()

        self.assertIsGone(uuid)

    def test_unknown_server_is_not_found(self):
        self.assertRaises(exception.InstanceNotFound, self.delete,
                          '11111111-1111-4111-8111-111111111111')
