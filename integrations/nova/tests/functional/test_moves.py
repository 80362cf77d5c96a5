# SPDX-License-Identifier: Apache-2.0
"""Faults of Placement while servers move, in a whole Nova."""

import math

from tests.functional import base
from tests.functional import test_faults as faults


class TestMoves(faults.TestCase):
    """A failed claim of a move keeps the earlier allocations."""

    def setUp(self):
        super().setUp()
        self.flags(allow_resize_to_same_host=True, shelved_offload_time=0)
        self.larger = self._create_flavor(**{**self.small, 'memory_mb': 128})

    def lose(self, kind):
        """Execute the next claim without an answer, then refuse requests."""
        self.wire.fail((faults.late, kind, 1),
                       (faults.refused, faults.any_request, math.inf))

    def assertHeld(self, server, *hosts):
        """Wait until a server has allocations of exactly these hosts."""
        providers = {self._get_provider_uuid_by_host(host) for host in hosts}
        self._wait_for_assert(lambda: self.assertEqual(
            providers, {*self._get_allocations_by_server_uuid(server['id'])}))

    def set_up_for(self, hosts, name, value):
        for host in hosts:
            [found] = self.api.get_services(binary='nova-compute', host=host)
            self.api.put_service(found['id'], {name: value})

    def host_of(self, server):
        return self.api.get_server(server['id'])['OS-EXT-SRV-ATTR:host']

    def build(self):
        [server] = self.wait_for(self.post(), 'ACTIVE')
        return server, server['OS-EXT-SRV-ATTR:host']

    def test_evacuation_with_a_failed_claim_can_be_repeated(self):
        server, source = self.build()
        self.computes[source].stop()
        self.set_up_for([source], 'forced_down', True)

        self.lose(faults.additions)
        with self.giving_up_soon():
            self._evacuate_server(
                server, expected_state='ERROR', expected_task_state=None,
                expected_migration_status='error')
        self.wire.fail()
        self.assertHeld(server, source)

        self.wire.fail((faults.late, faults.additions, 1))
        self.api.post_server_action(server['id'], {'evacuate': {}})
        self._wait_for_assert(lambda: self.assertNotEqual(
            source, self.host_of(server)))
        target = self.host_of(server)
        self.assertHeld(server, source, target)
        self.computes[source].start()
        self.assertHeld(server, target)

    def test_unshelve_with_a_failed_claim_can_be_repeated(self):
        server, _ = self.build()
        self._shelve_server(server)

        self.lose(faults.claims)
        with self.giving_up_soon():
            self.api.post_server_action(server['id'], {'unshelve': None})
            self._wait_for_server_parameter(
                server, {'OS-EXT-STS:task_state': None})
        self.wire.fail()
        self.assertHeld(server)

        self.wire.fail((faults.late, faults.claims, 1))
        self._unshelve_server(server)
        self.assertNoLeaks()

    def test_resize_with_a_failed_claim_can_be_repeated(self):
        server, source = self.build()
        self.set_up_for({*base.HOSTS} - {source}, 'status', 'disabled')

        # Nova's conductor must restore the allocations.
        self.wire.fail((faults.late, faults.claims, 1),
                       (faults.never, faults.claims, math.inf))
        with self.giving_up_soon():
            self.api.post_server_action(
                server['id'], {'resize': {'flavorRef': self.larger}})
            self._wait_for_migration_status(server, ['error'])
        self._wait_for_state_change(server, 'ACTIVE')
        self.assertHeld(server, source)
        self.wire.fail()

        self.wire.fail((faults.late, faults.claims, 1))
        self._confirm_resize(self._resize_server(server, self.larger))
        self.assertHeld(server, source)
        self.assertNoLeaks()
