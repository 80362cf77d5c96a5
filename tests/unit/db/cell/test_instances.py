# SPDX-License-Identifier: Apache-2.0
"""Queries for the servers of a cell."""


import types

import sqlalchemy as sa

from cellsched import context
from cellsched.db.cell import build_casts
from cellsched.db.cell import instance_children
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import states
from cellsched.db import statements
from cellsched import exception
from cellsched import objects
from tests.unit.db.cell import base
from tests.unit.db import samples
from tests.unit import racing

TABLES = (models.instances, models.instance_extra, models.instance_faults,
          models.instance_actions)


class InstanceCase(base.TestCase):

    def create(self, *uuids, images=None, **fields):
        return self.write(
            instances.create,
            [samples.instance(uuid, **fields) for uuid in uuids], samples.NOW,
            dict.fromkeys(uuids, images))

    def create_server(self, **fields):
        uuid, = self.create(*samples.uuids(1), **fields)
        return uuid

    def get(self, uuid):
        return self.read(instances.get, uuid)

    def update(self, uuid, values, **expected):
        return self.write(
            instances.update, uuid, values, samples.LATER, **expected)

    def count(self):
        return [self.read(lambda connection: connection.execute(
            sa.select(sa.func.count()).select_from(table)).scalar())
            for table in TABLES]


class TestCreate(InstanceCase):

    def test_server_is_stored_as_created(self):
        uuid = self.create_server(
            display_name='mine', image_ref='image', launch_index=2,
            power_state=0, host='h', node='n', availability_zone='az',
            reservation_id='r-1', instance_type_id=3, build_attempts=1,
            launched_at=samples.LATER)

        instance = self.get(uuid)

        for name, value in (
                ('uuid', uuid), ('display_name', 'mine'), ('vcpus', 1),
                ('project_id', 'project'), ('user_id', 'user'),
                ('image_ref', 'image'), ('launch_index', 2), ('host', 'h'),
                ('node', 'n'), ('availability_zone', 'az'),
                ('reservation_id', 'r-1'), ('instance_type_id', 3),
                ('vm_state', 'building'), ('task_state', 'scheduling'),
                ('power_state', 0), ('memory_mb', 512), ('root_gb', 10),
                ('ephemeral_gb', 0), ('build_attempts', 1),
                ('created_at', samples.NOW), ('terminated_at', None),
                ('launched_at', samples.LATER)):
            self.assertEqual(value, getattr(instance, name), name)

    def test_unset_fields_are_empty(self):
        uuid, = samples.uuids(1)
        self.write(instances.create, [objects.Instance(
            uuid=uuid, flavor=samples.flavor())], samples.LATER)

        instance = self.get(uuid)

        self.assertIsNone(instance.display_name)
        self.assertEqual(0, instance.build_attempts)
        self.assertEqual(samples.LATER, instance.created_at)

    def test_flavor_is_stored_with_the_server(self):
        self.create_server(flavor=samples.flavor(name='large'))

        row, = self.fetch(sa.select(models.instance_extra.c.flavor))

        self.assertIn('"name": "large"', row.flavor)

    def test_repeated_creation_changes_no_row(self):
        uuids = samples.uuids(2)
        self.assertEqual(uuids[:1], self.create(uuids[0]))
        self.write(samples.put, uuids[0], {'vm_state': 'active'})

        self.assertEqual(uuids[1:], self.create(*uuids))
        self.assertEqual([], self.create(*uuids))

        self.assertEqual('active', self.get(uuids[0]).vm_state)
        self.assertEqual([2, 2, 0, 0], self.count())

    def test_deleted_server_is_not_created_again(self):
        uuid = self.create_server()
        self.write(instances.delete, uuid, samples.LATER)

        self.assertEqual([], self.create(uuid))

        self.assertIsNone(self.get(uuid))

    def test_new_rows_are_returned_in_the_order_of_the_batch(self):
        uuids = sorted(samples.uuids(5), reverse=True)

        self.assertEqual(uuids, self.create(*uuids))
        self.assertEqual([], self.create())

    def test_server_is_created_by_a_single_caller_in_a_race(self):
        uuids = samples.uuids(10)

        told = racing.race(*[lambda: self.create(*uuids)] * 3,
                           *[lambda: self.create(*uuids[::-1])] * 3)

        self.assertEqual(10, sum(map(len, told)))
        self.assertEqual([10, 10, 0, 0], self.count())


class TestRead(InstanceCase):

    def test_unknown_server_is_none(self):
        self.assertIsNone(self.get(samples.uuids(1)[0]))

    def test_servers_of_a_host_are_counted_by_state(self):
        for count, fields in (
                (2, {'host': 'a', 'node': 'n', 'task_state': None}),
                (1, {'host': 'a', 'node': 'n', 'task_state': 'spawning'}),
                (1, {'host': 'a', 'node': None, 'project_id': 'other'}),
                (1, {'host': 'b', 'node': 'n'}), (1, {})):
            self.create(*samples.uuids(count), **fields)
        gone = self.create_server(host='a', node='n')
        self.write(instances.delete, gone, samples.LATER)

        self.assertEqual(
            {('n', 'building', None, 'project', 2),
             ('n', 'building', 'spawning', 'project', 1),
             (None, 'building', 'scheduling', 'other', 1)},
            {tuple(row)[:5] for row in self.read(instances.count_states, 'a')})

    def test_counts_differ_once_a_server_is_another_or_changed(self):
        def count():
            return self.read(instances.count_states, 'a')

        uuid = self.create_server(host='a')
        before = count()
        self.assertEqual(before, count())

        self.write(instances.update, uuid, {'display_name': 'x'},
                   samples.LATER)
        changed = count()
        self.assertNotEqual(before, changed)

        self.write(instances.delete, uuid, samples.LATER)
        self.create_server(host='a')
        self.assertEqual(1, count()[0].servers)
        self.assertEqual(before[0].updated_at, count()[0].updated_at)
        self.assertNotEqual(before, count())

    def test_properties_are_deleted_with_a_change_of_the_image(self):
        uuid = self.create_server(host='a', images={'os_distro': 'x'})
        self.assertEqual(
            1, len(self.read(instance_children.count_image_properties, 'a')))

        self.write(instances.update, uuid, {'display_name': 'x'},
                   samples.LATER)
        self.write(instances.update, uuid, {'image_ref': 'other'},
                   samples.LATER, host='b')
        self.assertEqual(
            1, len(self.read(instance_children.count_image_properties, 'a')))

        self.write(instances.update, uuid, {'image_ref': 'other'},
                   samples.LATER)
        self.assertEqual([], self.read(
            instance_children.count_image_properties, 'a'))


class TestUpdate(InstanceCase):

    def test_server_in_the_expected_state_is_updated(self):
        uuid = self.create_server(host=None)

        self.assertTrue(self.update(
            uuid, {'host': 'h', 'node': 'n'}, host=None,
            task_state=('scheduling', None)))

        instance = self.get(uuid)
        self.assertEqual(('h', 'n'), (instance.host, instance.node))

    def test_server_in_another_state_is_not_updated(self):
        uuid = self.create_server(host='h', task_state=None)

        for expected in (
                {'host': None}, {'host': 'other'}, {'host': ('x', None)},
                {'task_state': 'spawning'}, {'host': ()},
                {'host': 'h', 'vm_state': 'active'}):
            self.assertFalse(
                self.update(uuid, {'node': 'n'}, **expected), expected)
        for expected in (
                {}, {'host': 'h'}, {'host': ('x', 'h')}, {'task_state': None},
                {'task_state': ('spawning', None), 'host': 'h'}):
            self.assertTrue(
                self.update(uuid, {'node': 'm'}, **expected), expected)
        self.assertEqual('m', self.get(uuid).node)

    def test_deleted_or_unknown_server_is_not_changed(self):
        uuid = self.create_server()
        self.write(instances.delete, uuid, samples.LATER)

        for missing in uuid, *samples.uuids(1):
            self.assertFalse(self.update(missing, {'node': 'n'}))

    def test_server_is_updated_by_a_single_caller_in_a_race(self):
        uuid = self.create_server(host=None)

        taken = racing.race(*[
            lambda host=host: self.update(uuid, {'host': host}, host=None)
            for host in 'abcdef'])

        self.assertEqual(1, sum(taken))
        self.assertEqual('abcdef'[taken.index(True)], self.get(uuid).host)

    def test_update_of_a_state_is_refused(self):
        uuid = self.create_server()

        for name in 'vm_state', 'task_state', 'deleted':
            self.assertRaises(ValueError, self.update, uuid, {name: 'active'})


class TestTransit(InstanceCase):

    def transit(self, uuid, transition, values=None, **expected):
        return self.write(
            instances.transit, uuid, transition, samples.LATER, values,
            **expected)

    def state(self, uuid):
        instance = self.get(uuid)
        return states.State(instance.vm_state, instance.task_state)

    def test_transition_is_made_only_from_its_begin_states(self):
        known = {each for transition in states.TRANSITIONS.values()
                 for each in (transition.before or ())}
        for name, transition in states.TRANSITIONS.items():
            for before in known:
                uuid = self.create_server(**before._asdict())
                allowed = (transition.before is None
                           or before in transition.before)

                self.assertEqual(
                    allowed, self.transit(uuid, name), (name, before))
                self.assertEqual(
                    states.State(transition.after.vm_state or before.vm_state,
                                 transition.after.task_state)
                    if allowed else before, self.state(uuid))

    def test_more_is_set_and_may_be_expected(self):
        uuid = self.create_server(build_attempts=1)

        self.assertFalse(self.transit(
            uuid, 'begin', {'host': 'h'}, build_attempts=2))
        self.assertTrue(self.transit(
            uuid, 'begin', {'host': 'h'}, build_attempts=1, host=None))

        self.assertEqual('h', self.get(uuid).host)

    def test_transition_is_made_by_a_single_caller_in_a_race(self):
        uuid = self.create_server()

        taken = racing.race(*[
            lambda host=host: self.transit(uuid, 'begin', {'host': host})
            for host in 'abcdef'])

        self.assertEqual(1, sum(taken))
        self.assertEqual('abcdef'[taken.index(True)], self.get(uuid).host)


class TestFail(InstanceCase):

    def fail_server(self, uuid, **expected):
        return self.write(
            instances.fail, uuid, exception.NoValidHost(reason='None.'),
            'conductor', samples.LATER, 'event', **expected)

    def test_server_in_error_has_a_fault_and_no_host(self):
        uuid = self.create_server(host='h', node='n')

        self.assertTrue(self.fail_server(uuid, host='h'))

        instance = self.get(uuid)
        self.assertEqual(
            ('error', None, None, None),
            (instance.vm_state, instance.task_state, instance.host,
             instance.node))
        self.assertEqual(
            {uuid: 'No valid host was found. None.'},
            self.read(instance_history.latest, [uuid]))

    def test_server_in_another_state_gets_no_fault(self):
        uuid = self.create_server(host='h')

        self.assertFalse(self.fail_server(uuid, host=None))

        self.assertEqual('building', self.get(uuid).vm_state)
        self.assertEqual({}, self.read(instance_history.latest, [uuid]))


class TestDelete(InstanceCase):

    def test_deleted_server_stays_as_a_marked_row(self):
        self.create_server()
        uuid = self.create_server()

        self.assertTrue(self.write(instances.delete, uuid, samples.LATER))

        row = self.read(lambda connection: connection.execute(
            sa.select(models.instances)
            .where(models.instances.c.uuid == uuid)).one())
        self.assertEqual(row.id, row.deleted)
        self.assertEqual(('deleted', None), (row.vm_state, row.task_state))
        self.assertEqual((samples.LATER, samples.LATER),
                         (row.deleted_at, row.terminated_at))
        self.assertIsNone(self.get(uuid))

    def test_server_in_the_expected_state_is_deleted_once(self):
        uuid = self.create_server(host='h')

        def delete(**expected):
            return self.write(
                instances.delete, uuid, samples.LATER, **expected)

        self.assertFalse(delete(host=None))
        self.assertIsNotNone(self.get(uuid))
        self.assertTrue(delete(host='h'))
        self.assertFalse(delete(host='h'))


class TestPurge(InstanceCase):

    def test_purged_server_has_no_rows(self):
        uuids = self.create(*samples.uuids(3))
        for uuid in uuids:
            self.write(instance_history.record, uuid, KeyError('x'), 'h',
                       samples.NOW)
        self.write(instance_history.create_all,
                   dict.fromkeys(uuids, context.admin()), 'create',
                   samples.NOW)

        self.write(instances.purge, uuids[:2])

        self.assertEqual([1, 1, 1, 1], self.count())
        self.assertIsNotNone(self.get(uuids[2]))
        self.assertEqual(uuids[:2], self.create(*uuids))

    def test_purge_of_a_missing_row_succeeds(self):
        uuid = self.create_server()

        self.write(instances.purge, samples.uuids(2))
        self.write(instances.purge, [])

        self.assertIsNotNone(self.get(uuid))

    def test_more_than_a_statement_takes_are_purged(self):
        uuids = self.create(*samples.uuids(statements.CHUNK + 1))

        self.write(instances.purge, uuids)

        self.assertEqual([0, 0, 0, 0], self.count())


def begin(uuid, host='h', **expected):
    return instances.Change(
        uuid, 'begin', {'host': host, 'node': 'n'},
        {'host': None, **expected})


def finish(uuid, host='h'):
    return instances.Change(
        uuid, 'finish', {'launched_at': samples.LATER}, {'host': host})


class TestTransitAll(base.TestCase):

    def create(self, count=1, **fields):
        return self.write(
            instances.create, [samples.instance(uuid, **fields)
                               for uuid in samples.uuids(count)], samples.NOW)

    def transit(self, *changes):
        return self.write(instances.transit_all, changes, samples.LATER)

    def rows(self, *uuids):
        rows = self.read(instances.get_many, uuids)
        return [(row.vm_state, row.task_state, row.host) for row in (
            rows[uuid] for uuid in uuids)]

    def test_transition_is_made_only_from_its_begin_states(self):
        known = sorted({each for transition in states.TRANSITIONS.values()
                        for each in (transition.before or ())}, key=str)
        for name, transition in states.TRANSITIONS.items():
            uuids = [uuid for before in known
                     for uuid in self.create(**before._asdict())]

            went = self.transit(*(
                instances.Change(uuid, name, {}, {}) for uuid in uuids))

            for uuid, before in zip(uuids, known, strict=True):
                allowed = (transition.before is None
                           or before in transition.before)
                self.assertEqual(allowed, uuid in went, (name, before))
                [row] = self.rows(uuid)
                self.assertEqual(
                    (transition.after.vm_state or before.vm_state,
                     transition.after.task_state) if allowed else before,
                    row[:2])

    def test_different_changes_are_made_of_different_servers(self):
        new = self.create(3)
        spawning = self.create(2, task_state='spawning', host='h')

        went = self.transit(
            begin(new[0]), finish(spawning[0]), begin(new[1], 'other'),
            finish(new[2]), finish(spawning[1], 'other'))

        self.assertEqual({new[0], new[1], spawning[0]}, went)
        self.assertEqual(
            [('building', 'spawning', 'h'), ('building', 'spawning', 'other'),
             ('building', 'scheduling', None), ('active', None, 'h'),
             ('building', 'spawning', 'h')], self.rows(*new, *spawning))
        rows = self.read(instances.get_many, new + spawning)
        self.assertEqual(
            {spawning[0]: samples.LATER},
            {uuid: row.launched_at for uuid, row in rows.items()
             if row.launched_at})

    def test_more_is_expected_of_each(self):
        first, second = self.create(2, build_attempts=1)

        self.assertEqual({second}, self.transit(
            begin(first, build_attempts=2), begin(second, build_attempts=1)))

    def test_deleted_or_unknown_servers_make_no_transition(self):
        gone, there = self.create(2)
        self.write(instances.delete, gone, samples.NOW)
        [unknown] = samples.uuids(1)

        self.assertEqual({there}, self.transit(
            begin(gone), begin(unknown), begin(there)))
        self.assertEqual(set(), self.transit(begin(gone), begin(unknown)))
        self.assertEqual(set(), self.transit())

    def test_ended_builds_are_not_returned_again(self):
        ended = self.create(2, task_state='spawning', host='h')
        others = self.create(2)
        self.write(build_casts.create, [
            build_casts.BuildCast(uuid, 'h', 'n', '{}', 1.0)
            for uuid in ended + others])

        self.transit(*map(finish, ended), begin(others[0]),
                     finish(others[1]))

        left = self.read(lambda connection: connection.execute(
            sa.select(models.build_casts.c.instance_uuid)).scalars().all())
        self.assertEqual(set(others), set(left))

    def test_servers_make_a_transition_once_in_a_race(self):
        uuids = self.create(20)

        taken = racing.race(*(
            lambda order=order, host=host: self.transit(*(
                begin(uuid, host) for uuid in order))
            for order, host in ((uuids, 'a'), (uuids[::-1], 'b'),
                                (uuids, 'c'), (uuids[::-1], 'd'))))

        self.assertEqual(20, sum(map(len, taken)))
        self.assertEqual(set(uuids), set().union(*taken))


class TestDialects(base.TestCase):
    """What other databases are told; SQLite stands for none of them."""

    def sent(self, url):
        """Return the statements, and who is said to have gone.

        Of the three servers the third is not as expected.
        """
        said = []
        uuids = samples.uuids(3)
        rows = [types.SimpleNamespace(id=place, uuid=uuid)
                for place, uuid in enumerate(uuids)]

        def execute(statement, parameters):
            said.append(str(statement.compile(dialect=engine.dialect)))
            if not statement.is_dml:
                return rows
            these = parameters['these']
            found = sa.engine.IteratorResult(
                sa.engine.result.SimpleResultMetaData(['uuid']),
                iter([(uuid,) for uuid in uuids[:2]]))
            found.rowcount = int(these in uuids[:2])
            return found

        engine = sa.create_mock_engine(url, execute)
        went = instances.transit_all(
            engine, [begin(uuid) for uuid in uuids], samples.LATER)
        self.assertEqual(set(uuids[:2]), went)
        return said

    def test_postgresql_locks_in_order_and_returns_missing_rows(self):
        for driver in 'psycopg2', 'psycopg':
            locked, changed = self.sent(f'postgresql+{driver}://')

            self.assertTrue(locked.endswith(
                'ORDER BY instances.uuid FOR UPDATE'), locked)
            self.assertIn('UPDATE instances SET', changed)
            self.assertIn('RETURNING instances.uuid', changed)

    def test_mysql_locks_in_order_and_updates_rows_singly(self):
        locked, *changed = self.sent('mysql+pymysql://')

        self.assertTrue(locked.endswith(
            'ORDER BY instances.uuid FOR UPDATE'), locked)
        self.assertIn('FORCE INDEX (uniq_instances0uuid)', locked)
        self.assertEqual(3, len(changed))
        for statement in changed:
            self.assertNotIn('RETURNING', statement)
            self.assertIn('instances.uuid = ', statement)


class TestNetworks(InstanceCase):

    def make(self, **values):
        uuid = self.create_server()
        with self.database.writer() as connection:
            samples.put(connection, uuid,
                        {'network_allocated': True, **values})
        return uuid

    def to_free(self, limit=100, after=''):
        return [each.uuid for each in self.read(
            instances.list_with_networks, limit, after)]

    def forget(self, uuid):
        self.write(instances.forget_networks, uuid, samples.LATER)

    def test_server_has_no_networks_until_its_row_records_networks(self):
        with self.database.writer() as connection:
            [uuid] = samples.uuids(1)
            self.assertFalse(instances.has_networks(connection, uuid))
            instances.create(
                connection, [samples.instance(uuid)], samples.NOW)
            self.assertFalse(instances.has_networks(connection, uuid))
            instances.update(connection, uuid, {'network_allocated': True},
                             samples.NOW)
            self.assertTrue(instances.has_networks(connection, uuid))

    def test_networks_of_deleted_and_failed_servers_are_listed(self):
        deleted = self.make(deleted=1, vm_state='deleted', host='host1')
        failed = self.make(vm_state='error', task_state=None)
        for values in ({}, {'task_state': 'spawning', 'host': 'host1'},
                       {'vm_state': 'active', 'host': 'host1'},
                       {'vm_state': 'error', 'host': 'host1'},
                       {'task_state': 'deleting', 'host': 'host1'},
                       {'vm_state': 'error', 'network_allocated': False},
                       {'deleted': 1, 'network_allocated': False}):
            self.make(**values)

        self.assertEqual(sorted([deleted, failed]), self.to_free())

    def test_servers_are_listed_in_pages(self):
        wanted = sorted(self.make(vm_state='error') for _ in range(5))

        self.assertEqual(wanted[:2], self.to_free(2))
        self.assertEqual(wanted[2:4], self.to_free(2, wanted[1]))
        self.assertEqual([], self.to_free(2, wanted[4]))

    def test_forgotten_networks_are_not_freed_again(self):
        for values in {'deleted': 1}, {'vm_state': 'error'}:
            uuid = self.make(**values)
            self.forget(uuid)
            self.assertEqual([], self.to_free())

    def test_active_server_keeps_its_networks(self):
        uuid = self.make(vm_state='active', host='host1')

        self.forget(uuid)

        self.assertTrue(self.read(instances.has_networks, uuid))

    def test_listed_servers_have_their_project_and_user(self):
        self.make(vm_state='error')

        [found] = self.read(instances.list_with_networks, 1)
        self.assertEqual(('project', 'user'),
                         (found.project_id, found.user_id))
