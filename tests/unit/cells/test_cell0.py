# SPDX-License-Identifier: Apache-2.0
"""The cell of what could not be built."""

from concurrent import futures

import sqlalchemy as sa

from cellsched.cells import cell0
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instance_children
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched import exception
from cellsched import objects
from tests.unit.cells import base
from tests.unit.db import recording
from tests.unit.db import samples
from tests.unit.notify import recorder
from tests.unit.notify import wire
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

    def test_fault_and_action_have_user_and_request(self):
        made = self.accept(1)

        self.bury(made)

        fault, = self.rows(models.instance_faults)
        self.assertEqual('conductor', fault.host)
        action, = self.rows(models.instance_actions)
        self.assertEqual(
            (made[0].uuid, 'create', 'Error', self.context.request_id),
            (action.instance_uuid, action.action, action.message,
             action.request_id))

    def test_empty_burial_buries_no_server(self):
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

    def test_concurrent_burials_of_a_server_leave_a_single_record(self):
        made = self.accept(5)
        uuids = {each.uuid for each in made}

        outcomes = racing.race(*[lambda: self.bury(made)] * 6)

        self.assertEqual([uuids] * 6, outcomes)
        self.assertEqual(5, len(self.rows(models.instance_faults)))
        self.assertEqual(5, len(self.rows(models.instance_actions)))

    def test_build_with_a_cell_is_not_buried(self):
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

    def test_deleted_build_is_not_buried(self):
        made = self.accept(2)
        gone, kept = (each.uuid for each in made)
        self.delete(gone)

        self.assertEqual({kept}, self.bury(made))

        self.assertIsNone(self.cell_of(gone))
        self.assertEqual({kept}, self.visible())

    def test_build_deleted_during_its_burial_is_invisible(self):
        made = self.accept(2)
        gone, kept = (each.uuid for each in made)
        self.during('INSERT INTO instances', lambda: self.delete(gone))

        self.assertEqual({kept}, self.bury(made))

        self.assertEqual({kept}, self.visible())
        self.assertIsNone(self.request_of(gone))

    def test_build_moved_to_a_cell_during_its_burial_stays_in_the_cell(self):
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

    def test_request_leased_by_another_conductor_stays(self):
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

    def test_known_requests_are_read_again_only_after_a_change(self):
        made = self.accept(2, display_name='first')
        uuids = [each.uuid for each in made]
        known = self.write(
            self.database, build_requests.lease, uuids, 'me', 0.0, 60.0)
        self.write(self.database, build_requests.revise, uuids[1],
                   lambda request: setattr(
                       request.instance, 'display_name', 'second'))

        with recording.recorded(self.database) as statements:
            self.cell0.bury(self.context, made, REASON, 'me', known=known)

        read = [str(parameters) for text, parameters in statements
                if 'request_specs' in text]
        self.assertEqual([False, True], [uuid in read[0] for uuid in uuids])
        self.assertEqual(
            {uuids[0]: 'first', uuids[1]: 'second'},
            {each.uuid: each.display_name
             for each in self.rows(models.instances)})

    def test_deletions_concurrent_with_the_burial_win(self):
        made = self.accept(10)
        deleted = [each.uuid for each in made[::2]]

        racing.race(
            lambda: self.bury(made),
            *[lambda uuid=uuid: self.delete(uuid) for uuid in deleted])

        self.assertEqual(
            {each.uuid for each in made} - set(deleted), self.visible())

    def test_interrupted_burial_can_be_finished(self):
        for statement in ('INSERT INTO instances',
                          'INSERT INTO instance_faults',
                          'DELETE FROM build_requests'):
            made = self.accept(1)
            uuid = made[0].uuid
            self.during(statement, self.break_off)

            # SQLAlchemy 2.0 does not translate what a listener raises.
            self.assertRaises(
                exception.DatabaseError, self.bury, made)

            self.assertIsNotNone(self.request_of(uuid))
            self.assertEqual({uuid}, self.bury(made))
            self.assertIsNone(self.request_of(uuid))
            self.assertIn(uuid, self.visible())
        self.assertEqual(3, len(self.rows(models.instance_faults)))

    def test_burial_without_cell0_changes_no_row(self):
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

    def test_failed_write_to_cell0_keeps_the_request(self):
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


class RecordCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.grave = self.targets.database(self.add_cell0())
        self.cell0 = cell0.Cell0(self.database, self.cells, self.targets,
                                 self.clock, 'conductor')

    def accept(self, owner='me'):
        """Accept and lease a build with belongings."""
        [made] = samples.accept(self.database, samples.uuids(1))
        uuid = made.uuid

        def add(request):
            request.tags = objects.TagList.made(uuid, ['a'])
            request.block_device_mappings = objects.BlockDeviceMappingList(
                objects=[objects.BlockDeviceMapping(
                    uuid=samples.uuids(1)[0], instance_uuid=uuid,
                    volume_id='v')])

        self.write(self.database, build_requests.revise, uuid, add)
        self.write(self.database, build_requests.lease, [uuid], owner, 0, 60)
        return made

    def bury(self, *made, reason=REASON, owner='me'):
        return self.cell0.bury(self.context, made, reason, owner)

    def revise(self, uuid, name, *names):
        def change(request):
            request.instance.display_name = name
            request.tags = objects.TagList.made(uuid, names)

        self.write(self.database, build_requests.revise, uuid, change)

    def lying(self, uuid):
        """Return the name, tags and number of faults of a record."""
        instance = self.read(self.grave, instances.get, uuid)
        return (instance.display_name,
                self.read(self.grave, instance_children.get_tags,
                          [uuid]).get(uuid, []),
                self.count(models.instance_faults, uuid))

    def count(self, table, uuid):
        return self.read(self.grave, lambda connection: connection.scalar(
            sa.select(sa.func.count()).select_from(table)
            .where(table.c.instance_uuid == uuid)))

    def request_of(self, uuid):
        return self.read(self.database, build_requests.get, uuid)

    def during(self, statement, *functions):
        """Call functions, one at each time a statement is executed."""
        waiting = list(functions)

        def call(conn, cursor, text, *others):
            if waiting and text.startswith(statement):
                waiting.pop(0)()

        for database in self.database, self.grave:
            sa.event.listen(database.engine, 'after_cursor_execute', call)


class TestRecord(RecordCase):

    def test_record_has_the_data_of_the_request(self):
        made = self.accept()

        self.assertEqual({made.uuid}, self.bury(made))

        self.assertEqual(('server', ['a'], 1), self.lying(made.uuid))
        [device] = self.read(
            self.grave, instance_children.get_block_devices,
            [made.uuid])[made.uuid]
        self.assertEqual('v', device.volume_id)
        events = models.instance_actions_events
        [event] = self.read(self.grave, lambda connection: connection.execute(
            sa.select(events)).all())
        self.assertEqual(
            ('conductor_schedule_and_build_instances', 'Error', 'conductor',
             'No valid host was found. There are none.', None),
            (event.event, event.result, event.host, event.details,
             event.traceback))

    def test_change_before_the_burial_is_in_the_record(self):
        made = self.accept()
        self.revise(made.uuid, 'new', 'b')

        self.bury(made)

        self.assertEqual(('new', ['b'], 1), self.lying(made.uuid))

    def test_change_during_the_burial_is_in_the_record(self):
        made = self.accept()
        uuid = made.uuid
        self.during(
            'INSERT INTO instance_faults',
            lambda: self.revise(uuid, 'new', 'b'))

        self.assertEqual({uuid}, self.bury(made))

        self.assertEqual(('new', ['b'], 1), self.lying(uuid))
        self.assertIsNone(self.request_of(uuid))

    def test_failed_correction_of_a_record_keeps_all_requests(self):
        """What is tried again alone could be built alone."""
        changed, other = self.accept(), self.accept()
        self.during('INSERT INTO instance_faults',
                    lambda: self.revise(changed.uuid, 'new'))
        self.during('UPDATE instances SET', self.break_off)

        self.assertRaises(exception.DatabaseError, self.bury,
                          changed, other)

        for made in changed, other:
            self.assertIsNotNone(self.request_of(made.uuid))
        self.assertEqual({changed.uuid, other.uuid},
                         self.bury(changed, other))
        self.assertEqual('new', self.lying(changed.uuid)[0])

    def break_off(self):
        raise RuntimeError('The database went away.')

    def test_corrected_record_cannot_be_leased(self):
        made = self.accept()
        uuid = made.uuid

        def take_up():
            self.take_up(uuid)
            self.bury(made, owner='other')
            self.write(self.grave, instances.update, uuid,
                       {'display_name': 'newest'}, samples.NOW)

        self.during('INSERT INTO instance_faults',
                    lambda: self.revise(uuid, 'new'))
        self.bury_beside(made, take_up)

        self.assertEqual(('newest', [], 1), self.lying(uuid))

    def test_record_in_removal_cannot_be_buried(self):
        """Else it would be nowhere: its record would be removed."""
        made = self.accept()
        uuid, east = made.uuid, self.add_cell('east')

        def take_up():
            self.take_up(uuid)
            self.write(self.database, instance_mappings.withdraw, [uuid],
                       self.cells.cell0().id, samples.NOW)
            self.write(self.database, instance_mappings.decide, [uuid],
                       east.id, samples.NOW)

        def bury_anew():
            self.write(self.database, instance_mappings.withdraw, [uuid],
                       east.id, samples.NOW)
            self.bury(made, owner='other')

        self.during('INSERT INTO instance_faults', take_up)
        self.bury_beside(made, bury_anew)

        self.assertEqual(('server', ['a'], 1), self.lying(uuid))

    def bury_beside(self, made, function):
        """Bury it, and do something when it is corrected or taken back."""
        waiting = []

        def begin():
            waiting.append(threads.submit(function))
            # It waits for the transaction that this is done in.
            futures.wait(waiting, 0.2)

        self.before_writing(2, begin)
        with futures.ThreadPoolExecutor(1) as threads:
            self.bury(made)
            waiting[0].result(60)

    def test_record_of_another_conductor_stays(self):
        """Its user may have changed it since, and it lies here for good."""
        made = self.accept()
        uuid = made.uuid

        def take_up():
            self.take_up(uuid)
            self.bury(made, owner='other',
                      reason=exception.NoValidHost(reason='Later.'))
            self.write(self.grave, instances.update, uuid,
                       {'display_name': 'renamed'}, samples.NOW)

        self.before_writing(1, take_up)
        self.bury(made)

        self.assertEqual(('renamed', ['a'], 1), self.lying(uuid))
        self.assertIn('Later.', self.read(
            self.grave, instance_history.latest, [uuid])[uuid])

    def take_up(self, uuid):
        """Lease a request as one whose lease has run out."""
        self.write(self.database, build_requests.lease, [uuid], 'other',
                   60, 120)

    def before_writing(self, time, function):
        """Call a function before a transaction in cell0, the nth of all."""
        left = [time]

        def call(conn, cursor, text, *others):
            if text.startswith('BEGIN') and left:
                left[0] -= 1
                if not left[0]:
                    left.clear()
                    function()

        sa.event.listen(self.grave.engine, 'before_cursor_execute', call)

    def test_record_of_an_earlier_try_is_replaced(self):
        made = self.accept()
        self.write(self.grave, instances.create, [samples.instance(
            made.uuid, display_name='old', vm_state='error')], samples.NOW)
        self.write(self.grave, instance_history.record, made.uuid,
                   KeyError('old'), 'h', samples.NOW)

        self.bury(made)

        self.assertEqual(('server', ['a'], 1), self.lying(made.uuid))
        self.assertIn('There are none.', self.read(
            self.grave, instance_history.latest, [made.uuid])[made.uuid])

    def test_deleted_row_keeps_the_record_away(self):
        made = self.accept()
        self.write(self.grave, instances.create, [samples.instance(
            made.uuid, vm_state='error')], samples.NOW)
        self.write(self.grave, instances.delete, made.uuid, samples.NOW)

        self.bury(made)

        self.assertIsNone(self.read(self.grave, instances.get, made.uuid))

    def test_request_with_another_lease_is_not_buried(self):
        made = self.accept('other')

        self.assertEqual(set(), self.bury(made))

        self.assertIsNone(self.read(self.grave, instances.get, made.uuid))
        self.assertIsNotNone(self.request_of(made.uuid))

    def test_deleted_record_is_not_removed(self):
        made, deleted = self.accept(), self.accept()
        self.bury(made, deleted)
        self.write(self.grave, instances.delete, deleted.uuid, samples.NOW)

        for _ in range(2):
            self.cell0.remove(
                self.cell0.database(), [made.uuid, deleted.uuid])

        self.assertEqual([deleted.uuid], self.read(
            self.grave, lambda connection: connection.execute(
                sa.select(models.instances.c.uuid)).scalars().all()))


class TestCell0Away(RecordCase):

    def test_request_has_the_failures_of_the_build_and_of_cell0(self):
        made = self.accept()
        self.write(self.grave, lambda connection: connection.execute(
            sa.text('ALTER TABLE instances RENAME TO away')))

        self.assertRaises(exception.DatabaseError, self.bury, made)

        self.assertEqual(
            'No valid host was found. There are none. It waits for cell0, '
            'which cannot be written now.',
            self.request_of(made.uuid).failure)

    def test_request_has_the_failure_of_an_unmapped_cell0(self):
        made, others = self.accept(), self.accept('other')
        self.write(self.database, lambda connection: connection.execute(
            sa.text('DELETE FROM cell_mappings')))

        self.assertRaises(
            exception.CellMappingNotFound, self.bury, made, others,
            reason=KeyError('secret'))

        self.assertEqual(
            'Build of instance failed: an error that operators find in the '
            'logs. It waits for cell0, which is not mapped.',
            self.request_of(made.uuid).failure)
        self.assertIsNone(self.request_of(others.uuid).failure)


EVENT = 'compute_task.build_instances.error'


class TestNotifications(base.TestCase):

    def setUp(self):
        super().setUp()
        self.grave = self.targets.database(self.add_cell0())
        #: Is called when something is told.
        self.hear = lambda: None
        self.told = self.useFixture(recorder.NotificationRecorder(
            hear=lambda event: self.hear()))
        self.cell0 = cell0.Cell0(
            self.database, self.cells, self.targets, self.clock, 'conductor',
            self.told.notifier)

    def accept(self, count):
        return samples.accept(self.database, samples.uuids(count))

    def bury(self, made, specs=None):
        return self.cell0.bury(self.context, made, REASON, specs=specs)

    def requested(self, uuid):
        return self.read(self.database, build_requests.get, uuid) is not None

    def lies(self, uuid):
        return self.read(self.grave, instances.get, uuid) is not None

    def test_each_server_is_notified_with_its_request_and_reason(self):
        made = self.accept(2)
        one, other = (each.uuid for each in made)

        self.bury(made, {one: wire.request(instance_uuid=one)})

        [(event, first), (_, second)] = self.told.all()
        self.assertEqual(EVENT, event)
        self.assertEqual((one, one, other, None), (
            first['instance_uuid'],
            first['request_spec']['nova_object.data']['instance_uuid'],
            second['instance_uuid'], second['request_spec']))
        for each in first, second:
            self.assertEqual('error', each['state'])
            self.assertIn('There are none.', each['reason'][
                'nova_object.data']['exception_message'])

    def test_notification_follows_the_row_and_precedes_the_end(self):
        [made] = self.accept(1)
        seen = []
        self.hear = lambda: seen.append(
            (self.lies(made.uuid), self.requested(made.uuid)))

        self.bury([made])

        self.assertEqual([(True, True)], seen)
        self.assertFalse(self.requested(made.uuid))

    def test_failed_notification_is_repeated_by_the_retry(self):
        class Killed(BaseException):
            """Nobody catches it, as nobody outlives its process."""

        def die():
            raise Killed()

        made = self.accept(1)
        self.hear = die
        self.assertRaises(Killed, self.bury, made)
        self.hear = lambda: None

        self.assertEqual({made[0].uuid}, self.bury(made))

        self.assertEqual([EVENT] * 2, self.told.events())
        self.assertFalse(self.requested(made[0].uuid))

    def test_unburied_server_is_not_notified(self):
        made = self.accept(1)
        self.write(self.database, build_requests.delete, [made[0].uuid])
        self.write(self.database, instance_mappings.mark_deleted,
                   [made[0].uuid], samples.NOW)

        self.assertEqual(set(), self.bury(made))

        self.assertEqual([], self.told.events())

    def test_failed_notification_does_not_stop_the_burial(self):
        def fail():
            raise ValueError('no')

        made = self.accept(1)
        self.hear = fail

        self.assertEqual({made[0].uuid}, self.bury(made, {
            made[0].uuid: objects.RequestSpec()}))

        self.assertFalse(self.requested(made[0].uuid))
