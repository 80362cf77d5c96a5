# SPDX-License-Identifier: Apache-2.0
"""Moves with a killed conductor or agent, or a deleted server."""

from tests.functional import base
from tests.functional import moving

#: What a conductor and an agent do in turn.
PLACED = ('MovePrepare', 'MoveSelect', 'MoveDecide')
BUILT = ('MoveBegin', 'MoveSpawn')
GONE = ('MoveFinish', 'MoveClaim')


class TestCase(moving.TestCase):

    def setUp(self):
        super().setUp()
        self.start({'cell1': self.hosts('a1', 'a2')})

    def at_rest(self):
        """Return a server and its host."""
        uuid = self.active()
        host = self.row(uuid).host
        self.assertRests('active', host, uuid)
        self.done.clear()
        return uuid, host

    def shelved(self):
        uuid, _ = self.at_rest()
        self.moves.shelve(base.USER, uuid)
        self.assertRests('shelved_offloaded', None, uuid)
        # That is told when everybody sees it already.
        self.reached('MoveClaim')
        self.done.clear()
        return uuid

    def reached(self, step):
        self.until(lambda: step in self.done, f'{step} is done')

    def over(self, uuid, *hosts):
        """Delete a server, for the next one to have its place."""
        for host in hosts:
            self.down(host, down=False)
        self.delete(uuid)
        self.assertIsGone(uuid)


class TestKilled(TestCase):
    """The process of a move is killed."""

    def killed(self, step, move, uuid, *args):
        self.at[step] = self.kill
        move(base.ADMIN, uuid, *args)
        self.reached(step)
        self.strand()

    def test_migration(self):
        for step in (*PLACED, *BUILT, *GONE):
            uuid, host = self.at_rest()

            self.killed(step, self.moves.migrate, uuid)

            self.assertRests(
                'active', self.other(host) if step in GONE else host, uuid)
            self.strand()
            self.until(lambda: self.statuses(uuid) in (['done'], ['error']),
                       'the host that it left has been told')
            self.over(uuid)

    def test_evacuation(self):
        for step in (*PLACED, *BUILT, *GONE):
            uuid, host = self.at_rest()
            self.down(host)

            self.killed(step, self.moves.evacuate, uuid)

            if step in GONE:
                self.down(host, down=False)
                self.strand(2 * moving.LATE_S)
                self.assertRests('active', self.other(host), uuid)
            else:
                self.assertRests('active', host, uuid)
            self.over(uuid, host)

    def test_rebuild(self):
        for step in (*PLACED, *BUILT, *GONE):
            uuid, host = self.at_rest()

            self.killed(step, self.moves.rebuild, uuid, 'other')

            row = self.rested(uuid)
            self.assertEqual(
                ('active' if step in GONE else 'error', host),
                (row.vm_state, row.host))
            self.assertClaimsMatch()
            if step not in GONE:
                self.moves.rebuild(base.USER, uuid)
                self.assertRests('active', host, uuid)
            self.over(uuid)

    def test_shelving(self):
        for step in ('MoveBegin', 'MoveDestroy', *GONE):
            uuid, _ = self.at_rest()

            self.killed(step, self.moves.shelve, uuid)

            self.assertRests('shelved_offloaded', None, uuid)
            self.assertEqual(['done'], self.statuses(uuid))
            self.assertEqual({}, self.holding(uuid))
            self.over(uuid)

    def test_unshelving(self):
        for step in (*PLACED, *BUILT, *GONE):
            uuid = self.shelved()

            self.killed(step, self.moves.unshelve, uuid)

            row = self.rested(uuid)
            if step in GONE:
                self.assertRests('active', row.host, uuid)
            else:
                self.assertRests('shelved_offloaded', None, uuid)
                self.assertEqual({}, self.holding(uuid))
            self.over(uuid)

    def test_late_process_changes_no_server(self):
        for step in (*PLACED, *BUILT):
            uuid, host = self.at_rest()
            self.at[step] = self.strand

            self.moves.migrate(base.ADMIN, uuid)

            self.reached(step)
            self.assertRests('active', host, uuid)
            self.over(uuid)

    def test_late_process_does_not_disturb_the_next_move(self):
        for step in (*PLACED, *BUILT):
            uuid, host = self.at_rest()

            def next_one():
                self.strand()
                self.moves.migrate(base.ADMIN, uuid)

            self.at[step] = next_one
            self.moves.migrate(base.ADMIN, uuid)

            self.reached(step)
            self.rested(uuid)
            self.assertRests('active', self.row(uuid).host, uuid)
            self.over(uuid)


class TestDeleted(TestCase):
    """A user deletes the server in the middle of its move."""

    def at_each(self, begin, move, *steps):
        for step in steps:
            uuid = begin()
            self.at[step] = lambda: self.delete(uuid)

            move(base.ADMIN, uuid)

            self.reached(step)
            self.assertIsGone(uuid)
            self.until(lambda: not set(self.statuses(uuid)).difference(
                ('done', 'error')), 'its moves are over')

    def test_migration(self):
        self.at_each(lambda: self.at_rest()[0], self.moves.migrate,
                     *PLACED, *BUILT, *GONE)

    def test_rebuild(self):
        self.at_each(lambda: self.at_rest()[0],
                     lambda *args: self.moves.rebuild(*args, 'other'),
                     *PLACED, *BUILT, *GONE)

    def test_shelving(self):
        self.at_each(lambda: self.at_rest()[0], self.moves.shelve,
                     'MoveBegin', 'MoveDestroy', *GONE)

    def test_unshelving(self):
        self.at_each(self.shelved, self.moves.unshelve,
                     *PLACED, *BUILT, *GONE)

    def test_evacuation(self):
        for step in (*PLACED, *BUILT, *GONE):
            uuid, host = self.at_rest()
            self.down(host)
            self.at[step] = lambda: self.delete(uuid)

            self.moves.evacuate(base.ADMIN, uuid)

            self.reached(step)
            self.assertIsGone(uuid)
            self.down(host, down=False)

    def test_deletion_and_death_at_once(self):
        def die():
            self.delete(uuid)
            self.kill()

        for step in (*PLACED, *BUILT, *GONE):
            uuid, _ = self.at_rest()
            self.at[step] = die

            self.moves.migrate(base.ADMIN, uuid)
            self.reached(step)
            self.strand()

            self.assertIsGone(uuid)


class TestFailing(TestCase):
    """The host where a server goes cannot build it."""

    def test_server_remains_on_its_host_after_a_failed_migration(self):
        uuid, host = self.at_rest()
        self.driver(self.other(host)).fail_builds(1)

        self.moves.migrate(base.ADMIN, uuid)

        self.assertRests('active', host, uuid)
        self.assertEqual(['error'], self.statuses(uuid))
        self.assertIn('is configured to fail', self.faults(uuid)[0])

    def test_server_stays_shelved(self):
        uuid = self.shelved()
        for host in ('a1', 'a2'):
            self.driver(host).fail_builds(1)

        self.moves.unshelve(base.USER, uuid)

        self.assertRests('shelved_offloaded', None, uuid)

    def test_server_is_in_error_after_a_failed_rebuild(self):
        uuid, host = self.at_rest()
        self.driver(host).fail_builds(1)

        self.moves.rebuild(base.USER, uuid)

        row = self.rested(uuid)
        self.assertEqual(('error', host), (row.vm_state, row.host))
        self.assertClaimsMatch()
        self.moves.rebuild(base.USER, uuid)
        self.assertRests('active', host, uuid)
