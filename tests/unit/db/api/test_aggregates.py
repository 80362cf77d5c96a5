# SPDX-License-Identifier: Apache-2.0
"""Queries for host aggregates."""

from oslo_db import exception as db_exc

from cellsched.db.api import aggregates
from tests.unit.db.api import base
from tests.unit.db import samples


class TestAggregates(base.TestCase):

    def create(self, name, hosts, **metadata):
        self.write(aggregates.create, samples.uuids(1)[0], name, hosts,
                   metadata, samples.NOW)

    def zones(self):
        return self.read(aggregates.metadata_by_host, 'availability_zone')

    def test_hosts_have_the_metadata_of_their_aggregate(self):
        self.create('one', ['a', 'b'], availability_zone='east', ssd='true')
        self.create('two', ['c'], availability_zone='west')

        self.assertEqual({'a': 'east', 'b': 'east', 'c': 'west'},
                         self.zones())
        self.assertEqual(
            {'a': 'true', 'b': 'true'},
            self.read(aggregates.metadata_by_host, 'ssd'))

    def test_hosts_without_the_key_are_left_out(self):
        self.create('one', ['a'])
        self.create('two', [], availability_zone='east')

        self.assertEqual({}, self.zones())

    def test_oldest_aggregate_counts_where_they_disagree(self):
        self.create('new', ['a', 'b'], availability_zone='east')
        self.create('old', ['b', 'c'], availability_zone='west')

        self.assertEqual({'a': 'east', 'b': 'east', 'c': 'west'},
                         self.zones())

    def test_name_is_taken_once(self):
        self.create('one', [])

        self.assertRaises(db_exc.DBDuplicateEntry, self.create, 'one', [])
