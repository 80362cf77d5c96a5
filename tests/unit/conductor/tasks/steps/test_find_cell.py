# SPDX-License-Identifier: Apache-2.0
"""Finding the cells of hosts that were chosen."""

from cellsched.claims import base as claims_base
from cellsched.conductor.tasks.steps import find_cell
from cellsched import exception
from tests.unit.conductor import base
from tests.unit.conductor.tasks import leased
from tests.unit.db import samples


class TestFindCell(leased.StepTestCase):

    def test_cell_is_that_of_the_host_and_not_of_the_selection(self):
        batch = self.builds(['a1', 'b1'])
        for build in batch:
            build.cell = None
        step = find_cell.FindCell(self.database, self.claims)

        for _ in range(2):
            self.do(step, batch)
            self.assertEqual(['cell1', 'cell2'],
                             [build.cell.name for build in batch])

    def find(self, *hosts):
        """Have one build's hosts looked up, beside another one's."""
        for host in {*hosts} - self.providers.keys():
            self.providers[host] = samples.uuids(1)[0]
            self.claims.set_inventory(self.providers[host], {
                name: claims_base.Inventory(4 * amount)
                for name, amount in base.SIZE.items()})
        build, other = self.builds(['a1', 'a1'])
        build.selections = [self.selection(host) for host in hosts]
        build.cell = None
        self.claims.release([build.uuid])
        self.claims.claim(claims_base.of_selection(
            build.uuid, build.selections[0]))

        self.do(find_cell.FindCell(self.database, self.claims), [build, other])

        self.assertIsNone(other.reason)
        self.assertEqual('cell1', other.cell.name)
        return build

    def fill(self, host):
        self.claims.claim([claims_base.Claim(
            samples.uuids(1)[0], self.providers[host], {'VCPU': 4})])

    def test_alternate_is_claimed_in_place_of_a_host_that_left(self):
        build = self.find('x9', 'a2', 'a3')

        self.assertIsNone(build.reason)
        self.assertEqual(
            ('cell1', ['a2', 'a3'], 'a2'),
            (build.cell.name,
             [each.service_host for each in build.selections],
             self.holds(build.uuid)))
        [held] = self.claims.claims_of([build.uuid])[build.uuid]
        self.assertEqual(
            ('project', 'user'), (held.project_id, held.user_id))

    def test_alternates_that_left_or_are_full_are_passed_over(self):
        self.fill('a2')

        build = self.find('x9', 'x8', 'a2', 'x7', 'a3')

        self.assertEqual(
            (['a3'], 'a3'),
            ([each.service_host for each in build.selections],
             self.holds(build.uuid)))

    def test_build_whose_hosts_all_left_is_put_off(self):
        self.fill('a2')
        for hosts in (['x9'], ['x9', 'x8'], ['x9', 'a2']):
            build = self.find(*hosts)

            self.assertIsInstance(
                build.reason, exception.HostMappingNotFound)
            self.assertEqual(('x9', True, None), (
                build.reason.host, build.to_try_again, self.holds(build.uuid)))
