# SPDX-License-Identifier: Apache-2.0
"""Who follows a feed misses nothing, whoever writes at the time.

On PostgreSQL transactions become visible in another order than that in which
they began.
"""

from concurrent import futures
import threading

from cellsched import clock
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import exception
from tests.integration.db import base
from tests import profile
from tests.unit.db.api import following as following_aggregates
from tests.unit.db.cell import following as following_hosts
from tests.unit.db import samples
from tests.unit import racing

WRITERS = 8


class FeedTests:

    def setUp(self):
        super().setUp()
        self.database = self.make_database()
        self.losses = []

    def write(self, query, *args):
        return self.until_done(self.database.writer, query, *args)

    def read(self, query, *args):
        # Where all transactions are serializable, readings lose too.
        return self.until_done(self.database.reader, query, *args)

    def until_done(self, connect, query, *args):
        while True:
            try:
                with connect() as connection:
                    return query(connection, *args)
            except exception.TransactionLost:
                self.losses.append(query)

    def follow(self, follower, *writers):
        """Follow until all have written that write at the same time."""
        ended = threading.Event()

        def poll():
            while not ended.is_set():
                try:
                    follower.poll()
                except exception.TransactionLost:
                    # Then it knows what it knew, and asks again.
                    self.losses.append(follower)

        with futures.ThreadPoolExecutor(1) as pool:
            following = pool.submit(poll)
            outcomes = racing.race(*writers)
            ended.set()
            following.result()
        self.assertEqual([None] * len(writers), outcomes)
        self.assertFalse(follower.poll().complete)


class HostTests(FeedTests, following_hosts.Writing):

    def test_follower_misses_no_change_of_concurrent_agents(self):
        follower = following_hosts.Follower(self.database)
        follower.poll()

        def agent(number):
            # Each host changes for the last time at another moment.
            for host in range(12):
                name = f'host{number}-{host}'
                for vcpus in range(1, 4):
                    self.save(name, 'node', vcpus)
                    self.report(name)
                self.disable(name, bool(host % 2))
                if host % 3 == 0:
                    self.delete(name)

        self.follow(follower, *[
            lambda number=number: agent(number) for number in range(WRITERS)])

        newcomer = following_hosts.Follower(self.database)
        self.assertTrue(newcomer.poll().complete)
        self.assertEqual(8 * WRITERS, len(newcomer.nodes))
        self.assertEqual(newcomer.nodes, follower.nodes)
        self.assertEqual(newcomer.services, follower.services)


class TestHosts(HostTests, base.CellTestCase):

    def test_late_commit_is_reported(self):
        hosts = [f'host{number}' for number in range(10)]
        for host in hosts:
            self.report(host)
        follower = following_hosts.Follower(self.database)
        written, may_commit = threading.Event(), threading.Event()
        slow = session.Database(self.database.url, 'cell',
                                clock=clock.Clock())
        self.addCleanup(slow.close)

        def write_and_wait():
            with slow.writer() as connection:
                services.set_disabled(
                    connection, 'host0', True, None, samples.LATER)
                written.set()
                may_commit.wait(self.timeout_s)

        with futures.ThreadPoolExecutor(WRITERS + 2) as pool:
            late = pool.submit(write_and_wait)
            written.wait(self.timeout_s)
            # Those of its lane wait for it, and the others do not.
            others = [pool.submit(self.disable, host, True)
                      for host in hosts[1:]]
            futures.wait(others, return_when=futures.FIRST_COMPLETED,
                         timeout=self.timeout_s)
            follower.poll()
            before = follower.services['host0']
            may_commit.set()
            for each in [late, *others]:
                each.result()

        self.assertIn(
            'host0', [row.host for row in follower.poll().services])
        self.assertNotEqual(before, follower.services['host0'])
        newcomer = following_hosts.Follower(self.database)
        newcomer.poll()
        self.assertEqual(newcomer.services, follower.services)

    def test_concurrent_agents_lose_no_transaction(self):
        outcomes = racing.race(*[
            lambda number=number: [
                self.report(f'host{number}') for _ in range(20)]
            for number in range(WRITERS)])

        self.assertEqual([[None] * 20] * WRITERS, outcomes)
        self.assertEqual([], self.losses)


@profile.full_only(
    'a further isolation; the rules are proven in read committed')
class TestHostsRepeatableRead(HostTests, base.CellTestCase):

    isolation = 'repeatable read'

    def setUp(self):
        super().setUp()
        isolation = self.isolation.replace(' ', '%5C%20')
        self.database = session.Database(self.database.url, 'cell', {
            'max_pool_size': 20, 'connection_parameters':
            f'options=-cdefault_transaction_isolation%3D{isolation}'},
            clock=clock.Clock())
        self.addCleanup(self.database.close)


@profile.full_only(
    'a further isolation; the rules are proven in read committed')
class TestHostsSerializable(TestHostsRepeatableRead):

    isolation = 'serializable'


class TestAggregates(
        FeedTests, following_aggregates.Writing, base.APITestCase):

    def test_follower_misses_no_change_of_concurrent_operators(self):
        follower = following_aggregates.Follower(self.database)
        follower.poll()

        def operator(number):
            for each in range(8):
                made = self.create(f'{number}-{each}', ['a'], ssd='true')
                self.add_hosts(made, ['b', 'c'])
                self.remove_hosts(made, ['a'])
                self.set_metadata(made, {'ssd': None, 'gpu': 'true'})
                if each % 2:
                    self.delete(made)

        self.follow(follower, *[
            lambda number=number: operator(number)
            for number in range(WRITERS)])

        newcomer = following_aggregates.Follower(self.database)
        newcomer.poll()
        self.assertEqual(4 * WRITERS, len(newcomer.aggregates))
        self.assertEqual(newcomer.aggregates, follower.aggregates)


@profile.full_only('MariaDB; the rules are proven on PostgreSQL')
class TestHostsOnMariaDB(base.OnMariaDB, TestHosts):
    pass


@profile.full_only('MariaDB; the rules are proven on PostgreSQL')
class TestAggregatesOnMariaDB(base.OnMariaDB, TestAggregates):
    pass
