# SPDX-License-Identifier: Apache-2.0
"""Aggregates are columns of their hosts."""

import collections
import types
import unittest

from nova import objects as nova_objects
from nova.scheduler import host_manager

from cellsched_nova import source

nova_objects.register_all()


def aggregate(number, *hosts, **metadata):
    return nova_objects.Aggregate(
        id=number, uuid=f'00000000-0000-4000-8000-00000000000{number}',
        name=f'aggregate{number}', hosts=list(hosts), metadata=metadata)


class TestNovaAggregates(unittest.TestCase):

    def setUp(self):
        self.conf = types.SimpleNamespace(
            default_availability_zone='nova', cellsched=types.SimpleNamespace(
                full_refresh_interval=300.0))
        # Without the threads and databases that the constructor uses.
        self.manager = host_manager.HostManager.__new__(
            host_manager.HostManager)
        self.manager.aggs_by_id = {}
        self.manager.host_aggregates_map = collections.defaultdict(set)
        self.existing, self.reads = [], 0
        self.aggregates = source.NovaAggregates(
            self.manager, self.conf, self.read_all)
        self.nodes = {name: types.SimpleNamespace(host=f'host-{name}')
                      for name in 'ab'}

    def read_all(self, context):
        self.reads += 1
        return nova_objects.AggregateList(objects=self.existing)

    def changes(self, new=()):
        changed, columns = self.aggregates.changes(self.nodes, new)
        return {uuid: ([each.name for each in group], zone)
                for uuid, group, zone in zip(
                    changed, columns['aggregates'],
                    columns['availability_zone'], strict=True)}

    def test_new_hosts_get_the_existing_aggregates(self):
        self.manager.aggs_by_id = {
            1: aggregate(1, 'host-a'),
            2: aggregate(2, 'host-a', availability_zone='zone2')}

        self.assertEqual(
            {'a': (['aggregate1', 'aggregate2'], 'zone2'),
             'b': ([], 'nova')}, self.changes('ab'))
        self.assertEqual({}, self.changes())

    def test_only_changed_hosts_are_returned(self):
        self.manager.aggs_by_id = {1: aggregate(1, 'host-a')}
        self.changes('ab')
        self.manager.aggs_by_id = {
            1: aggregate(1, 'host-a'), 2: aggregate(2, 'host-b')}

        self.assertEqual({'b': (['aggregate2'], 'nova')}, self.changes())
        del self.manager.aggs_by_id[1]
        self.assertEqual({'a': ([], 'nova')}, self.changes())

    def test_all_aggregates_are_read_again_after_the_interval(self):
        self.manager.aggs_by_id = {1: aggregate(1, 'host-a')}
        self.existing = [aggregate(2, 'host-b')]
        self.aggregates.read('context')
        self.assertEqual(0, self.reads)
        self.conf.cellsched.full_refresh_interval = 0.0
        self.aggregates.read('context')

        self.assertEqual([2], list(self.manager.aggs_by_id))
        self.assertEqual({'b': (['aggregate2'], 'nova')}, self.changes('b'))
