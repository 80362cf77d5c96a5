# SPDX-License-Identifier: Apache-2.0
"""What is written of a build that is buried, or cannot be."""

from concurrent import futures

from oslo_db import exception as db_exc
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
from tests.unit.cells import test_cell0
from tests.unit.db import samples


class RecordCase(test_cell0.base.TestCase):

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

    def bury(self, *made, reason=test_cell0.REASON, owner='me'):
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

    def test_record_has_what_the_server_brought_along(self):
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

    def test_change_that_came_before_is_in_the_record(self):
        made = self.accept()
        self.revise(made.uuid, 'new', 'b')

        self.bury(made)

        self.assertEqual(('new', ['b'], 1), self.lying(made.uuid))

    def test_change_while_it_is_written_is_corrected(self):
        made = self.accept()
        uuid = made.uuid
        self.during(
            'INSERT INTO instance_faults',
            lambda: self.revise(uuid, 'new', 'b'))

        self.assertEqual({uuid}, self.bury(made))

        self.assertEqual(('new', ['b'], 1), self.lying(uuid))
        self.assertIsNone(self.request_of(uuid))

    def test_no_request_goes_if_one_cannot_be_corrected(self):
        """What is tried again alone could be built alone."""
        changed, other = self.accept(), self.accept()
        self.during('INSERT INTO instance_faults',
                    lambda: self.revise(changed.uuid, 'new'))
        self.during('UPDATE instances SET', self.break_off)

        self.assertRaises((db_exc.DBError, RuntimeError), self.bury,
                          changed, other)

        for made in changed, other:
            self.assertIsNotNone(self.request_of(made.uuid))
        self.assertEqual({changed.uuid, other.uuid},
                         self.bury(changed, other))
        self.assertEqual('new', self.lying(changed.uuid)[0])

    def break_off(self):
        raise RuntimeError('The database went away.')

    def test_nobody_takes_it_up_while_it_is_corrected(self):
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

    def test_nobody_buries_it_anew_while_it_is_taken_back(self):
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

    def test_record_that_another_conductor_wrote_stays(self):
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

    def test_nothing_is_decided_for_what_another_leases(self):
        made = self.accept('other')

        self.assertEqual(set(), self.bury(made))

        self.assertIsNone(self.read(self.grave, instances.get, made.uuid))
        self.assertIsNotNone(self.request_of(made.uuid))

    def test_removed_is_what_is_not_deleted(self):
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

    def test_request_says_why_it_failed_and_why_it_is_there(self):
        made = self.accept()
        self.write(self.grave, lambda connection: connection.execute(
            sa.text('ALTER TABLE instances RENAME TO away')))

        self.assertRaises(exception.DatabaseError, self.bury, made)

        self.assertEqual(
            'No valid host was found. There are none. It waits for cell0, '
            'which cannot be written now.',
            self.request_of(made.uuid).failure)

    def test_cell0_that_is_not_mapped_is_named(self):
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
