# SPDX-License-Identifier: Apache-2.0
"""Faults of simulated deployments, and what they cost."""

from tests.unit import base
from tests.unit.simulator.capacity import worlds


class TestFaults(base.TestCase):

    def run_with(self, fault, requests, at=60, **keys):
        """Return the run with a fault, and its summary."""
        made = worlds.make(requests, faults=[{'at': at, **fault}], hours=0.2,
                           **keys)
        document = made.go()
        self.assertEqual(
            {'oversold': 0, 'unaccounted': 0}, document['checks'])
        return made, document['summary']

    def test_servers_of_a_lost_rack_are_evacuated(self):
        for keys in ({}, {'store': {'kind': 'etcd'}},
                     {'schedulers': {'back_to_back': True}}):
            made, found = self.run_with(
                {'kind': 'rack', 'rack': 0, 'evacuate': True},
                worlds.arrivals(10), **keys)

            self.assertEqual((5, 5, 10), (
                found['lost'], found['recovered'], found['placed']), keys)
            self.assertEqual({1}, {each.row for each in made.servers})
            self.assertEqual(
                [[0, 0, 0], [10, 5120, 0]], made.deployment.used.tolist())
            # A host counts as down a minute after its last report.
            self.assertGreater(found['recovery_s'], 60)

    def test_servers_of_a_lost_rack_need_room_on_other_hosts(self):
        """Of 24 servers 20 have room, whether hosts were filled or not."""
        for options, lost in ((worlds.PACK, 10), ({}, 8)):
            made, found = self.run_with(
                {'kind': 'rack', 'rack': 0, 'evacuate': True},
                worlds.arrivals(24, at=0, spacing_s=0),
                hosts=worlds.hosts(10, 10, 10), schedulers={
                    'count': 2, 'configuration': {
                        'filter_scheduler': options}})

            self.assertEqual((lost, lost - 4, 4, 0), (
                found['lost'], found['recovered'],
                found['evacuations_refused'],
                found['refused_although_it_fitted']))
            self.assertEqual(
                4 * 512, found['lost_memory_mb'] - found[
                    'recovered_memory_mb'])
            self.assertEqual(
                [[10, 5120, 0]] * 2, made.deployment.used[1:].tolist())

    def test_lost_host_gets_no_server_until_its_return(self):
        made, found = self.run_with(
            {'kind': 'rack', 'rack': 0, 'for_s': 300}, [
                *worlds.arrivals(1), *worlds.arrivals(12, at=200),
                *worlds.arrivals(4, at=500)])

        # Ten of eleven fit on the other host. The first was lost and is back.
        self.assertEqual(
            (found['asked'] - found['refused'], found['lost']),
            (found['placed'], found['recovered']))
        self.assertEqual(17 - found['refused'], found['placed'])
        self.assertIn(found['refused'], (2, 3))

    def test_servers_of_a_lost_cell_come_back(self):
        made, found = self.run_with(
            {'kind': 'cell', 'cell': 1, 'for_s': 300}, worlds.arrivals(10),
            cells=2)

        self.assertEqual((5, 5, 300), (
            found['lost'], found['recovered'], found['recovery_s']))

    def test_cell_without_reports_gets_no_server(self):
        made, found = self.run_with(
            {'kind': 'stale-cell', 'cell': 0, 'for_s': 300}, [
                *worlds.arrivals(12, at=200), *worlds.arrivals(2, at=500)],
            cells=2)

        self.assertEqual((2, 12), (found['refused'], found['placed']))
        self.assertEqual(2, found['refused_although_it_fitted'])

    def test_requests_wait_for_the_broker(self):
        made, found = self.run_with(
            {'kind': 'broker', 'for_s': 60}, worlds.arrivals(10, at=70))

        self.assertEqual(10, found['placed'])
        self.assertGreater(found['time_to_place_mean_s'], 49)

    def test_requests_are_repeated_until_the_store_answers(self):
        for store in ('memory', 'postgresql', 'etcd'):
            made, found = self.run_with(
                {'kind': 'store', 'for_s': 60}, [
                    *worlds.arrivals(10, lifetime_s=60),
                    *worlds.arrivals(10, at=70)], store={'kind': store})

            self.assertEqual((20, 10, 0), (
                found['placed'], found['removed'], found['refused']), store)
            self.assertGreater(found['time_to_place_max_s'], 30)
            self.assertEqual(10, len(made.servers))

    def test_requests_of_a_dead_scheduler_are_placed_once(self):
        made, found = self.run_with(
            {'kind': 'scheduler', 'scheduler': 0, 'for_s': 60},
            worlds.arrivals(20, at=59.99), at=60.001,
            schedulers={'count': 2, 'decision_ms': 5})

        self.assertEqual((20, 0), (found['placed'], found['refused']))
        self.assertGreater(found['retries'], 0)

    def test_places_of_deleted_servers_are_used_again(self):
        made, found = self.run_with(
            {'kind': 'mass-delete', 'share': 0.5}, [
                *worlds.arrivals(20), *worlds.arrivals(10, at=120)])

        self.assertEqual((10, 30, 0), (
            found['removed'], found['placed'], found['refused']))

    def test_impossible_requests_are_refused_and_fitted_nowhere(self):
        made, found = self.run_with(
            {'kind': 'impossible-flood', 'count': 30, 'for_s': 30},
            worlds.arrivals(5, at=70))

        self.assertEqual((35, 5, 30, 0), (
            found['asked'], found['placed'], found['refused'],
            found['refused_although_it_fitted']))
