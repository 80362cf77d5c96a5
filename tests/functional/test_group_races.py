# SPDX-License-Identifier: Apache-2.0
"""Two schedulers place members of one server group at the same time."""

import uuid

from cellsched import context
from cellsched import exception
from cellsched import plugins
from cellsched.testing import builders
from cellsched.wiring import services
from tests.functional import base
from tests.unit import racing

ROUNDS = 12


class TestGroupRaces(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': ['a1', 'a2', 'a3'], 'cell2': ['b1', 'b2']})
        self.drivers = [self.make_driver() for _ in range(2)]

    def make_driver(self):
        """Return the driver of one more scheduler on the same databases."""
        parts = services.Components(self.world.conf('api'))
        self.addCleanup(parts.close)
        return plugins.load(
            plugins.DRIVERS, 'filter_scheduler')(parts.conf, parts)

    def place(self, driver, group, count=1):
        """Place members that know of none but themselves.

        Returns their hosts, or nothing where there is none for all of them.
        """
        uuids = [str(uuid.uuid4()) for _ in range(count)]
        try:
            places = driver.select_destinations(
                context.admin(), builders.request(
                    memory_mb=256, num_instances=count, group=group), uuids,
                0)
        except exception.NoValidHost:
            return []
        self.placed += uuids
        return [first.service_host for first, *_ in places]

    def races(self, *counts, **group):
        """Yield the hosts that requests got that were made at once."""
        for _ in range(ROUNDS):
            self.placed = []
            told = {'uuid': str(uuid.uuid4()), **group}
            yield racing.race(*[
                lambda each=each, count=count: self.place(
                    self.drivers[each % 2], told, count)
                for each, count in enumerate(counts)])
            self.world.api.parts.claims.release(self.placed)

    def test_anti_affinity_holds(self):
        for outcomes in self.races(1, 1, policy='anti-affinity'):
            [one], [other] = outcomes
            self.assertNotEqual(one, other)

    def test_anti_affinity_holds_for_many_at_a_time(self):
        for outcomes in self.races(2, 2, 1, policy='anti-affinity'):
            hosts = [host for outcome in outcomes for host in outcome]
            self.assertEqual(['a1', 'a2', 'a3', 'b1', 'b2'], sorted(hosts))

    def test_share_of_a_host_holds(self):
        for outcomes in self.races(
                3, 4, 3, policy='anti-affinity',
                rules={'max_server_per_host': '2'}):
            hosts = [host for outcome in outcomes for host in outcome]
            self.assertEqual(
                sorted(2 * ['a1', 'a2', 'a3', 'b1', 'b2']), sorted(hosts))

    def test_affinity_holds(self):
        for outcomes in self.races(1, 2, 1, policy='affinity'):
            hosts = [host for outcome in outcomes for host in outcome]
            self.assertEqual(4, len(hosts))
            self.assertEqual(1, len(set(hosts)))

    def test_member_without_a_free_host_gets_the_reason(self):
        for outcomes in self.races(3, 3, policy='anti-affinity'):
            self.assertEqual([0, 3], sorted(map(len, outcomes)))


class TestServers(base.TestCase):

    def test_servers_created_at_once_keep_the_group_policy(self):
        self.deploy({'cell1': ['a1', 'a2'], 'cell2': ['b1', 'b2']})
        conf = self.world.conf('api')
        second = services.scheduler(conf)
        self.addCleanup(second.stop)
        second.start()
        for policy, hosts in (('anti-affinity', 4), ('affinity', 1)):
            group = self.world.api.server_groups.create(
                base.USER, policy, policy)

            uuids = [uuid for created in racing.race(*[
                lambda: self.create(hints={'group': [group.uuid]})] * 4)
                for uuid in created]

            found = self.settled(uuids)
            self.assertEqual(
                ['ACTIVE'] * 4, [each.status for each in found],
                [each.reason for each in found])
            self.assertEqual(hosts, len({each.host for each in found}))
            for each in uuids:
                self.delete(each)
            self.gone(*uuids)
            for each in uuids:
                self.assertHoldsNothing(each)
