# SPDX-License-Identifier: Apache-2.0
"""Changes of operators, which the next request is decided with."""

import threading

from cellsched.db.api import aggregates
from cellsched.db.api import cell_mappings
from cellsched.db.api import operator_changes
from cellsched.db import session
from cellsched.host_manager import manager
from tests.unit.db import samples
from tests.unit.hosts import loading
from tests.unit.hosts import world

DEADLINE_S = 600


class TestChanges(loading.LoaderTestCase):

    def setUp(self):
        super().setUp()
        self.loader = self.world.loader(interval_s=world.FOR_EVER_S)
        self.follow()

    def follow(self):
        self.loader.follow(world.CONTEXT)

    def known(self):
        return operator_changes.known(self.world.database, self.world.clock)

    def disable_known(self, cell='cell1', host='a1'):
        self.disable(cell, host)
        with self.known():
            pass

    def is_disabled(self, host='a1'):
        return bool(self.value(host, 'service_disabled'))

    def cells_read(self):
        """Return a list that gets the names of the cells that are read."""
        found = []
        for name in self.world.cells:
            self.world.targets.behaviour[name] = (
                lambda name=name: found.append(name))
        return found

    def test_service_is_disabled_at_the_next_request(self):
        self.disable_known()
        self.assertFalse(self.is_disabled())

        self.follow()

        self.assertTrue(self.is_disabled())

    def test_cell_is_disabled_at_the_next_request(self):
        cell = self.world.cells['cell1']
        with self.known() as connection:
            cell_mappings.update_apart(
                connection, cell.uuid, {'disabled': True}, samples.NOW)

        self.follow()

        self.assertTrue(self.view().any_cell_disabled)

    def test_aggregate_is_known_at_the_next_request(self):
        with self.known() as connection:
            aggregates.create(
                connection, samples.uuids(1)[0], 'east', ['a1'],
                {'availability_zone': 'east'}, samples.NOW)

        self.follow()

        self.assertEqual('east', self.value('a1', 'availability_zone'))

    def test_cells_are_read_once_after_a_change_and_for_no_report(self):
        self.disable_known()
        found = self.cells_read()
        for _ in range(3):
            self.world.clock.advance(operator_changes.KNOWN_S)
            self.world.report('cell2', 'b1')
            self.follow()

        self.assertEqual(['cell1', 'cell2'], sorted(found))

    def test_request_soon_after_a_change_reads_no_cell(self):
        self.world.clock.advance(operator_changes.KNOWN_S)
        self.follow()
        self.loader.database = None  # Nothing can be read.
        self.world.clock.advance(operator_changes.KNOWN_S * 0.9)

        self.follow()

        self.assertNotIn('does not answer', self.logs.output)

    def test_refresh_waiting_for_a_cell_hides_no_change_of_another(self):
        waits, over = threading.Event(), threading.Event()
        self.addCleanup(over.set)

        def wait():
            del self.world.targets.behaviour['cell2']
            waits.set()
            over.wait(DEADLINE_S)

        self.world.targets.behaviour['cell2'] = wait
        refresh = threading.Thread(
            target=self.loader.refresh, args=(world.CONTEXT,), daemon=True)
        refresh.start()
        self.assertTrue(waits.wait(DEADLINE_S))
        self.disable_known()

        self.follow()

        self.assertTrue(self.is_disabled())
        self.assertTrue(refresh.is_alive())
        over.set()
        refresh.join(DEADLINE_S)
        self.assertTrue(self.is_disabled())

    def test_failed_cell_keeps_its_state_and_hides_no_other_change(self):
        def fail():
            raise KeyError

        self.world.targets.behaviour['cell2'] = fail
        self.disable_known('cell2', 'b1')
        self.disable_known()

        self.follow()

        self.assertEqual((True, False), (
            self.is_disabled('a1'), self.is_disabled('b1')))

    def test_last_known_facts_decide_without_the_api_database(self):
        self.disable_known()
        self.loader.database = session.Database(
            'sqlite:////missing/api.sqlite', 'API', clock=self.world.clock)

        self.follow()

        self.assertFalse(self.is_disabled())
        self.assertIn('The API database does not answer', self.logs.output)
        self.loader.database = self.world.database
        self.world.clock.advance(operator_changes.KNOWN_S)
        self.follow()
        self.assertTrue(self.is_disabled())

    def test_hanging_api_database_delays_no_later_request(self):
        hangs, over = threading.Event(), threading.Event()
        self.addCleanup(over.set)
        submit = self.world.threads.submit

        def hang():
            self.world.clock.advance(1)
            hangs.set()
            over.wait(DEADLINE_S)

        def begin(*args):
            query = submit(*args)
            hangs.wait(DEADLINE_S)
            return query

        self.patch(self.world.threads, 'submit', begin)
        self.loader.gatherer.call(manager.API_DATABASE, hang, 1)
        self.disable_known()

        self.follow()

        self.assertFalse(self.is_disabled())
        self.assertIn('it took too long', self.logs.output)

    def test_concurrent_requests_share_a_look_at_the_feed(self):
        """Also if a look takes longer than its result counts as known."""
        self.disable_known()
        found, looks = self.cells_read(), []
        arrived, all_there = set(), threading.Event()
        clock, call = self.world.clock, self.loader.gatherer.call
        monotonic = clock.monotonic

        def arrive():
            arrived.add(threading.get_ident())
            if len(arrived) == len(threads):
                all_there.set()
            return monotonic()

        def look(*args):
            looks.append(args)
            all_there.wait(DEADLINE_S)
            clock.advance(1)
            return call(*args)

        threads = [threading.Thread(target=self.follow) for _ in range(8)]
        clock.monotonic, self.loader.gatherer.call = arrive, look
        for each in threads:
            each.start()
        for each in threads:
            each.join(DEADLINE_S)

        self.assertTrue(self.is_disabled())
        self.assertEqual(['cell1', 'cell2'], sorted(found))
        self.assertEqual(1, len(looks))
