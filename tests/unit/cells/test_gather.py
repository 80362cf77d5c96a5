# SPDX-License-Identifier: Apache-2.0
"""Asking many cells at once."""

import socket
import threading

import futurist
from oslo_context import context as oslo_context

from cellsched.cells import gather
from cellsched.clock import Clock
from cellsched.db.cell import services
from cellsched import exception
from cellsched import objects
from cellsched.rpc import compute
from cellsched.testing import clock
from tests.unit.cells import base
from tests.unit.db import samples

TIMEOUT_S = 600

#: Longer than anything here takes; a test that waits so long has failed.
DEADLINE_S = 600


class ImpatientClock(clock.FakeClock):
    """A fake clock for those who wait for another one's deadline.

    They wait in real time for as long as the clock leaves them. So to the
    thread of the test it is always almost too late, but never yet.
    """

    def __init__(self):
        super().__init__()
        self._waiting = threading.get_ident()
        #: What to do when the thread of the test asks for the time.
        self.when_asked = []

    def monotonic(self):
        if threading.get_ident() != self._waiting:
            return super().monotonic()
        if self.when_asked:
            self.when_asked.pop(0)()
        return super().monotonic() + TIMEOUT_S - 0.01


class Cells:
    """Cells that answer, fail or hang when they are asked."""

    def __init__(self):
        self.asked = []
        self.failing = set()
        self.hanging = set()
        self.go_on = threading.Event()
        #: Notified of every question that is put, and of every answer.
        self.changed = threading.Condition()

    def ask(self, context):
        name = context.cell.name
        if name in self.hanging:
            self.hang(name)
            return name
        self._note(name)
        if name in self.failing:
            raise exception.CellUnreachable(cell=name, reason='down')
        return name

    def hang(self, name='nothing'):
        self._note(name)
        assert self.go_on.wait(DEADLINE_S)

    def _note(self, name):
        with self.changed:
            self.asked.append(name)
            self.changed.notify_all()


class Executor(futurist.ThreadPoolExecutor):
    """The pool that services use, where what can be asked is asked at once.

    That is so for as long as there is a thread for it.
    """

    def __init__(self, size, world):
        super().__init__(size)
        self._size = size
        self._world = world
        self.futures = []

    def submit(self, function, *args, **kwargs):
        world = self._world
        with world.changed:
            asked = len(world.asked)
            free = self._size - len(self.unanswered())
            future = super().submit(function, *args, **kwargs)
            self.futures.append(future)
            world.changed.notify_all()
        future.add_done_callback(self._tell)
        self.wait_until(lambda: free <= 0 or future.done()
                        or len(world.asked) > asked)
        return future

    def unanswered(self):
        return [future for future in self.futures if not future.done()]

    def wait_until(self, holds):
        with self._world.changed:
            assert self._world.changed.wait_for(holds, DEADLINE_S)

    def _tell(self, future):
        with self._world.changed:
            self._world.changed.notify_all()


class TestGatherer(base.TestCase):

    def setUp(self):
        super().setUp()
        self.time = ImpatientClock()
        self.world = Cells()

    def make(self, threads, cells, timeout_s=TIMEOUT_S):
        """Return a gatherer, and the names of so many new cells."""
        self.executor = Executor(threads, self.world)
        self.addCleanup(self.executor.shutdown, wait=False)
        self.addCleanup(self.world.go_on.set)
        self.mapped = [self.add_cell(f'cell{number}')
                       for number in range(1, cells + 1)]
        return gather.Gatherer(
            self.executor, self.targets, self.time, timeout_s)

    def ask(self, gatherer, cells=None):
        return gatherer.gather(
            self.context, self.mapped if cells is None else cells,
            self.world.ask)

    def ask_while_time_runs_out(self, gatherer, answers):
        """Ask all cells; the time is over after so many answers."""
        def run_out():
            self.executor.wait_until(
                lambda: len(self.executor.futures) == len(self.mapped)
                and self.world.hanging <= set(self.world.asked)
                and len(self.executor.unanswered())
                == len(self.mapped) - answers)
            self.time.advance(1)

        thread = threading.Thread(target=run_out)
        thread.start()
        self.addCleanup(thread.join)
        return self.ask(gatherer)

    def end_hanging(self):
        self.world.go_on.set()
        self.executor.wait_until(lambda: not self.executor.unanswered())

    def names(self, *numbers):
        """Return names by uuid, as cells answer them."""
        return {self.mapped[number - 1].uuid: self.mapped[number - 1].identity
                for number in numbers}

    def test_every_cell_answers(self):
        gathered = self.ask(self.make(threads=3, cells=3))

        self.assertEqual(self.names(1, 2, 3), gathered.results)
        self.assertEqual({}, gathered.failures)
        self.assertEqual(set(), gathered.silent)

    def test_no_cells_are_no_answers(self):
        gathered = self.ask(self.make(threads=1, cells=0))

        self.assertEqual(gather.GatherResult(), gathered)

    def test_more_cells_than_threads_all_answer(self):
        gathered = self.ask(self.make(threads=2, cells=20))

        self.assertEqual(20, len(gathered.results))

    def test_context_of_the_caller_is_not_aimed(self):
        self.ask(self.make(threads=2, cells=2))

        self.assertIsNone(self.context.cell)

    def test_log_lines_of_a_query_have_the_request_id(self):
        gatherer = self.make(threads=1, cells=1)
        requests = [
            gatherer.gather(
                context, self.mapped,
                lambda cell_context: oslo_context.get_current().request_id
            ).results[self.mapped[0].uuid]
            for context in (self.context, base.context.admin())]

        self.assertEqual(self.context.request_id, requests[0])
        self.assertNotEqual(self.context.request_id, requests[1])

    def test_failures_are_kept_apart(self):
        gatherer = self.make(threads=2, cells=3)
        self.world.failing = {self.mapped[1].identity}

        gathered = self.ask(gatherer)

        self.assertEqual(self.names(1, 3), gathered.results)
        failure = gathered.failures.pop(self.mapped[1].uuid)
        self.assertIsInstance(failure, exception.CellUnreachable)
        self.assertEqual({}, gathered.failures)
        self.assertEqual(set(), gathered.silent)

    def test_cell_with_an_invalid_url_fails_alone(self):
        gatherer = self.make(threads=2, cells=2)
        self.mapped[0].database_connection = 'nothing'

        gathered = self.ask(gatherer)

        self.assertEqual(self.names(2), gathered.results)
        self.assertIsInstance(gathered.failures[self.mapped[0].uuid],
                              exception.ConfigurationInvalid)

    def test_hanging_cell_is_silent_after_the_deadline(self):
        gatherer = self.make(threads=4, cells=4)
        self.world.hanging = {self.mapped[2].identity}
        self.world.failing = {self.mapped[0].identity}

        gathered = self.ask_while_time_runs_out(gatherer, 3)

        self.assertEqual(self.names(2, 4), gathered.results)
        self.assertEqual({self.mapped[0].uuid}, gathered.failures.keys())
        self.assertEqual({self.mapped[2].uuid}, gathered.silent)

    def test_hanging_cell_blocks_a_single_thread(self):
        gatherer = self.make(threads=2, cells=9)
        self.world.hanging = {self.mapped[0].identity}

        gathered = self.ask_while_time_runs_out(gatherer, 8)

        self.assertEqual(self.names(*range(2, 10)), gathered.results)
        self.assertEqual({self.mapped[0].uuid}, gathered.silent)

    def test_hanging_cell_is_silent_at_once_in_the_next_call(self):
        gatherer = self.make(threads=2, cells=2)
        hanging = self.mapped[0]
        self.world.hanging = {hanging.identity}
        self.ask_while_time_runs_out(gatherer, 1)

        for _ in range(3):
            gathered = self.ask(gatherer)
            self.assertEqual({hanging.uuid}, gathered.silent)
            self.assertEqual(self.names(2), gathered.results)

        self.assertEqual(1, self.world.asked.count(hanging.identity))
        self.assertEqual({hanging.uuid}, self.ask(
            gatherer, [hanging]).silent)

    def test_cell_is_queried_again_after_its_late_answer(self):
        gatherer = self.make(threads=2, cells=2)
        self.world.hanging = {self.mapped[0].identity}
        self.ask_while_time_runs_out(gatherer, 1)

        self.end_hanging()

        self.assertEqual(self.names(1, 2), self.ask(gatherer).results)

    def test_deadline_holds_while_all_threads_hang(self):
        gatherer = self.make(threads=2, cells=5)
        hanging = {cell.identity for cell in self.mapped[:2]}
        self.world.hanging = hanging

        gathered = self.ask_while_time_runs_out(gatherer, 0)

        self.assertEqual({cell.uuid for cell in self.mapped},
                         gathered.silent)
        self.assertEqual(hanging, set(self.world.asked))

    def test_deadline_holds_while_threads_hang_elsewhere(self):
        gatherer = self.make(threads=1, cells=3, timeout_s=0.01)
        self.executor.submit(self.world.hang)

        gathered = self.ask(gatherer)

        self.assertEqual(self.names(1, 2, 3).keys(), gathered.silent)
        self.assertEqual(['nothing'], self.world.asked)

    def test_answer_of_the_last_moment_is_kept(self):
        gatherer = self.make(threads=1, cells=1)
        self.world.hanging = {self.mapped[0].identity}

        def answer_and_time_out():
            self.end_hanging()
            self.time.advance(1)

        # First it asks how long to wait; then, whom to give up.
        self.time.when_asked = [lambda: None, answer_and_time_out]

        self.assertEqual(self.names(1), self.ask(gatherer).results)

    def test_unqueried_cells_are_queried_in_the_next_call(self):
        gatherer = self.make(threads=1, cells=3)
        self.world.hanging = {self.mapped[0].identity}
        self.ask_while_time_runs_out(gatherer, 0)
        self.end_hanging()

        self.assertEqual(self.names(1, 2, 3), self.ask(gatherer).results)

    def test_other_database_is_called_like_a_cell(self):
        gatherer = self.make(threads=2, cells=0)

        self.assertEqual(
            {'other': 3}, gatherer.call('other', lambda: 3, 1).results)
        failures = gatherer.call('other', lambda: {}['key'], 1).failures
        self.assertIsInstance(failures['other'], KeyError)

    def test_hanging_other_database_is_silent_at_its_own_deadline(self):
        gatherer = self.make(threads=2, cells=0, timeout_s=DEADLINE_S)

        def hang():
            self.time.advance(0.01)
            self.world.hang()

        for _ in range(2):
            self.assertEqual(
                {'other'}, gatherer.call('other', hang, 0.01).silent)

        self.assertEqual(['nothing'], self.world.asked)
        self.assertEqual(
            {'another': 1}, gatherer.call('another', lambda: 1, 1).results)
        self.end_hanging()

    def test_exit_in_a_query_is_raised(self):
        def stop(context):
            raise SystemExit

        gatherer = self.make(threads=1, cells=1)

        self.assertRaises(SystemExit, gatherer.gather, self.context,
                          self.mapped, stop)


#: Long for a SQLite file, short for who waits for what hangs.
SOCKET_TIMEOUT_S = 2.0


class TestOverCells(base.TestCase):

    def setUp(self):
        super().setUp()
        executor = futurist.ThreadPoolExecutor(4)
        self.addCleanup(executor.shutdown, wait=False)
        self.gatherer = gather.Gatherer(
            executor, self.targets, Clock(), SOCKET_TIMEOUT_S)

    def add(self, name, *reported, **fields):
        """Add a cell with a host of each of these versions."""
        cell = self.add_cell(name, **fields)
        for version in reported:
            self.write(
                self.targets.database(cell), services.report,
                samples.uuids(1)[0], f'{name}-{version}', services.COMPUTE,
                'compute', samples.NOW, version)
        return cell

    def lowest(self):
        return gather.lowest_compute(self.cells, self.gatherer)

    def test_lowest_of_all_cells_is_found(self):
        self.add('one', 3, 5)
        self.add('two', 4, 2)
        self.add('three', 9)

        self.assertEqual(compute.Lowest(2), self.lowest())

    def test_disabled_cells_count_and_cell0_does_not(self):
        self.add('one', 3)
        self.add('two', 2, disabled=True)
        self.add('cell0', 1, uuid=objects.CELL0_UUID)

        self.assertEqual(2, self.lowest().version)

    def test_lowest_version_is_unknown_without_reported_versions(self):
        self.add('one', 0)
        self.add('two')

        self.assertEqual(compute.Lowest(), self.lowest())

    def test_down_cell_is_omitted_and_logged(self):
        self.add('one', 3)
        down = self.add_cell(
            'two', database_connection='sqlite:////nowhere/at/all.sqlite')

        self.assertEqual(
            compute.Lowest(3, frozenset([down.uuid])), self.lowest())
        self.assertIn(f'Cell {down.identity} does not answer: '
                      'DatabaseUnreachable', self.logs.output)

    def test_hanging_cell_is_omitted_and_logged(self):
        # It takes who connects, and never says a word.
        listening = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(listening.close)
        port = listening.getsockname()[1]
        self.add('one', 3)
        hanging = self.add_cell(
            'two',
            database_connection=f'mysql+pymysql://u:secret@127.0.0.1:{port}/d')

        for _ in range(2):
            self.assertEqual(
                compute.Lowest(3, frozenset([hanging.uuid])),
                self.lowest())

        self.assertIn(f'Cell {hanging.identity} does not answer: it took',
                      self.logs.output)
        self.assertNotIn('secret', self.logs.output)
