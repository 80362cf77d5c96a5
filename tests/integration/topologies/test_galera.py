# SPDX-License-Identifier: Apache-2.0
"""Galera behind HAProxy: nodes fail while servers are built."""

from concurrent import futures
import os
import signal

from cellsched import clock
from cellsched.db import session
from tests.integration import base
from tests.integration import mariadb
from tests.integration import processes
from tests.integration.topologies import galera
from tests.integration.topologies import haproxy
from tests.integration.topologies import story
from tests import profile


class Nodes:
    """Stories of a cluster, for one writer and for several."""

    kinds = galera.Galera, haproxy.HAProxy

    cluster: galera.Galera
    proxy: haproxy.HAProxy

    @classmethod
    def start(cls):
        cls.cluster = cls.of_class(base.installed(galera.Galera, cls.page))
        cls.proxy = cls.of_class(base.installed(haproxy.HAProxy, cls.page))
        return cls.plain_broker(), story.Place(
            cls.options['api_database']['connection'], cls.cluster.create)

    def compare_with_single(self):
        server = self.useFixture(base.installed(
            lambda: mariadb.MariaDB(durable=True)))
        self.compare(server.url('claims'))

    def test_killed_node(self):
        node = self.cluster.nodes[0]

        self.assertEndures(node.kill, node.start)

    def test_node_without_quorum(self):
        self.assertEndures(lambda: self.cluster.isolate(0, True),
                           lambda: self.cluster.isolate(0, False))

    def reconfigure(self, pattern, replacement):
        """Have the proxy run with another file until the test ends."""
        self.proxy.reconfigure(pattern, replacement)
        self.addCleanup(self.proxy.reconfigure, '^', '')


@profile.full_only('a cluster, and faults that take their time')
class TestSingleWriter(Nodes, story.Story):

    section = 'Galera with one writer'

    def test_paused_node(self):
        node = self.cluster.nodes[0]

        def go_on():
            os.killpg(node.pid, signal.SIGCONT)
            self.cluster.wait_for(0)

        self.assertEndures(
            lambda: os.killpg(node.pid, signal.SIGSTOP), go_on)

    def test_writer_becomes_read_only(self):
        self.assertEndures(lambda: self.cluster.set_read_only(0, True),
                           lambda: self.cluster.set_read_only(0, False))

    def test_proxy_cuts_idle_connections(self):
        self.reconfigure('(timeout (?:client|server)) 2h', r'\1 1s')

        self.assertEndures(lambda: None)

    def test_claims_a_second(self):
        self.compare_with_single()


@profile.full_only('a cluster, and faults that take their time')
class TestAllWriters(Nodes, story.Story):

    section = 'Galera with several writers'
    further = 'Galera with one writer',

    def test_node_lags(self):
        self.cluster.create('cellsched_lag')
        for table in ('things (id INT PRIMARY KEY)',
                      'parts (id INT PRIMARY KEY, '
                      'FOREIGN KEY (id) REFERENCES things (id))'):
            self.cluster.execute(0, f'CREATE TABLE cellsched_lag.{table}')
        database = session.Database(
            'mysql+pymysql://cellsched:PASSWORD@'
            f'{self.page.address("10.0.0.12")}/cellsched_lag', 'lag',
            {'mysql_wsrep_sync_wait': int(
                self.options['api_database']['mysql_wsrep_sync_wait'])},
            clock=clock.Clock())
        self.addCleanup(database.close)
        for number, statement in enumerate((
                'UPDATE things SET id = -id WHERE id = {}',
                'DELETE FROM things WHERE id = {}',
                'INSERT INTO parts VALUES ({})',
                'SELECT * FROM things WHERE id = {} FOR UPDATE'), 1):
            with self.subTest(statement):
                self.assertEqual(1, self.rows_after_lag(
                    database, number, statement.format(number)))

    def rows_after_lag(self, database, number, statement):
        """Return the rows of a transaction that begins as its node lags.

        :param number: of a thing that another node has just added
        """
        with (futures.ThreadPoolExecutor(1) as pool,
              database.writer() as connection):
            with self.cluster.lagging(1):
                self.cluster.execute(
                    0, f'INSERT INTO cellsched_lag.things VALUES ({number})')
                call = pool.submit(connection.exec_driver_sql, statement)
                processes.wait_until(
                    lambda: call.done() or self.cluster.execute(
                        1, 'SELECT 1 FROM information_schema.processlist '
                        f"WHERE info = '{statement}'"), 'the statement')
            return call.result().rowcount

    def test_claims_a_second(self):
        self.compare_with_single()

    def test_node_without_quorum_behind_a_proxy_without_checks(self):
        # The node would have the fewest connections, and get each new one.
        self.reconfigure('option httpchk|port 9200|balance leastconn', '')

        self.assertEndures(lambda: self.cluster.isolate(0, True),
                           lambda: self.cluster.isolate(0, False))
