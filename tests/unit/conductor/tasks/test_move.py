# SPDX-License-Identifier: Apache-2.0
"""A conductor moves servers within their cell."""

import json

from amqp import exceptions as amqp_exc
import sqlalchemy as sa

from cellsched.claims import base as claims_base
from cellsched.conductor.tasks import move as move_task
from cellsched.conductor.tasks import move
from cellsched.db.api import build_requests
from cellsched.db.api import instance_groups
from cellsched.db.api import instance_mappings
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched import exception
from cellsched import migrations
from cellsched import objects
from tests.unit.conductor import base
from tests.unit.db import samples


class Notifier:
    """Keeps what it is to tell."""

    def __init__(self):
        self.told = []

    def failed(self, context, method, instance, spec, reason, state='error'):
        self.told.append((method, instance.uuid, type(reason), state))

    def rebuild_scheduled(self, context, instance):
        self.told.append(('rebuild_scheduled', instance.uuid))


class MoveTestCase(base.TestCase):
    """A server of cell1 is on the host a1."""

    def setUp(self):
        super().setUp()
        [self.uuid] = self.accept()
        self.cell = self.cells['cell1']
        with self.database.writer() as connection:
            instance_mappings.decide(
                connection, [self.uuid], self.cell.id, samples.NOW)
        with self.writer() as connection:
            instances.create(connection, [samples.instance(
                self.uuid, vm_state='active', task_state=None, host='a1',
                node='node-a1', flavor=samples.flavor(root_gb=0))],
                samples.NOW)
        self.claim(self.uuid, 'a1')

    def writer(self):
        return self.targets.database(self.cell).writer()

    def claim(self, consumer, host):
        self.claims.claim([claims_base.Claim(
            consumer, self.providers[host], base.SIZE)])

    def ask(self, kind=server_moves.MIGRATION):
        """Have a move of the server accepted."""
        move = server_moves.Migration(
            samples.uuids(1)[0], self.uuid, kind, source_compute='a1',
            source_node='node-a1')
        with self.writer() as connection:
            self.assertTrue(instances.transit(
                connection, self.uuid, move.kind.ask, samples.NOW))
            server_moves.create(connection, move, base.USER, samples.NOW)
        return move

    def abort(self, move):
        with self.writer() as connection:
            server_moves.advance(
                connection, move.uuid, server_moves.LIVE, 'error',
                samples.NOW)
            instances.transit(
                connection, self.uuid, 'revert_migrate', samples.NOW)

    def now(self, move):
        with self.writer() as connection:
            return server_moves.get(connection, move.uuid)


class TestMove(MoveTestCase):

    def setUp(self):
        super().setUp()
        self.notifier = Notifier()
        self.chosen = ['a2']

    def answer(self, spec_obj, instance_uuids, **options):
        if not self.chosen:
            raise exception.NoValidHost(reason='Full.')
        selection = self.selection(self.chosen[0])
        cell = 'cell1' if self.chosen[0] in base.CELLS['cell1'] else 'cell2'
        selection.cell_uuid = self.cells[cell].uuid
        if self.chosen[0] != 'a1':
            self.claim(migrations.consumer(self.uuid), self.chosen[0])
        return [[selection]]

    def move(self, move, **options):
        move_task.Move(
            self.database, self.targets, self.scheduler, self.compute,
            self.claims, 'conductor', self.notifier,
        ).run(base.USER, self.uuid, move.uuid, **options)

    def moved(self, kind=server_moves.MIGRATION, **options):
        move = self.ask(kind)
        self.move(move, **options)
        return self.now(move)

    @property
    def messages(self):
        return [each for client in self.compute.clients.values()
                for each in client.sent]

    @property
    def spec(self):
        [sent] = self.scheduler.sent
        return sent.arguments['spec_obj']

    def assertIsBack(self, move, state='active'):
        row = self.row(self.uuid)
        self.assertEqual((state, None, 'a1', 'error'), (
            row.vm_state, row.task_state, row.host, self.now(move).status))
        self.assertEqual(
            [self.uuid], self.claims.consumers())
        self.assertEqual('a1', self.holds(self.uuid))
        self.assertEqual([], self.messages)

    def test_scheduler_is_called_for_another_host_of_the_cell(self):
        move = self.moved()

        wanted = self.spec.requested_destination
        self.assertEqual(
            (self.cell.uuid, False, None, ['a1'], 1),
            (wanted.cell.uuid, wanted.allow_cross_cell_move,
             wanted.get('host'), self.spec.ignore_hosts,
             self.spec.num_instances))
        self.assertEqual(('migrating', 'a2', 'node-a2'), (
            move.status, move.dest_compute, move.dest_node))
        [sent] = self.messages
        self.assertEqual(
            ('migrate_in', 'a2', move.uuid, 'node-a2', 'zone-a2'),
            (sent.method, sent.host, sent.arguments['migration_uuid'],
             sent.arguments['node'],
             sent.arguments['instance'].availability_zone))
        self.assertEqual('small', sent.arguments['instance'].flavor.name)

    def transferable(self, *hosts, root_gb=10):
        """Have hosts transfer disks, and the server have a root disk."""
        with self.writer() as connection:
            for host in hosts:
                compute_nodes.save(
                    connection, samples.uuids(1)[0], host, f'node-{host}',
                    {**samples.NODE,
                     'traits': json.dumps([migrations.TRANSFER_TRAIT])},
                    samples.NOW)
            connection.execute(sa.update(models.instance_extra).values(
                flavor=json.dumps(samples.flavor(
                    root_gb=root_gb).obj_to_primitive())))

    def required(self):
        params = self.spec.get('request_level_params') or {}
        return params.get('nova_object.data', {}).get('root_required', [])

    def test_server_with_a_local_disk_is_transferred(self):
        self.transferable('a1', 'a2')
        move = self.moved()

        [sent] = self.messages
        self.assertEqual(
            ('prepare_migration', 'a1', move.uuid, 'node-a2', 'zone-a2'),
            (sent.method, sent.host, sent.arguments['migration_uuid'],
             sent.arguments['node'],
             sent.arguments['instance'].availability_zone))
        self.assertEqual([migrations.TRANSFER_TRAIT], self.required())

    def test_diskless_server_is_transferred_between_able_hosts(self):
        self.transferable('a1', 'a2', root_gb=0)
        self.moved()

        self.assertEqual([], self.required())
        self.assertEqual(['prepare_migration'], [
            sent.method for sent in self.messages])

    def test_diskless_server_is_rebuilt_if_a_host_cannot_transfer(self):
        self.transferable('a1', root_gb=0)
        self.moved()

        self.assertEqual([], self.required())
        self.assertEqual(['migrate_in'], [
            sent.method for sent in self.messages])

    def test_server_stays_if_a_host_cannot_transfer_its_disk(self):
        for hosts, which in ((), 'its host'), (('a1',), 'its new host'):
            self.transferable(*hosts)
            move = self.moved()

            self.assertIsBack(move)
            with self.writer() as connection:
                fault = instance_history.latest(connection, [self.uuid])
            self.assertIn(f'lose its root disk of 10 GB: {which} cannot',
                          str(fault))

    def test_server_is_rebuilt_on_request(self):
        self.transferable('a1', 'a2')
        self.moved(rebuild=True)

        self.assertEqual([], self.required())
        [sent] = self.messages
        self.assertEqual(('migrate_in', 'a2'), (sent.method, sent.host))
        self.assertNotIn('disks', sent.arguments)

    def test_old_agents_do_not_transfer(self):
        self.transferable('a1', 'a2')
        client = self.compute.get(self.targets.target_cell(
            base.USER, self.cell).cell.transport)
        client._version_cap = '6.1'
        move = self.moved()

        self.assertIsBack(move)

    def test_requested_host_is_the_destination(self):
        self.moved(host='a3')

        self.assertEqual('a3', self.spec.requested_destination.host)

    def test_repeated_message_does_not_repeat_the_migration(self):
        move = self.ask()
        for _ in range(3):
            self.move(move)

        self.assertEqual((1, 1), (
            len(self.messages), len(self.scheduler.sent)))

    def test_server_without_another_host_stays(self):
        self.chosen = []

        self.assertIsBack(self.moved())
        self.assertEqual([('migrate_server', self.uuid,
                           exception.NoValidHost, 'active')],
                         self.notifier.told)
        with self.writer() as connection:
            fault = connection.execute(
                models.instance_faults.select()).one()
        self.assertEqual((self.uuid, 'conductor'),
                         (fault.instance_uuid, fault.host))

    def test_host_of_another_cell_is_not_taken(self):
        self.chosen = ['b1']

        self.assertIsBack(self.moved())

    def test_failed_evacuation_restores_the_state(self):
        self.chosen = []

        self.assertIsBack(self.moved(server_moves.EVACUATION), 'active')
        self.assertEqual('rebuild_server', self.notifier.told[0][0])

    def test_failed_cast_to_an_agent_aborts_the_migration(self):
        with self.database.reader() as connection:
            mapping = instance_mappings.get_many(
                connection, [self.uuid])[self.uuid].cell_mapping
        cell_context = self.targets.target_cell(base.USER, mapping)
        client = self.compute.get(cell_context.cell.transport)
        client.failure = amqp_exc.AccessRefused('wrong password')

        self.assertIsBack(self.moved())

        self.assertIn('AccessRefused', self.logs.output)
        self.assertNotIn('Traceback', self.logs.output)

    def test_concurrently_aborted_migration_holds_no_claim(self):
        move = self.ask()

        def answer(**arguments):
            self.abort(move)
            return self.answer(**arguments)

        self.scheduler.answer = answer
        self.move(move)

        self.assertIsBack(move)

    def test_newer_migration_of_the_server_continues(self):
        move = self.ask()

        def answer(**arguments):
            self.abort(move)
            self.ask()
            return self.answer(**arguments)

        self.scheduler.answer = answer
        self.move(move)

        self.assertEqual(([], 'error', 'resize_prep'), (
            self.messages, self.now(move).status,
            self.row(self.uuid).task_state))

    def test_deletion_meanwhile_wins(self):
        move = self.ask()

        def answer(**arguments):
            with self.writer() as connection:
                instances.delete(connection, self.uuid, samples.NOW)
            return self.answer(**arguments)

        self.scheduler.answer = answer
        self.move(move)

        self.assertEqual(([], [], 'error'), (
            self.claims.consumers(), self.messages, self.now(move).status))

    def test_failed_migration_of_a_deleting_server_has_no_fault(self):
        move = self.ask()

        def answer(**arguments):
            with self.writer() as connection:
                instances.transit(
                    connection, self.uuid, 'mark_deleting', samples.NOW)
            raise exception.NoValidHost(reason='Full.')

        self.scheduler.answer = answer
        self.move(move)

        self.assertEqual(('error', []), (
            self.now(move).status, self.notifier.told))
        with self.writer() as connection:
            self.assertEqual(
                {}, instance_history.latest(connection, [self.uuid]))

    def test_rebuild_of_the_same_image_calls_no_scheduler(self):
        move = self.moved(server_moves.REBUILD)

        self.assertEqual(([], 'a1', 'node-a1'), (
            self.scheduler.sent, move.dest_compute, move.dest_node))
        [sent] = self.messages
        self.assertEqual(('rebuild_instance', 'a1'), (sent.method, sent.host))
        self.assertEqual([('rebuild_scheduled', self.uuid)],
                         self.notifier.told)

    def test_rebuild_of_another_image_calls_the_scheduler(self):
        self.chosen = ['a1']
        self.moved(server_moves.REBUILD, image_ref='other')

        wanted = self.spec.requested_destination
        self.assertEqual(
            ('a1', 'node-a1', 'other', None),
            (wanted.host, wanted.node, self.spec.image.id,
             self.spec.ignore_hosts))
        self.assertEqual('other', self.row(self.uuid).image_ref)
        with self.database.reader() as connection:
            spec = build_requests.get_spec(connection, self.uuid)
        data = spec['nova_object.data']
        self.assertEqual(
            'other', data['image']['nova_object.data']['id'])
        self.assertIsNone(data.get('requested_destination'))


class TestRead(base.TestCase):

    def test_group_has_its_current_members(self):
        [uuid], [group_uuid] = self.accept(), samples.uuids(1)
        with self.database.writer() as connection:
            instance_groups.create(connection, objects.InstanceGroup(
                uuid=group_uuid, name='group', project_id='project',
                user_id='user', policy='anti-affinity', rules={}), samples.NOW)
            group = instance_groups.get(connection, group_uuid)
            spec = objects.RequestSpec.obj_from_primitive(
                build_requests.get_spec(connection, uuid))
            spec.instance_group = group
            samples.spoil(connection, uuid, 'request_specs',
                          spec=json.dumps(spec.obj_to_primitive()))
            instance_groups.add_members(
                connection, group.id, [uuid], samples.NOW)

        asked = move.read(self.database, samples.instance(
            uuid, image_ref=None))

        self.assertEqual((group_uuid, [uuid]), (
            asked.instance_group.uuid, asked.instance_group.members))


class TestMoveSteps(MoveTestCase):

    def setUp(self):
        super().setUp()
        self.steps = []
        self.scheduler.answer = self.refuse

    def refuse(self, **arguments):
        raise exception.NoValidHost(reason='Full.')

    def run_move(self, move, uuid=None):
        move_task.Move(
            self.database, self.targets, self.scheduler, self.compute,
            self.claims, 'conductor', reached=self.steps.append,
        ).run(base.USER, uuid or self.uuid, move.uuid)

    def test_server_without_a_cell_is_skipped(self):
        [accepted], [unknown] = self.accept(), samples.uuids(1)
        for uuid in (accepted, unknown):
            self.run_move(server_moves.Migration(
                samples.uuids(1)[0], uuid, server_moves.MIGRATION), uuid)

        self.assertEqual([], self.scheduler.sent)
        self.assertEqual([], self.steps)
        self.assertNotIn('Traceback', self.logs.output)

    def test_end_is_reported_after_its_write(self):
        move = self.ask()

        self.run_move(move)

        self.assertEqual('MoveGiveUp', self.steps[-1])
        self.assertEqual(server_moves.ERROR, self.now(move).status)

    def test_move_of_a_deleted_server_is_not_begun(self):
        """The deletion has ended the move."""
        move = self.ask()
        with self.writer() as connection:
            instances.delete(connection, self.uuid, samples.NOW)
        self.assertEqual(server_moves.ERROR, self.now(move).status)

        self.run_move(move)

        self.assertEqual(server_moves.ERROR, self.now(move).status)
        self.assertEqual('', self.logs.output)

    def test_unexpected_error_aborts_the_migration(self):
        def fail(**arguments):
            raise KeyError('as told')

        self.scheduler.answer = fail
        move = self.ask()

        self.run_move(move)

        self.assertEqual(server_moves.ERROR, self.now(move).status)
        self.assertIsNone(self.row(self.uuid).task_state)
        self.assertIn('as told', self.logs.output)

    def test_abort_of_a_migration_without_a_waiting_server_is_logged(self):
        move = self.ask()

        def meanwhile(**arguments):
            with self.writer() as connection:
                samples.put(connection, self.uuid,
                            {'task_state': 'shelving'})
            selection = self.selection('a2')
            selection.cell_uuid = self.cell.uuid
            return [[selection]]

        self.scheduler.answer = meanwhile
        self.run_move(move)

        self.assertEqual(server_moves.ERROR, self.now(move).status)
        reason = exception.InstanceNotFound(uuid=self.uuid)
        self.assertIn(f': {reason}', self.logs.output)
