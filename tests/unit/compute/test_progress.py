# SPDX-License-Identifier: Apache-2.0
"""Telling a cell how the builds on a host go."""

from concurrent import futures
import functools
import threading

from cellsched.compute import progress
from cellsched import context
from cellsched.db.cell import build_casts
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched import exception
from cellsched import objects
from cellsched.testing import clock
from cellsched.testing import databases
from tests.unit import base
from tests.unit.db import samples


class Database(session.Database):
    """Begins transactions when it may, and counts them."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.begun = 0
        self.may_begin = threading.Event()
        self.may_begin.set()

    def writer(self):
        self._begin()
        return super().writer()

    def each_alone(self):
        self._begin()
        return super().each_alone()

    def _begin(self):
        self.begun += 1
        self.may_begin.wait(600)


class ProgressCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cell = self.make_database()
        self.clock = clock.FakeClock()
        self.told = self.tell(self.cell.url)
        self.pool = futures.ThreadPoolExecutor(8)
        self.addCleanup(self.pool.shutdown)

    def make_database(self):
        return self.useFixture(databases.CellDatabase()).database

    def tell(self, url):
        """Have news told to a database."""
        database = Database(url, 'cell', clock=self.clock)
        self.addCleanup(database.close)
        self.progress = progress.ProgressReports('host1', database, self.clock)
        return database

    def create(self, count=1, **fields):
        made = [samples.instance(uuid, build_attempts=1, **fields)
                for uuid in samples.uuids(count)]
        with self.cell.writer() as connection:
            instances.create(connection, made, self.clock.now())
        return made

    def begin(self, instance, tried=1, node='node1', **identity):
        return self.progress.begin(
            instance.uuid, build_casts.BuildMessage(
                objects.Selection(
                    service_host='host1', nodename=node, **identity), [],
                None, {'retry': {'num_attempts': tried}}))

    def row(self, instance):
        with self.cell.reader() as connection:
            return instances.get(connection, instance.uuid)

    def together(self, *calls):
        """Return what calls come to, of which all but the first meet."""
        first, *others = calls
        self.told.begun = 0
        self.told.may_begin.clear()
        asked = [self.pool.submit(first)]
        while not self.told.begun:
            pass
        asked += [self.pool.submit(call) for call in others]
        while len(self.progress._group_commit._waiting) < len(others):
            pass
        self.told.may_begin.set()
        return [each.exception(60) or each.result() for each in asked]


class TestProgress(ProgressCase):

    def test_begun_build_is_on_this_host(self):
        [instance] = self.create()

        self.assertIs(False, self.begin(instance))

        row = self.row(instance)
        self.assertEqual(
            ('building', 'spawning', 'host1', 'node1'),
            (row.vm_state, row.task_state, row.host, row.node))
        self.assertIsNone(self.begin(instance))

    def test_build_begins_on_its_own_node_only(self):
        own, other = samples.uuids(2)
        with self.cell.writer() as connection:
            for uuid, host, node in ((own, 'host1', 'node1'),
                                     (other, 'host2', 'node1')):
                compute_nodes.save(connection, uuid, host, node,
                                   samples.NODE, self.clock.now())
        for uuid, node in ((other, 'node1'), (own, 'node2'),
                           (*samples.uuids(1), 'node1')):
            [instance] = self.create()

            self.assertIsNone(self.begin(
                instance, node=node, compute_node_uuid=uuid))

            self.assertIsNone(self.row(instance).host)
            self.assertIs(False, self.begin(instance, compute_node_uuid=own))

    def test_build_for_another_node_is_skipped_alone(self):
        [own] = samples.uuids(1)
        with self.cell.writer() as connection:
            compute_nodes.save(connection, own, 'host1', 'node1',
                               samples.NODE, self.clock.now())
        made = self.create(3)
        uuids = [own, *samples.uuids(1), own]

        self.assertEqual([False, None, False], self.together(*(
            functools.partial(self.begin, instance, compute_node_uuid=uuid)
            for instance, uuid in zip(made, uuids, strict=True))))

        self.assertEqual(['host1', None, 'host1'], [
            self.row(instance).host for instance in made])

    def test_later_attempt_has_the_record_of_networks(self):
        [instance] = self.create()
        with self.cell.writer() as connection:
            instances.update(
                connection, instance.uuid,
                {'network_allocated': True, 'build_attempts': 2},
                self.clock.now())

        self.assertIsNone(self.begin(instance, tried=1))
        self.assertIs(True, self.begin(instance, tried=2))

    def test_server_runs_since_its_build_ended(self):
        [instance] = self.create()
        self.assertFalse(self.progress.finish(instance.uuid))
        self.begin(instance)
        self.clock.advance(5)

        self.assertTrue(self.progress.finish(instance.uuid))

        row = self.row(instance)
        self.assertEqual(
            ('active', None, progress.RUNNING, self.clock.now()),
            (row.vm_state, row.task_state, row.power_state, row.launched_at))
        self.assertFalse(self.progress.finish(instance.uuid))

    def test_end_of_a_build_ends_its_action(self):
        [instance] = self.create()
        uuid = instance.uuid
        with self.cell.writer() as connection:
            instance_history.create_all(
                connection, {uuid: context.member('user', 'project')},
                'create', self.clock.now())
            build_casts.create(connection, [build_casts.BuildCast(
                uuid, 'host1', 'node1', '{}', 0.0)])
        self.begin(instance)
        began = self.clock.now()
        self.clock.advance(5)

        self.assertEqual([True, False], [
            self.progress.finish(uuid, began) for _ in range(2)])

        with self.cell.reader() as connection:
            self.assertIsNone(build_casts.get(connection, uuid))
            [action] = instance_history.actions(connection, uuid)
        self.assertEqual(
            (self.clock.now(), None, instance_history.BUILD_EVENT, 'Success',
             'host1'),
            (action.finish_time, action.message, action.event, action.result,
             action.host))


class TestTogether(ProgressCase):

    def test_concurrent_builds_share_a_transaction(self):
        built = self.create(2)
        for instance in built:
            self.begin(instance)
        new = self.create(3)

        outcomes = self.together(
            *(lambda each=each: self.begin(each) for each in new),
            *(lambda each=each: self.progress.finish(each.uuid)
              for each in built))

        self.assertEqual([False] * 3 + [True] * 2, outcomes)
        self.assertEqual(2, self.told.begun)
        self.assertEqual(
            {('building', 'spawning', 'host1'), ('active', None, 'host1')},
            {(row.vm_state, row.task_state, row.host)
             for row in map(self.row, new + built)})

    def test_each_build_has_the_node_of_its_message(self):
        new = self.create(4)

        self.together(*(
            lambda each=each, place=place: self.begin(
                each, node=f'node{place % 2}')
            for place, each in enumerate(new)))

        self.assertEqual(['node0', 'node1', 'node0', 'node1'],
                         [self.row(each).node for each in new])

    def test_deleted_or_moved_builds_are_not_begun_in_a_batch(self):
        new = self.create(5)
        _, deleted, elsewhere, late, _ = new
        with self.cell.writer() as connection:
            instances.delete(connection, deleted.uuid, self.clock.now())
            instances.transit(connection, elsewhere.uuid, 'begin',
                              self.clock.now(), {'host': 'host2'})
            instances.update(connection, late.uuid, {'build_attempts': 2},
                             self.clock.now())

        outcomes = self.together(*(
            lambda each=each: self.begin(each) for each in new))

        self.assertEqual([False, None, None, None, False], outcomes)
        self.assertEqual(
            [None, 'host2', None],
            [row and row.host for row in map(self.row, new[1:4])])

    def test_build_refused_by_the_database_fails_alone(self):
        new = self.create(4)

        *outcomes, refused = self.together(*(
            lambda each=each, node=node: self.begin(each, node=node)
            for each, node in zip(
                new, ['node1', 'node1', 'node1', '\ud800'], strict=True)))

        self.assertEqual([False] * 3, outcomes)
        self.assertIsInstance(refused, Exception)
        self.assertIsNone(self.row(new[3]).host)

    def test_unreachable_database_is_tried_once_for_all_builds(self):
        self.told = self.tell('sqlite:////nowhere/at/all.sqlite')

        outcomes = self.together(*(
            lambda each=each: self.begin(each) for each in self.create(4)))

        for outcome in outcomes:
            self.assertIsInstance(outcome, exception.DatabaseUnreachable)
        self.assertEqual(4, len(set(map(id, outcomes))))
        self.assertEqual(2, self.told.begun)


class TestOutcomes(base.TestCase):

    def setUp(self):
        super().setUp()
        self.outcomes = progress.Outcomes()

    def test_new_node_has_no_failures(self):
        self.assertEqual(0, self.outcomes.failed_in_a_row('node1'))

    def test_failures_count_until_a_build_succeeds(self):
        for expected in (1, 2, 3):
            self.outcomes.failed('node1')
            self.assertEqual(
                expected, self.outcomes.failed_in_a_row('node1'))

        for _ in range(2):
            self.outcomes.succeeded('node1')
            self.assertEqual(0, self.outcomes.failed_in_a_row('node1'))

    def test_failures_are_counted_by_node(self):
        self.outcomes.failed('node1')
        self.outcomes.failed('node2')
        self.outcomes.succeeded('node1')

        self.assertEqual((0, 1), tuple(map(
            self.outcomes.failed_in_a_row, ('node1', 'node2'))))

    def test_no_failure_of_several_threads_is_lost(self):
        def fail(_):
            for _ in range(500):
                self.outcomes.failed('node1')

        with futures.ThreadPoolExecutor(4) as threads:
            list(threads.map(fail, range(4)))

        self.assertEqual(2000, self.outcomes.failed_in_a_row('node1'))
