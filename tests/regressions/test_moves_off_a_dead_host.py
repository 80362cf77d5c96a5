# SPDX-License-Identifier: Apache-2.0
"""A host that is down is left by evacuation, whatever its servers do."""

import datetime
import io

import sqlalchemy as sa

from cellsched.cli import app
from cellsched.db.cell import models
from cellsched import exception
from tests.functional import base
from tests.functional import moving

HOUR = datetime.timedelta(hours=1)


class TestCase(moving.TestCase):

    def setUp(self):
        super().setUp()
        self.start({'cell1': self.hosts('a1', 'a2')})
        self.uuid = self.active()
        self.host = self.row(self.uuid).host

    def write(self, *statements):
        database = self.world.agents['a1'].parts.cell_database
        with database.writer() as connection:
            for each in statements:
                connection.execute(each)

    def set_row(self, **values):
        self.write(sa.update(models.instances).values(**values).where(
            models.instances.c.uuid == self.uuid))

    def refused(self, call, *args, kind=exception.CellschedException):
        return self.assertRaises(kind, call, base.ADMIN, *args)


class TestMigration(TestCase):

    def setUp(self):
        super().setUp()
        self.lose_agent(self.host)
        self.down(self.host)

    def test_moves_on_a_dead_host_other_than_evacuation_are_refused(self):
        for name in 'migrate', 'shelve', 'rebuild':
            error = self.refused(getattr(self.moves, name), self.uuid)

            self.assertIn(f'host {self.host} is down', str(error))
            self.assertIn('use evacuate', str(error))
            self.assertIsNone(self.row(self.uuid).task_state)
        self.assertEqual([], self.statuses(self.uuid))
        self.assertEqual([self.host], self.running(self.uuid))

    def test_drain_of_a_dead_host_is_refused(self):
        error = self.refused(self.world.api.host_drain.drain, self.host)

        self.assertIn('use evacuate', str(error))
        self.assertEqual([self.host], self.running(self.uuid))
        [service] = self.world.api.services.list(
            base.ADMIN, host=self.host).services
        self.assertFalse(service.disabled)


class TestDrain(TestCase):

    def test_server_of_a_recently_stopped_host_is_not_moved_yet(self):
        self.lose_agent(self.host)

        drain = self.world.api.host_drain.drain
        for _ in range(2):
            [departure] = drain(
                base.ADMIN, self.host, timeout_s=2, rebuild=True)

            self.assertEqual('moving', departure.outcome)
            self.assertIn(f'host {self.host} has not removed its copy',
                          departure.reason)
        self.assertEqual(['finished'], self.statuses(self.uuid))
        self.assertEqual(2, len(self.running(self.uuid)))

    def test_drain_ends_when_the_host_is_forced_down(self):
        self.lose_agent(self.host)

        [departure] = self.world.api.host_drain.drain(
            base.ADMIN, self.host, rebuild=True,
            show=lambda *_: self.down(self.host)
            if self.statuses(self.uuid) == ['finished'] else None)

        self.assertEqual('moving', departure.outcome)


class TestEvacuation(TestCase):

    def check(self, ask):
        self.lose_agent(self.host)
        ask(base.ADMIN, self.uuid)
        self.down(self.host)

        self.moves.evacuate(base.ADMIN, self.uuid)

        row = self.rested(self.uuid)
        self.assertEqual(('active', self.other(self.host)),
                         (row.vm_state, row.host))
        self.assertEqual('error', self.statuses(self.uuid)[0])

    def test_server_in_shelving_is_evacuated(self):
        self.check(self.moves.shelve)

    def test_server_in_rebuild_is_evacuated(self):
        self.check(self.moves.rebuild)

    def test_migration_to_a_dead_host_is_ended(self):
        other = self.other(self.host)
        self.at['MoveDecide'] = lambda: self.lose_agent(other)
        self.moves.migrate(base.ADMIN, self.uuid)
        self.until(lambda: self.statuses(self.uuid) == ['migrating'],
                   'the message is sent')
        for host in self.host, other:
            self.down(host)

        self.moves.evacuate(base.ADMIN, self.uuid)

        self.assertEqual('error', self.statuses(self.uuid)[0])
        # No host is left for it; it is as it was.
        row = self.rested(self.uuid)
        self.assertEqual(('active', self.host), (row.vm_state, row.host))
        self.assertEqual({}, {
            name: held for name, held in self.holding(self.uuid).items()
            if name != self.uuid})

    def test_move_to_a_dead_destination_is_replaced(self):
        """Of a server whose own host is up, and of a shelved server."""
        other = self.other(self.host)
        self.lose_agent(other)
        self.moves.migrate(base.ADMIN, self.uuid)
        self.until(lambda: self.statuses(self.uuid) == ['migrating'],
                   'the message is sent')
        self.refused(self.moves.shelve, self.uuid)
        self.down(other)

        self.moves.shelve(base.ADMIN, self.uuid)

        row = self.rested(self.uuid)
        self.assertEqual(('shelved_offloaded', None), (row.vm_state, row.host))
        self.assertEqual(['error', 'done'], self.statuses(self.uuid))
        self.down(self.host)
        self.down(other, down=False)
        self.moves.unshelve(base.ADMIN, self.uuid)
        self.until(lambda: self.statuses(self.uuid)[-1] == 'migrating',
                   'the message is sent')
        self.down(other)
        self.down(self.host, down=False)

        self.moves.unshelve(base.ADMIN, self.uuid)

        row = self.rested(self.uuid)
        self.assertEqual(('active', self.host), (row.vm_state, row.host))
        self.assertClaimsMatch()

    def test_failed_evacuation_changes_no_server(self):
        for vm_state in 'active', 'error':
            self.set_row(vm_state=vm_state)
            self.down(self.host)
            self.down(self.other(self.host))
            held = self.holding(self.uuid)

            self.moves.evacuate(base.ADMIN, self.uuid)

            row = self.rested(self.uuid)
            self.assertEqual((vm_state, None, self.host), (
                row.vm_state, row.task_state, row.host))
            self.assertEqual('error', self.statuses(self.uuid)[-1])
            self.assertEqual(held, self.holding(self.uuid))

    def test_evacuation_failed_on_its_host_changes_no_server(self):
        self.set_row(vm_state='error')
        self.down(self.host)
        self.driver(self.other(self.host)).fail_builds(1)

        self.moves.evacuate(base.ADMIN, self.uuid)

        row = self.rested(self.uuid)
        self.assertEqual(('error', self.host), (row.vm_state, row.host))
        self.moves.evacuate(base.ADMIN, self.uuid)
        row = self.rested(self.uuid)
        self.assertEqual(('active', self.other(self.host)),
                         (row.vm_state, row.host))


#: States of servers: vm_state, task_state, and the kind and the status of the
#: move, if any.
TASKS = {
    'none': ('active', None),
    'error': ('error', None),
    'rebuild': ('active', 'rebuilding', 'rebuild', 'accepted'),
    'rebuild begun': ('active', 'rebuild_spawning', 'rebuild', 'migrating'),
    'shelve': ('active', 'shelving_offloading', 'shelve', 'accepted'),
    'shelve begun': ('active', 'shelving_offloading', 'shelve', 'migrating'),
    'migration': ('active', 'resize_prep', 'migration', 'preparing'),
    'migration begun': (
        'active', 'resize_migrating', 'migration', 'migrating'),
    'migration to a dead host': (
        'active', 'resize_migrating', 'migration', 'migrating'),
    'evacuation': ('error', 'rebuilding', 'evacuation', 'preparing'),
    'task without a move': ('active', 'rebuild_spawning'),
    'task of Nova': ('active', 'powering-off'),
    'task of Nova after an error': ('error', 'rebooting_hard'),
    'deletion': ('active', 'deleting'),
    'build': ('building', 'spawning'),
}

UP = {'up': {}, 'disabled': {'disabled': True},
      'just stopped': {'last_seen_up': -datetime.timedelta(seconds=30)}}
DOWN = {'down': {'last_seen_up': -HOUR}, 'forced down': {'forced_down': True},
        'no service': None}

#: What is in the refusal of each operation, by the state of the host and the
#: task. Other combinations are accepted.
USE_EVACUATE, IS_UP, GONE = 'use evacuate', 'is up', 'There is no server'
MOVED = 'moved already'


def expected(operation, host, task):
    """Return a part of the refusal; empty if the operation is accepted."""
    up, none = host in UP, task in ('none', 'error')
    if task == 'deletion':
        return GONE
    if operation in ('migrate', 'shelve', 'rebuild') and not up:
        return USE_EVACUATE
    if operation == 'evacuate' and up:
        return IS_UP
    if operation == 'set':
        return 'building' if task == 'build' else ''
    if operation == 'evacuate':
        # Another host or a conductor still does the task. A migration that
        # was begun needs its source, for the disks of the server.
        return {'evacuation': MOVED,
                'build': 'building (spawning)'}.get(task, '')
    if up and task == 'migration to a dead host':
        return ''
    if none:
        return ('error' if task == 'error'
                and operation in ('migrate', 'shelve') else '')
    return 'cannot'


class TestTable(TestCase):

    def test_each_operation_in_each_state_of_host_and_task(self):
        for host in 'a1', 'a2':
            self.lose_agent(host)
        api = self.unheard()
        moves = api.moves
        operations = {
            'migrate': moves.migrate, 'evacuate': moves.evacuate,
            'shelve': moves.shelve, 'rebuild': moves.rebuild,
            'set': lambda context, uuid: api.servers.reset_state(
                context, uuid, 'active')}
        wrong = []
        for host, service in {**UP, **DOWN}.items():
            for task, state in TASKS.items():
                for operation, call in operations.items():
                    self.arrange(service, task, *state)
                    try:
                        call(base.ADMIN, self.uuid)
                        found = ''
                    except exception.CellschedException as exc:
                        found = str(exc)
                    part = expected(operation, host, task)
                    if not (part in found if part else found == ''):
                        wrong.append((operation, host, task, part, found))
        self.assertEqual([], wrong)

    def arrange(self, service, task, vm_state, task_state, kind=None,
                status=None):
        """Put the host and the server into a state."""
        other = self.other(self.host)
        table, moves = models.services, models.migrations
        now = self.world.agents['a1'].parts.cell_database.now()
        row = {'forced_down': False, 'disabled': False, 'deleted': 0,
               **({'deleted': 1} if service is None else service)}
        row['last_seen_up'] = now + row.get(
            'last_seen_up', datetime.timedelta())
        self.write(
            sa.update(table).values(**row).where(table.c.host == self.host),
            sa.update(table).values(
                last_seen_up=now, forced_down='dead' in task).where(
                table.c.host == other),
            sa.delete(moves))
        self.set_row(vm_state=vm_state, task_state=task_state)
        if kind is not None:
            self.write(sa.insert(moves).values(
                created_at=now, updated_at=now, deleted=0, uuid='move',
                instance_uuid=self.uuid, migration_type=kind, status=status,
                source_compute=self.host, source_node=self.host,
                dest_compute=self.host if kind == 'rebuild' else other))


class TestSetState(TestCase):

    def command(self, *args):
        out = io.StringIO()
        code = app.Shell(out, out).run([
            '--config-file', str(self.world.directory / 'etc' / 'api.conf'),
            'server', 'set', self.uuid, *args])
        return code, out.getvalue()

    def test_administrator_sets_the_state_of_a_server(self):
        self.set_row(task_state='powering-off')

        self.assertEqual(0, self.command('--state', 'error')[0])
        row = self.row(self.uuid)
        self.assertEqual(('error', None), (row.vm_state, row.task_state))

        self.assertEqual(0, self.command('--state', 'active')[0])
        self.assertRests('active', self.host, self.uuid)

    def test_move_in_progress_is_ended(self):
        def set_error():
            self.world.api.servers.reset_state(
                base.ADMIN, self.uuid, 'error')

        for step in 'MoveSelect', 'MoveDecide', 'MoveSpawn':
            self.at[step] = set_error
            self.moves.migrate(base.ADMIN, self.uuid)
            self.until(lambda: self.row(self.uuid).vm_state == 'error',
                       'it is set')

            self.assertRests('error', self.host, self.uuid)
            self.world.api.servers.reset_state(
                base.ADMIN, self.uuid, 'active')

    def test_server_on_its_destination_remains_after_a_reset(self):
        self.at['MoveFinish'] = lambda: self.world.api.servers.reset_state(
            base.ADMIN, self.uuid, 'error')

        self.moves.migrate(base.ADMIN, self.uuid)

        self.until(lambda: self.row(self.uuid).vm_state == 'error', 'it is')
        self.assertRests('error', self.other(self.host), self.uuid)

    def test_users_may_not_and_bad_states_are_refused(self):
        reset = self.world.api.servers.reset_state
        self.assertRaises(exception.PolicyNotAuthorized, reset, base.USER,
                          self.uuid, 'error')
        for state in ('', 'paused', 'ACTIVE', None, ['error']):
            self.assertRaises(exception.InvalidField, reset, base.ADMIN,
                              self.uuid, state)
        self.assertRaises(exception.InstanceNotFound, reset, base.ADMIN,
                          '00000000-0000-4000-8000-000000000000', 'error')
        self.assertRests('active', self.host, self.uuid)

    def test_state_of_a_server_without_a_host_is_not_reset(self):
        self.moves.shelve(base.USER, self.uuid)
        self.assertRests('shelved_offloaded', None, self.uuid)

        for state in 'active', 'error':
            self.assertRaises(
                exception.InstanceInvalidState,
                self.world.api.servers.reset_state, base.ADMIN, self.uuid,
                state)

        self.assertRests('shelved_offloaded', None, self.uuid)
