# SPDX-License-Identifier: Apache-2.0
"""A database that is restored from a backup costs no guest."""

import contextlib
import sqlite3

from cellsched import exception
from tests.functional import base
from tests.regressions import machines


class TestRestoredCell(machines.TestCase):

    def setUp(self):
        super().setUp()
        self.begin({'cell1': ['a1', 'a2']})
        self.uuid = self.active()
        self.first = self.row(self.uuid).host

    def copy(self, source, target):
        with (contextlib.closing(self.file(source)) as one,
              contextlib.closing(self.file(target)) as other):
            one.backup(other)

    def file(self, name):
        return sqlite3.connect(self.world.directory / f'{name}.sqlite')

    def migrate(self):
        moves = len(self.statuses(self.uuid))
        self.moves.migrate(base.ADMIN, self.uuid)
        self.rested(self.uuid)
        self.soon(lambda: self.assertEqual(
            ['done'] * (moves + 1), self.statuses(self.uuid)))

    def test_host_keeps_the_only_guest_of_a_server(self):
        self.copy('cell1', 'backup')
        self.migrate()
        second = self.other(self.first)
        self.assertEqual([second], self.running(self.uuid))

        self.copy('backup', 'cell1')

        self.awaits_report(
            second, {self.uuid: ('elsewhere', self.first)})
        self.awaits_report(self.first, {}, [self.uuid])
        self.assertEqual([second], self.running(self.uuid))
        self.assertLessEqual({('guest-unexplained', self.uuid),
                              ('guest-missing', self.uuid)}, self.audited())

        # The host that has the guest can adopt it, for the other has not.
        machine = self.stop_agent(second, down=False)
        self.assertRaises(exception.HostIdentityConflict, self.restart,
                          machine, 'cell1', second)
        self.restart(machine, 'cell1', second, adopt_guests=True)
        self.assertEqual(second, self.row(self.uuid).host)
        self.awaits_report(second, {})
        self.awaits_report(self.first, {})

    def test_restored_guest_is_newer_than_the_move_away(self):
        self.migrate()
        self.copy('cell1', 'backup')
        self.migrate()
        self.assertEqual([self.first], self.running(self.uuid))

        self.copy('backup', 'cell1')

        self.awaits_report(
            self.first, {self.uuid: ('elsewhere', self.other(self.first))})
        self.assertEqual([self.first], self.running(self.uuid))

    def test_abort_of_a_succeeded_move_removes_no_guest(self):
        self.at['MoveBegin'] = lambda: self.copy('cell1', 'backup')
        self.migrate()
        second = self.other(self.first)
        self.copy('backup', 'cell1')
        self.assertEqual(['migrating'], self.statuses(self.uuid))

        self.strand()

        self.soon(lambda: self.assertEqual(
            ['error'], self.statuses(self.uuid)))
        self.awaits_report(
            second, {self.uuid: ('elsewhere', self.first)})
        self.assertEqual([second], self.running(self.uuid))

    def test_deletion_of_the_row_removes_no_guest_of_another_host(self):
        self.copy('cell1', 'backup')
        self.migrate()
        self.copy('backup', 'cell1')

        self.delete(self.uuid)
        self.gone(self.uuid)

        second = self.other(self.first)
        self.awaits_report(second, {self.uuid: ('unplaced', self.first)})
        self.assertEqual([second], self.running(self.uuid))

    def test_guest_newer_than_the_backup_continues(self):
        self.copy('cell1', 'backup')
        [later] = self.built()
        host = self.row(later.uuid).host
        self.copy('backup', 'cell1')

        self.awaits_report(host, {later.uuid: ('unknown', None)})
        machine = self.stop_agent(host)
        self.restart(machine, 'cell1', host)

        self.assertIn(later.uuid, machine.list_instances())
