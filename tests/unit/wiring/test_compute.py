# SPDX-License-Identifier: Apache-2.0
"""The agents of several hosts in one process."""

from concurrent import futures
import functools
import threading

import fixtures
import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.standalone import deployment
from tests.unit import base

#: More than the threads of a deployment with one host.
HOSTS = 24

DEADLINE_S = 30


class TestAgentGroup(base.TestCase):

    def setUp(self):
        super().setUp()
        self.started = []
        self.pool = futures.ThreadPoolExecutor(4)
        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.wiring.compute.ThreadPoolExecutor',
            lambda threads: self.pool))
        before = threading.active_count()
        self.world = deployment.Deployment(
            self.temporary_directory(), [deployment.DeployedCell('c1', [
                deployment.DeployedHost(f'h{number}', vcpus=number)
                for number in range(HOSTS)])],
            groups_agents=True, started=lambda: self.started.append(1))
        self.world.start()
        self.addCleanup(self.world.stop)
        self.threads = threading.active_count() - before
        [self.group] = [
            each for each in self.world._services
            if len(each.servers) == HOSTS]
        self.database = self.world.agents['h0'].parts.cell_database

    def reports(self):
        """Return how often each host has reported."""
        with self.database.reader() as connection:
            return dict(connection.execute(sa.select(
                models.services.c.host, models.services.c.report_count)
                .where(models.services.c.topic == 'compute')).all())

    def report(self):
        report, _seconds, _at_once = self.group.periodic[1]
        report()

    def test_each_host_reports_its_inventory(self):
        with self.database.reader() as connection:
            nodes = connection.execute(sa.select(
                models.compute_nodes.c.host, models.compute_nodes.c.vcpus))
            self.assertEqual({f'h{number}': number for number in range(HOSTS)},
                             dict(nodes.all()))
        self.assertEqual(HOSTS, len(self.started))

    def test_hosts_have_no_thread_each(self):
        self.assertLess(self.threads, HOSTS)

    def test_hosts_stop_at_the_same_time(self):
        together = threading.Barrier(HOSTS)

        def stop(stop_server):
            # An agent that stops after another one breaks the barrier.
            together.wait(DEADLINE_S)
            stop_server()

        for server in self.group.servers:
            server.stop = functools.partial(stop, server.stop)

        self.world.stop()

        self.assertFalse(together.broken)

    def test_threads_of_the_hosts_end_with_the_service(self):
        thread = self.pool.submit(threading.current_thread).result()

        self.world.stop()

        thread.join(5)
        self.assertFalse(thread.is_alive())
        self.assertRaises(
            RuntimeError, self.pool.submit, threading.current_thread)

    def test_hosts_share_connections_to_their_stores(self):
        one, two = (self.world.agents[name].parts for name in ('h1', 'h2'))

        self.assertEqual(('h1', 'h2'), (one.conf.host, two.conf.host))
        self.assertIs(one.cell_database, two.cell_database)
        self.assertIs(one.claims, two.claims)
        self.assertIsNot(one.driver, two.driver)

    def test_failing_host_delays_no_report_of_another(self):
        def fail():
            raise KeyError('as told')

        self.world.agents['h1'].parts.driver.nodes = fail
        before = self.reports()

        self.assertRaises(KeyError, self.report)

        after = self.reports()
        self.assertEqual(['h1'], [
            host for host in before if after[host] == before[host]])
