# SPDX-License-Identifier: Apache-2.0
"""What callers tell of hosts, and what they were given without claims."""

from cellsched import objects
from tests.unit.db import samples
from tests.unit.hosts import allocation
from tests.unit.hosts import loading
from tests.unit.hosts import world


class TestReports(loading.LoaderTestCase):

    def zone(self, host):
        return self.value(host, 'availability_zone')

    def report(self, *hosts):
        self.loader.tell_aggregates([objects.Aggregate(
            id=1, uuid=samples.uuids(1)[0], name='told', hosts=list(hosts),
            metadata={'availability_zone': 'moon'})])

    def test_aggregates_are_in_the_table_at_once(self):
        self.refresh()

        self.report('a1', 'unknown')

        self.assertEqual(['moon', 'nova'], [
            self.zone('a1'), self.zone('b1')])
        self.loader.forget_aggregate(1)
        self.assertEqual('nova', self.zone('a1'))

    def test_reported_aggregates_apply_to_hosts_read_later(self):
        self.report('a1')

        self.refresh()

        self.assertEqual('moon', self.zone('a1'))

    def test_reported_instances_are_on_the_node_of_their_host(self):
        self.refresh()
        self.loader.tell_instances('A1', ['1', '2'], complete=False)
        self.loader.tell_instances('gone', ['3'], complete=False)

        self.assertEqual({'1': self.a1, '2': self.a1},
                         self.loader.reported_nodes(['1', '2', '3', '4']))
        self.loader.tell_instances('A1', ['2'], complete=True)
        self.assertEqual(
            {'2': self.a1}, self.loader.reported_nodes(['1', '2']))
        self.loader.forget_instance('2')
        self.assertEqual({}, self.loader.reported_nodes(['2']))


class TestHeld(loading.LoaderTestCase):

    def test_unclaimed_choice_counts_for_a_time(self):
        self.refresh()
        row = self.loader.table.row(self.a1)
        allocation.take(self.loader.table, row, {'VCPU': 3})
        self.loader.hold([self.a1])

        self.refresh()
        self.assertEqual(5, self.available('a1'))
        self.world.clock.advance(61)
        self.assertTrue(self.loader.refresh(world.CONTEXT))

        self.assertEqual(8, self.available('a1'))
