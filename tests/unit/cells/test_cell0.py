# SPDX-License-Identifier: Apache-2.0
"""The cell of what could not be built."""

from oslo_db import exception as db_exc
import sqlalchemy as sa

from cellsched.cells import cell0
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched import exception
from tests.unit.cells import base
from tests.unit.db import samples
from tests.unit import racing

REASON = exception.NoValidHost(reason='There are none.')


class TestCell0(base.TestCase):

    def setUp(self):
        super().setUp()
        self.mapping = self.add_cell0()
        self.grave = self.targets.database(self.mapping)
        self.cell0 = cell0.Cell0(self.database, self.cells, self.targets,
                                 self.clock, 'conductor')

    def accept(self, count, **fields):
        return samples.accept(
            self.database, samples.uuids(count), host='h', node='n', **fields)

    def bury(self, made, reason=REASON):
        return self.cell0.bury(self.context, made, reason)

    def delete(self, uuid):
        """Do what the API does when a user deletes a server."""
        with self.database.writer() as connection:
            unbuilt = build_requests.delete(connection, [uuid])
            instance_mappings.mark_deleted(connection, [uuid], samples.NOW)
        if not unbuilt and self.cell_of(uuid):
            self.write(self.grave, instances.delete, uuid, samples.NOW)

    def cell_of(self, uuid):
        cell = self.read(self.database, instance_mappings.get_many,
                         [uuid])[uuid].cell_mapping
        return cell and cell.name

    def request_of(self, uuid):
        return self.read(self.database, build_requests.get, uuid)

    def visible(self):
        return {each.uuid for each in self.read(
            self.grave, samples.listed)}

    def rows(self, table):
        return self.read(self.grave, lambda connection: connection.execute(
            sa.select(table).order_by(table.c.id)).all())

    def test_buried_server_lies_in_cell0_with_the_reason(self):
        made = self.accept(2, display_name='mine')
        uuids = {each.uuid for each in made}

        self.assertEqual(uuids, self.bury(made))

        for uuid in uuids:
            instance = self.read(self.grave, instances.get, uuid)
            self.assertEqual(
                ('mine', 'error', None, None, None, samples.NOW),
                (instance.display_name, instance.vm_state,
                 instance.task_state, instance.host, instance.node,
                 instance.created_at))
            self.assertEqual('cell0', self.cell_of(uuid))
            self.assertIsNone(self.request_of(uuid))
        self.assertEqual(
            dict.fromkeys(
                uuids, 'No valid host was found. There are none.'),
            self.read(self.grave, instance_history.latest, uuids))

    def test_fault_and_action_say_who_and_in_which_request(self):
        made = self.accept(1)

        self.bury(made)

        fault, = self.rows(models.instance_faults)
        self.assertEqual('conductor', fault.host)
        action, = self.rows(models.instance_actions)
        self.assertEqual(
            (made[0].uuid, 'create', 'Error', self.context.request_id),
            (action.instance_uuid, action.action, action.message,
             action.request_id))

    def test_nothing_to_bury_is_nothing(self):
        self.assertEqual(set(), self.bury([]))

    def test_burying_twice_is_burying_once(self):
        made = self.accept(2)
        uuids = {each.uuid for each in made}
        self.bury(made)

        self.assertEqual(
            uuids, self.bury(made, exception.NoValidHost(reason='Later.')))

        self.assertEqual(uuids, self.visible())
        for table in (models.instance_faults, models.instance_actions,
                      models.instance_extra):
            self.assertEqual(2, len(self.rows(table)))
        self.assertEqual('No valid host was found. There are none.',
                         self.rows(models.instance_faults)[0].message)

    def test_several_that_bury_at_once_bury_once(self):
        made = self.accept(5)
        uuids = {each.uuid for each in made}

        outcomes = racing.race(*[lambda: self.bury(made)] * 6)

        self.assertEqual([uuids] * 6, outcomes)
        self.assertEqual(5, len(self.rows(models.instance_faults)))
        self.assertEqual(5, len(self.rows(models.instance_actions)))

    def test_build_that_has_a_cell_is_left_alone(self):
        east = self.add_cell('east')
        made = self.accept(2)
        mine, other = (each.uuid for each in made)
        self.write(self.database, instance_mappings.decide, [mine], east.id,
                   samples.NOW)

        self.assertEqual({other}, self.bury(made))
        self.assertEqual(set(), self.bury(made[:1]))

        self.assertEqual('east', self.cell_of(mine))
        self.assertIsNotNone(self.request_of(mine))
        self.assertEqual({other}, self.visible())
        self.assertEqual('building', made[0].vm_state)

    def test_build_that_its_user_deleted_is_left_alone(self):
        made = self.accept(2)
        gone, kept = (each.uuid for each in made)
        self.delete(gone)

        self.assertEqual({kept}, self.bury(made))

        self.assertIsNone(self.cell_of(gone))
        self.assertEqual({kept}, self.visible())

    def test_one_that_is_deleted_meanwhile_leaves_nothing_visible(self):
        made = self.accept(2)
        gone, kept = (each.uuid for each in made)
        self.during('INSERT INTO instances', lambda: self.delete(gone))

        self.assertEqual({kept}, self.bury(made))

        self.assertEqual({kept}, self.visible())
        self.assertIsNone(self.request_of(gone))

    def test_one_that_another_conductor_gave_a_cell_is_not_in_two(self):
        east = self.add_cell('east')
        made = self.accept(2)
        taken, kept = (each.uuid for each in made)

        def take_up():
            with self.database.writer() as connection:
                instance_mappings.withdraw(
                    connection, [taken], self.mapping.id, samples.NOW)
                instance_mappings.decide(
                    connection, [taken], east.id, samples.NOW)

        self.during('INSERT INTO instances', take_up)

        self.assertEqual({kept}, self.bury(made))

        self.assertEqual({kept}, self.visible())
        self.assertEqual('east', self.cell_of(taken))
        self.assertIsNotNone(self.request_of(taken))
        # No trace keeps it from lying here if that fails too.
        self.assertEqual(1, len(self.rows(models.instances)))

    def test_request_that_another_conductor_leases_is_left_to_it(self):
        made = self.accept(2)
        uuids = [each.uuid for each in made]

        def lease(uuids, owner, now):
            self.write(self.database, build_requests.lease, uuids, owner,
                       now, now + 60)

        lease(uuids, 'first', 0.0)
        self.during('INSERT INTO instances',
                    lambda: lease(uuids[:1], 'second', 60.0))

        self.cell0.bury(self.context, made, REASON, owner='first')

        self.assertIsNotNone(self.request_of(uuids[0]))
        self.assertIsNone(self.request_of(uuids[1]))
        self.assertEqual({uuids[0]}, self.cell0.bury(
            self.context, made[:1], REASON, owner='second'))
        self.assertIsNone(self.request_of(uuids[0]))
        self.assertEqual(set(uuids), self.visible())

    def test_deletions_that_race_with_the_burial_win(self):
        made = self.accept(10)
        deleted = [each.uuid for each in made[::2]]

        racing.race(
            lambda: self.bury(made),
            *[lambda uuid=uuid: self.delete(uuid) for uuid in deleted])

        self.assertEqual(
            {each.uuid for each in made} - set(deleted), self.visible())

    def test_burial_that_was_broken_off_can_be_finished(self):
        for statement in ('INSERT INTO instances',
                          'INSERT INTO instance_faults',
                          'DELETE FROM build_requests'):
            made = self.accept(1)
            uuid = made[0].uuid
            self.during(statement, self.break_off)

            # SQLAlchemy 2.0 does not translate what a listener raises.
            self.assertRaises(
                (db_exc.DBError, RuntimeError), self.bury, made)

            self.assertIsNotNone(self.request_of(uuid))
            self.assertEqual({uuid}, self.bury(made))
            self.assertIsNone(self.request_of(uuid))
            self.assertIn(uuid, self.visible())
        self.assertEqual(3, len(self.rows(models.instance_faults)))

    def test_without_cell0_everything_stays_as_it_was(self):
        made = self.accept(1)
        self.write(self.database, lambda connection: connection.execute(
            sa.text('DELETE FROM cell_mappings')))

        self.assertRaises(
            exception.CellMappingNotFound, self.bury, made)

        self.assertIsNone(self.cell_of(made[0].uuid))
        self.assertIsNotNone(self.request_of(made[0].uuid))
        self.assertEqual(('building', 'h'),
                         (made[0].vm_state, made[0].host))
        self.assertEqual(set(), self.visible())

    def test_cell0_that_cannot_be_written_leaves_the_request(self):
        made = self.accept(1)
        self.write(self.grave, lambda connection: connection.execute(
            sa.text('ALTER TABLE instances RENAME TO away')))

        self.assertRaises(exception.DatabaseError, self.bury, made)
        self.assertIsNotNone(self.request_of(made[0].uuid))

        self.write(self.grave, lambda connection: connection.execute(
            sa.text('ALTER TABLE away RENAME TO instances')))
        self.assertEqual({made[0].uuid}, self.bury(made))

    def during(self, statement, function):
        """Call a function once, when a statement is about to be executed."""
        waiting = [function]

        def call(conn, cursor, text, *others):
            if waiting and text.startswith(statement):
                waiting.pop()()

        for database in self.database, self.grave:
            sa.event.listen(
                database.engine, 'before_cursor_execute', call)

    def break_off(self):
        raise RuntimeError('The database went away.')
