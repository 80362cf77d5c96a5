# SPDX-License-Identifier: Apache-2.0
"""What may lie about on a host."""

import datetime

import sqlalchemy as sa

from cellsched import context
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import on_host
from cellsched.db.cell import services
from cellsched import exception
from tests.unit.db.cell import base
from tests.unit.db import samples


class TestOnHost(base.TestCase):

    def make(self, **values):
        [uuid] = samples.uuids(1)
        with self.database.writer() as connection:
            instances.create(
                connection, [samples.instance(uuid)], samples.NOW)
            samples.put(connection, uuid, {'host': 'host1', **values},
                        samples.NOW)
        return uuid

    def read(self, query, *more):
        with self.database.reader() as connection:
            return query(connection, 'host1', *more)

    def make_all(self):
        return {name: self.make(**values) for name, values in {
            'spawning': {'task_state': 'spawning'},
            'elsewhere': {'task_state': 'spawning', 'host': 'host2'},
            'unshelving': {'task_state': 'spawning',
                           'vm_state': 'shelved_offloaded'},
            'active': {'task_state': None, 'vm_state': 'active'},
            'deleting': {'task_state': 'deleting', 'vm_state': 'active'},
            'gone': {'vm_state': 'deleted', 'task_state': None, 'deleted': 1},
            'removed': {'task_state': 'deleting', 'deleted': 2},
            'waiting': {'task_state': None, 'host': None},
        }.items()}

    def test_builds_and_deletions_of_the_host_are_found(self):
        made = self.make_all()

        self.assertEqual(
            [made['spawning']], self.read(on_host.list_building))
        self.assertEqual(
            [made['deleting']], self.read(on_host.list_deleting))

    def fates(self, uuids, host_id=None, spawned_at=samples.NOW,
              arrived=None):
        return {record.uuid: record.fate.name for record in self.read(
            on_host.explain, host_id, dict.fromkeys(uuids, spawned_at),
            dict.fromkeys(uuids, arrived))}

    def test_guest_is_lost_only_after_deletion_on_this_host(self):
        made = self.make_all()
        [unknown] = samples.uuids(1)

        self.assertEqual({
            made['gone']: 'LOST', made['removed']: 'LOST',
            made['elsewhere']: 'ELSEWHERE', made['waiting']: 'UNPLACED',
            unknown: 'UNKNOWN', **{made[name]: 'HERE' for name in (
                'spawning', 'unshelving', 'active', 'deleting')},
        }, self.fates([*made.values(), unknown]))

    def move(self, uuid, age_s=1, took_s=1, host_id=None, **values):
        began = samples.NOW + datetime.timedelta(seconds=age_s)
        with self.database.writer() as connection:
            connection.execute(sa.insert(models.migrations).values(**{
                'uuid': samples.uuids(1)[0], 'instance_uuid': uuid,
                'created_at': began, 'status': 'finished', 'deleted': 0,
                'updated_at': began + datetime.timedelta(seconds=took_s),
                'migration_type': 'evacuation', 'source_compute': 'host1',
                'source_host_id': host_id, 'dest_compute': 'host2',
                **values}))

    def check(self, fate, of=None, **values):
        uuid = self.make(host='host2', vm_state='active', task_state=None)
        self.move(uuid, **values)
        self.assertEqual({uuid: fate}, self.fates([uuid], of))

    def test_guest_is_lost_by_a_newer_finished_move(self):
        for kind in 'evacuation', 'migration', 'shelve':
            for status in 'finished', 'done':
                self.check('LOST', migration_type=kind, status=status)
        self.check('ELSEWHERE', age_s=-1)
        self.check('ELSEWHERE', status='error')
        self.check('ELSEWHERE', migration_type='rebuild')
        self.check('HERE', status='post-migrating')

    def test_move_is_bound_to_the_uuid_of_the_host(self):
        self.check('LOST', 'one', host_id='one', source_compute='former')
        self.check('ELSEWHERE', 'one', host_id='two')
        # An older release has recorded the name alone.
        self.check('LOST', 'one')

    def test_failed_build_is_bound_to_the_uuid_of_the_host(self):
        for kept, former, host_id, fate in (
                ('one', 'host1', 'one', 'LOST'),
                # The host was renamed, or another one has its name.
                ('one', 'former', 'one', 'LOST'),
                ('two', 'host1', 'one', 'UNPLACED'),
                ('one', 'former', None, 'UNPLACED'),
                # The host kept no uuid.
                (None, 'host1', 'one', 'LOST'),
                (None, 'former', 'one', 'UNPLACED')):
            uuid = self.make(task_state=None, host=None)
            with self.database.writer() as connection:
                services.report(
                    connection, samples.uuids(1)[0], former,
                    services.COMPUTE, 'compute', samples.NOW, host_id=kept)
                instance_history.create_all(
                    connection, {uuid: context.admin()}, 'create',
                    samples.NOW)
                instance_history.give_up(
                    connection, uuid, former, samples.NOW
                    + datetime.timedelta(seconds=1),
                    exception.BuildFailed(uuid=uuid, reason='x'))
                # What the host is named now is no matter.
                services.rename(connection, former, uuid, samples.NOW)

            # A slow host can spawn a guest after the end of its build.
            for late_s in 0, 3600:
                self.assertEqual({uuid: fate}, self.fates(
                    [uuid], host_id, samples.NOW + datetime.timedelta(
                        seconds=late_s), arrived=False))
            # A restored database can give up a finished build.
            for arrived in None, True:
                self.assertEqual({uuid: 'UNPLACED'}, self.fates(
                    [uuid], host_id, arrived=arrived))

    def report(self, host, age_s, missing=()):
        """Let a host report its guests, so long after the spawn."""
        with self.database.writer() as connection:
            services.report(connection, samples.uuids(1)[0], host,
                            services.COMPUTE, 'compute', samples.NOW)
            services.set_guests(connection, host, on_host.dump(
                [], missing, samples.NOW + datetime.timedelta(seconds=age_s)))

    def test_guest_of_an_aborted_move_is_lost_if_the_source_reported(self):
        aborted = {'status': 'error', 'source_compute': 'host2',
                   'dest_compute': 'host1'}
        during = {'age_s': -1, 'took_s': 2, **aborted}
        self.check('ELSEWHERE', **during)
        self.report('host2', 0)
        self.check('ELSEWHERE', **during)
        self.report('host2', 2)
        self.check('LOST', **during)
        # Another move has spawned it.
        self.check('ELSEWHERE', age_s=-2, took_s=1, **aborted)
        self.check('ELSEWHERE', age_s=1, **aborted)

    def test_arrived_guest_of_an_aborted_move_is_not_lost(self):
        uuid = self.make(host='host2', vm_state='active', task_state=None)
        self.move(uuid, age_s=-1, took_s=2, status='error',
                  source_compute='host2', dest_compute='host1')
        self.report('host2', 2)
        for arrived, fate in ((True, 'ELSEWHERE'), (False, 'LOST')):
            [found] = self.read(on_host.explain, None, {uuid: samples.NOW},
                                {uuid: arrived})
            self.assertEqual(fate, found.fate.name)

    def test_late_guest_of_an_aborted_move_is_lost(self):
        for source in 'host1', 'host2', None:
            uuid = self.make(host='host3', vm_state='active', task_state=None)
            self.move(uuid, age_s=-5, took_s=2, status='error',
                      source_compute=source, dest_compute='host1')
            self.report('host2', 2)
            for age_s, arrived, fate in (
                    (0, False, 'LOST'), (0, None, 'ELSEWHERE'),
                    (0, True, 'ELSEWHERE'), (-6, False, 'ELSEWHERE')):
                self.assertEqual({uuid: fate}, self.fates(
                    [uuid], None, samples.NOW + datetime.timedelta(
                        seconds=age_s), arrived))

    def test_guest_of_an_aborted_move_is_kept_without_a_source_guest(self):
        uuid = self.make(host='host2', vm_state='active', task_state=None)
        self.move(uuid, age_s=-1, took_s=2, status='error',
                  source_compute='host2', dest_compute='host1')
        self.report('host2', 2, [uuid])

        self.assertEqual({uuid: 'ELSEWHERE'}, self.fates([uuid]))

    def test_guest_of_an_aborted_move_stays_if_the_server_has_changed(self):
        uuid = self.make(host='host2', vm_state='active', task_state=None)
        table = models.instances
        with self.database.writer() as connection:
            connection.execute(sa.update(table).where(
                table.c.uuid == uuid).values(
                    updated_at=samples.NOW + datetime.timedelta(seconds=3)))
        self.move(uuid, age_s=-1, took_s=2, status='error',
                  source_compute='host2', dest_compute='host1')
        self.report('host2', 2)

        self.assertEqual({uuid: 'ELSEWHERE'}, self.fates([uuid]))

    def test_guest_of_unknown_age_is_lost_by_a_deletion_alone(self):
        uuid = self.make(host='host2', vm_state='active', task_state=None)
        self.move(uuid)

        self.assertEqual({uuid: 'ELSEWHERE'},
                         self.fates([uuid], spawned_at=None))

    def test_reported_guests_are_read_as_written(self):
        records = [on_host.GuestRecord('a', on_host.Fate.ELSEWHERE, 'host2'),
                   on_host.GuestRecord('b', on_host.Fate.UNKNOWN)]
        misplaced = {'a': {'CUSTOM_PCPU_1': 1}}

        self.assertEqual(
            (samples.NOW, records, ['c'], misplaced), on_host.load(
                on_host.dump(records, {'c'}, samples.NOW, misplaced)))
        for text in None, '', '[]', 'x', '{"missing": 1}', (
                '{"unexplained": [["a", "b", "c"]]}'), *(
                f'{{"misplaced": {value}}}' for value in (
                    '1', '["a"]', '{"a": 1}', '{"a": {"b": "c"}}')):
            self.assertEqual((None, [], [], {}), on_host.load(text), text)

    def test_server_is_read_with_its_flavor(self):
        for deleted in 0, 1:
            uuid = self.make(deleted=deleted)
            with self.database.reader() as connection:
                found = on_host.get(connection, uuid)
            self.assertEqual((uuid, 'host1', 'small', 'project'), (
                found.uuid, found.host, found.flavor.name, found.project_id))

    def test_unknown_server_is_none(self):
        with self.database.reader() as connection:
            self.assertIsNone(on_host.get(connection, samples.uuids(1)[0]))
