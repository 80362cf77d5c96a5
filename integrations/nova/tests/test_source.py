# SPDX-License-Identifier: Apache-2.0
"""Hosts that Nova frees are found, whoever reads them."""

import collections
import threading
import types
import unittest

from keystoneauth1 import exceptions as ks_exceptions
from nova import context as nova_context
from nova.scheduler import host_manager

from cellsched_nova import source
from tests import test_placement

HOST = test_placement.HOST


class TestFindFreed(unittest.TestCase):

    def setUp(self):
        super().setUp()
        # Nova's own, without the threads and databases that it begins with.
        manager = host_manager.HostManager.__new__(host_manager.HostManager)
        manager.cells, manager.aggs_by_id = {}, {}
        manager.host_aggregates_map = collections.defaultdict(set)
        self.placement = test_placement.Placement()
        self.placement.put(HOST, 1)
        self.hosts = source.NovaHosts(
            manager, self.placement, types.SimpleNamespace(
                default_availability_zone='nova',
                cellsched=types.SimpleNamespace(full_refresh_interval=300.0),
                scheduler=types.SimpleNamespace(max_placement_results=50)))
        self.context = nova_context.get_admin_context()
        self.hosts.refresh(self.context)

    def free(self):
        """Have less taken, which the generation does not tell of."""
        self.placement.providers[HOST]['usages'] = {'VCPU': 1}
        self.placement.summarised = [HOST]
        self.placement.asked.clear()

    def find(self, readings):
        return self.hosts.find_freed(self.context, {'VCPU': 1}, readings)

    def asked_for_usages(self):
        return self.placement.asked.count(
            f'/resource_providers/{HOST}/usages')

    def test_hosts_that_were_freed_are_read(self):
        self.free()

        self.assertTrue(self.find(self.hosts.readings))

        self.assertEqual(1, self.asked_for_usages())
        self.assertFalse(self.find(self.hosts.readings))

    def test_what_others_have_read_since_counts_and_is_not_read_again(self):
        self.free()
        before = self.hosts.readings
        self.find(before)

        self.assertTrue(self.find(before))

        self.assertEqual(1, self.asked_for_usages())

    def test_what_others_read_just_now_is_waited_for(self):
        self.free()
        before = self.hosts.readings
        reading, looked = threading.Event(), threading.Event()
        get = self.placement.get

        def wait(path, **kwargs):
            if path == '/resource_providers':
                reading.set()
                looked.wait(60)
            elif path.startswith('/allocation_candidates'):
                looked.set()
            return get(path, **kwargs)

        self.placement.get = wait
        other = threading.Thread(target=self.hosts.reload, args=([HOST],))
        other.start()
        reading.wait(60)

        self.assertTrue(self.find(before))

        other.join()
        self.assertEqual(1, self.asked_for_usages())

    def test_where_nobody_has_room_it_does_not_matter_who_read(self):
        before = self.hosts.readings
        self.hosts.refresh(self.context)

        self.assertFalse(self.find(before))

    def test_where_placement_cannot_be_asked_there_are_none(self):
        self.free()
        self.placement.failure = ks_exceptions.ConnectFailure('gone')

        with self.assertLogs(source.LOG.logger, 'WARNING') as told:
            self.assertFalse(self.find(self.hosts.readings))

        self.assertIn('gone', told.output[0])
