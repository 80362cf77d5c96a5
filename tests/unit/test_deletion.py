# SPDX-License-Identifier: Apache-2.0
"""The deletion of a server, and its record."""

from concurrent import futures
import contextlib
import threading

from cellsched import context
from cellsched.db.api import leases
from cellsched.db import session
from cellsched import deletion
from cellsched import exception
from tests.unit.conductor import base

#: Calls that delete one server at the same time.
CALLS = 20

WAIT_S = 60


class Killed(BaseException):
    """Ends a call like a killed process."""


class DeletionCase(base.TestCase):

    def setUp(self):
        super().setUp()
        #: Called after the first step.
        self.first = lambda: None
        self.deletion = self.make(lambda step: self.first())
        [self.uuid] = self.accept()

    def make(self, reached=lambda step: None):
        return deletion.Deletion(
            self.database, self.targets, lambda: self.compute, self.claims,
            self.clock, 60, reached)

    def delete(self):
        self.deletion.run(base.USER, self.uuid)

    def kill(self):
        raise Killed

    def recorded(self):
        """Return the servers whose deletion is not complete."""
        with self.database.reader() as connection:
            return leases.list_interrupted_deletions(
                connection, self.clock.steady() + deletion.LEASE_S, 10)

    def on_host(self):
        """Put the server on a host, which is down."""
        self.task().run(base.USER, [self.uuid])
        with self.targets.database(
                self.cells['cell1']).writer() as connection:
            base.samples.put(connection, self.uuid, {
                'vm_state': 'active', 'task_state': None, 'host': 'a1'},
                self.clock.now())

    def assertGone(self):
        self.assertEqual('deleted', self.row(self.uuid).vm_state)
        self.assertIsNone(self.holds(self.uuid))


class TestRecord(DeletionCase):

    def test_deletion_is_recorded_until_its_end(self):
        seen = []
        self.first = lambda: seen.append(self.recorded())

        self.delete()

        self.assertEqual([[self.uuid]], seen)
        self.assertEqual([], self.recorded())

    def test_killed_call_leaves_the_record(self):
        self.first = self.kill

        self.assertRaises(Killed, self.delete)

        self.assertEqual([self.uuid], self.recorded())

    def test_silent_cell_leaves_the_record(self):
        self.on_host()
        self.break_cell('cell1')

        self.assertRaises(exception.DatabaseError, self.delete)
        self.assertEqual([self.uuid], self.recorded())

        self.mend_cell('cell1')
        self.delete()
        self.assertEqual([], self.recorded())
        self.assertGone()

    def test_unknown_server_leaves_no_record(self):
        self.uuid = base.samples.uuids(1)[0]

        self.first = self.kill
        self.assertRaises(Killed, self.delete)

        self.assertEqual([], self.recorded())

    def test_resumed_deletion_keeps_the_row_out_of_the_cell(self):
        """A conductor has decided on the cell, and writes the row later."""
        self.scheduler.answer = lambda **arguments: [
            [self.selection('a1')]]
        task = self.task_with(4, self.interrupt)

        task.run(base.USER, [self.uuid])

        self.assertGone()

    def interrupt(self):
        """Delete between two steps of a build; stop, and continue."""
        self.first = self.kill
        self.assertRaises(Killed, self.delete)
        self.make().run(context.admin(), self.uuid, resumes=True)
        self.assertGone()


class CountedDatabase:
    """Counts the transactions at a time; the first one waits."""

    def __init__(self, database, released):
        self._database = database
        self._released = released
        self._lock = threading.Lock()
        self._now = 0
        self.most = 0

    def __getattr__(self, name):
        return getattr(self._database, name)

    write = session.Database.write

    @contextlib.contextmanager
    def writer(self):
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        self._released.wait(WAIT_S)
        with self._database.writer() as connection:
            yield connection
        with self._lock:
            self._now -= 1


class TestConcurrentCalls(DeletionCase):

    def test_single_transaction_waits_for_all_calls(self):
        """It may wait for a conductor that builds the server."""
        self.on_host()
        released = threading.Event()
        database = CountedDatabase(self.database, released)
        shared = deletion.Deletion(
            database, self.targets, lambda: self.compute, self.claims,
            self.clock, 60)
        begun = threading.Semaphore(0)

        def delete():
            begun.release()
            shared.run(base.USER, self.uuid)

        with futures.ThreadPoolExecutor(CALLS) as threads:
            calls = [threads.submit(delete) for _ in range(CALLS)]
            for _ in calls:
                begun.acquire(timeout=WAIT_S)
            released.set()
            for call in calls:
                call.result(WAIT_S)

        self.assertEqual(1, database.most)
        self.assertEqual([], self.recorded())
        self.assertGone()

    def test_each_waiting_call_gets_its_own_error(self):
        released = threading.Event()
        released.set()
        gone = session.Database(
            f'sqlite:///{self.temporary_directory()}/gone/x', 'API',
            clock=self.clock)
        database = CountedDatabase(gone, released)
        shared = deletion.Deletion(
            database, self.targets, lambda: self.compute, self.claims,
            self.clock, 60)
        with futures.ThreadPoolExecutor(CALLS) as threads:
            calls = [threads.submit(shared.run, base.USER, self.uuid)
                     for _ in range(CALLS)]
            errors = [call.exception(WAIT_S) for call in calls]

        self.assertEqual({exception.DatabaseUnreachable},
                         set(map(type, errors)))
        self.assertEqual(CALLS, len(set(map(id, errors))))

    def test_nested_deletion_of_a_server_succeeds(self):
        self.on_host()
        self.first = self.again

        self.delete()

        self.assertEqual([], self.recorded())
        self.assertGone()

    def again(self):
        self.first = lambda: None
        self.delete()
