# SPDX-License-Identifier: Apache-2.0
"""Changing cells, and taking cells and hosts out."""

import contextlib
import pathlib
import sqlite3

import fixtures

from cellsched.cells import discovery
from cellsched.cells import maintenance
from cellsched.db.api import build_requests
from cellsched.db.api import cell_mappings
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import instances
from cellsched import exception
from cellsched import objects
from cellsched.testing import databases
from tests.unit.cells import base
from tests.unit.db import samples
from tests.unit import racing


UNKNOWN = samples.uuids(1)[0]

GONE = 'sqlite:////nowhere/at/all.sqlite'


class MaintenanceCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.add_cell0()
        self.east, self.west = self.add_cell('east'), self.add_cell('west')
        self.maintenance = maintenance.CellMaintenance(
            self.database, self.cells, self.targets, self.clock)
        self.discovery = discovery.Discovery(
            self.database, self.cells, self.targets, self.clock)

    def query(self, cell, query, *args, **kwargs):
        return self.write(self.targets.database(cell), query, *args, **kwargs)

    def add_host(self, cell, host):
        self.query(cell, compute_nodes.save, samples.uuids(1)[0], host, host,
                   samples.NODE, samples.NOW)
        self.discovery.discover(cell.uuid)

    def add_server(self, cell, **fields):
        [uuid] = uuids = samples.uuids(1)
        samples.accept(self.database, uuids)
        self.write(self.database, instance_mappings.decide, uuids, cell.id,
                   samples.NOW)
        self.query(cell, instances.create, [samples.instance(uuid, **fields)],
                   samples.NOW)
        self.write(self.database, build_requests.delete, uuids)
        return uuid

    def hosts(self):
        return {host: cell.name
                for cell, host in self.maintenance.list_hosts()}

    def new(self, **fields):
        """Return a mapping of a cell that is not there yet."""
        return samples.cell('new', **{
            'transport_url': f'local://{self.world}/new',
            'database_connection':
                self.useFixture(databases.CellDatabase()).url, **fields})

    def sqlite(self, *statements):
        """Return the URL of a database in which statements were run."""
        path = f'{self.useFixture(fixtures.TempDir()).path}/other.sqlite'
        with contextlib.closing(sqlite3.connect(path)) as connection:
            for statement in statements:
                connection.execute(statement)
        return f'sqlite:///{path}'

    def names(self):
        return sorted(cell.name for cell in self.read(
            self.database, cell_mappings.list_all))


class TestCreate(MaintenanceCase):

    def refused(self, error, **fields):
        """Have a cell refused; return what is said."""
        said = str(self.assertRaises(
            error, self.maintenance.create, self.new(**fields)))
        self.assertEqual(['cell0', 'east', 'west'], self.names())
        return said

    def test_database_may_be_made_later(self):
        for url in GONE, self.sqlite():
            mapping = self.new(
                database_connection=url, uuid=samples.uuids(1)[0],
                transport_url=f'local://{self.world}/{len(url)}')
            mapping.name = f'new{len(url)}'
            self.maintenance.create(mapping)

        self.assertEqual(5, len(self.cells.all()))

    def test_database_with_foreign_tables_is_refused(self):
        for url, found in (
                (self.database.url, 'the tables of the API schema'),
                (self.sqlite('CREATE TABLE instances (id INTEGER)',
                             'CREATE TABLE alembic_version (version_num)'),
                 '2 other tables, such as alembic_version')):
            self.assertIn(found, self.refused(
                exception.WrongDatabase, database_connection=url))

    def test_database_of_another_cell_is_refused_in_each_notation(self):
        url = self.east.database_connection
        path = pathlib.Path(url.removeprefix('sqlite:///'))
        for other in (url, f'{url}?timeout=3',
                      f'sqlite:///{path.parent}/../{path.parent.name}/'
                      f'{path.name}'):
            self.assertIn('has the same database', self.refused(
                exception.CellMappingExists, database_connection=other))
            self.assertRaises(
                exception.CellMappingExists, self.maintenance.update,
                self.west.uuid, {'database_connection': other})

    def test_cell_is_created_while_another_cell_is_down(self):
        self.maintenance.update(
            self.east.uuid, {'database_connection': GONE})

        self.maintenance.create(self.new())

        self.assertEqual(['cell0', 'east', 'new', 'west'], self.names())

    def test_braces_without_a_field_are_refused(self):
        for field, url in (
                ('transport_url', 'rabbit://u:{pass}@host/'),
                ('transport_url', 'rabbit://u:p{@host/'),
                ('database_connection', 'mysql+pymysql://u:{0}@h/d'),
                ('database_connection', 'sqlite:///{path}}')):
            self.assertIn(field, self.refused(
                exception.InvalidField, **{field: url}))

    def test_only_cell0_is_without_a_broker(self):
        self.assertIn('only cell0 can have none', self.refused(
            exception.InvalidField, transport_url='none:///'))

    def test_virtual_host_of_another_cell_is_refused(self):
        def urls(*texts):
            return [f'rabbit://{text}' for text in texts]

        self.maintenance.update(self.east.uuid, {
            'transport_url': 'rabbit://u:p@mq1:5672,u:p@mq2/east'})
        for url in urls('u:p@mq2:5672/east', 'other:secret@MQ1/east',
                        'mq3,mq2/east', 'u:p@mq2/ea%73t'):
            refused = self.assertRaises(
                exception.CellMappingExists, self.maintenance.update,
                self.west.uuid, {'transport_url': url})
            self.assertIn('transport URL', str(refused))
            self.assertNotIn('secret', str(refused))
        for url in urls('u:p@mq2/west', 'u:p@mq3/east', 'u:p@mq1:5673/east'):
            self.maintenance.update(self.west.uuid, {'transport_url': url})
        # A cell may have its own again, by another account.
        self.maintenance.update(self.east.uuid, {
            'transport_url': 'rabbit://new:p@mq1/east'})

    def test_other_changes_look_at_no_database(self):
        self.maintenance.update(
            self.east.uuid, {'database_connection': GONE})

        self.maintenance.update(self.east.uuid, {'name': 'orient'})

        self.assertEqual(['cell0', 'orient', 'west'], self.names())


class TestUpdate(MaintenanceCase):

    def test_only_given_fields_change(self):
        changed = self.maintenance.update(
            self.east.uuid, {'name': 'orient', 'disabled': True})

        self.assertEqual(
            ('orient', True, self.east.transport_url,
             self.east.database_connection),
            (changed.name, changed.disabled, changed.transport_url,
             changed.database_connection))
        self.assertEqual(['cell0', 'orient', 'west'], self.names())
        self.assertEqual([self.west.uuid], [
            cell.uuid for cell in self.cells.enabled()])

    def test_url_of_another_cell_is_refused(self):
        for name in 'transport_url', 'database_connection':
            self.assertRaises(
                exception.CellMappingExists, self.maintenance.update,
                self.east.uuid, {name: getattr(self.west, name)})
            self.maintenance.update(
                self.east.uuid, {name: getattr(self.east, name)})
        self.assertRaises(
            exception.CellMappingNotFound, self.maintenance.update, UNKNOWN,
            {'name': 'x'})

    def test_cell0_cannot_be_disabled_and_can_be_renamed(self):
        self.assertRaises(
            exception.Cell0CannotBeDisabled, self.maintenance.update,
            objects.CELL0_UUID, {'disabled': True})
        self.maintenance.update(objects.CELL0_UUID, {'name': 'grave'})
        self.assertIn('grave', self.names())


class TestDeleteHost(MaintenanceCase):

    def setUp(self):
        super().setUp()
        self.add_host(self.east, 'a')

    def test_host_is_found_again(self):
        self.maintenance.delete_host(self.east.uuid, 'a')

        self.assertEqual({}, self.hosts())
        self.assertEqual(['a'], self.discovery.discover())
        self.assertEqual({'a': 'east'}, self.hosts())

    def test_deleted_host_can_be_mapped_to_another_cell(self):
        self.query(self.west, compute_nodes.save, samples.uuids(1)[0], 'a',
                   'a', samples.NODE, samples.NOW)
        self.assertRaises(
            exception.HostMappingExists, self.discovery.discover)

        self.maintenance.delete_host(self.east.uuid, 'a')

        self.assertEqual(['a'], self.discovery.discover(self.west.uuid))

    def test_host_in_use_or_unknown_is_refused(self):
        self.add_server(self.east, host='a')
        for kind, cell, host in (
                (exception.HostInUse, self.east.uuid, 'a'),
                (exception.HostMappingExists, self.west.uuid, 'a'),
                (exception.HostMappingNotFound, self.east.uuid, 'b'),
                (exception.CellMappingNotFound, UNKNOWN, 'a')):
            self.assertRaises(
                kind, self.maintenance.delete_host, cell, host)
        self.assertEqual({'a': 'east'}, self.hosts())
        self.assertEqual([], self.query(
            self.east, compute_nodes.list_unmapped))


class TestDelete(MaintenanceCase):

    def in_use(self, force=False):
        return self.assertRaises(
            exception.CellInUse, self.maintenance.delete, self.east.uuid,
            force).by

    def test_unused_cell_is_deleted(self):
        self.assertEqual([], self.maintenance.delete(self.east.uuid))

        self.assertEqual(['cell0', 'west'], self.names())
        self.assertRaises(
            exception.CellMappingNotFound, self.cells.get, self.east.uuid)

    def test_hosts_of_a_deleted_cell_are_discovered_again(self):
        self.add_host(self.east, 'a')
        self.assertEqual(exception.CellInUse.HOSTS, self.in_use())

        self.assertEqual(['a'], self.maintenance.delete(
            self.east.uuid, force=True))

        self.assertEqual({}, self.hosts())
        samples.map_cell(self.database, samples.cell(
            'orient', transport_url=self.east.transport_url,
            database_connection=self.east.database_connection))
        self.assertEqual(['a'], self.discovery.discover())

    def test_cell_with_servers_is_not_deleted_by_force(self):
        self.add_server(self.east)

        for force in False, True:
            self.assertEqual(exception.CellInUse.SERVERS, self.in_use(force))

    def test_cell_with_deleted_servers_goes_by_force(self):
        uuid = self.add_server(self.east)
        self.write(self.database, instance_mappings.mark_deleted, [uuid],
                   samples.NOW)
        self.assertEqual(exception.CellInUse.DELETED, self.in_use())

        self.maintenance.delete(self.east.uuid, force=True)

        self.assertEqual({}, self.read(
            self.database, instance_mappings.get_many, [uuid]))

    def test_cell_without_a_database_is_deleted_by_force(self):
        self.add_host(self.east, 'a')
        self.maintenance.update(self.east.uuid, {
            'database_connection': f'sqlite:///{self.id()}/gone'})

        self.maintenance.delete(self.east.uuid, force=True)

        self.assertEqual(['cell0', 'west'], self.names())

    def test_deletion_and_decision_exclude_each_other(self):
        uuids = samples.uuids(8)
        samples.accept(self.database, uuids)

        def decide():
            return self.write(self.database, instance_mappings.decide, uuids,
                              self.east.id, samples.NOW)

        def delete():
            return self.maintenance.delete(self.east.uuid)

        racing.race(*[lambda: self.tried(delete)] * 2,
                    *[lambda: self.tried(decide)] * 2)

        mapped = self.read(self.database, instance_mappings.get_many, uuids)
        there = {each.cell_mapping and each.cell_mapping.uuid
                 for each in mapped.values()}
        self.assertEqual(
            {self.east.uuid} if 'east' in self.names() else {None}, there)

    def tried(self, function):
        try:
            return function()
        except exception.CellschedException as exc:
            return exc


class TestDeleteLost(MaintenanceCase):

    def lose(self, url=None):
        with self.database.writer() as connection:
            cell_mappings.update_apart(connection, self.east.uuid, {
                'database_connection': url or f'sqlite:///{self.id()}/gone'},
                samples.NOW)

    def test_losses_are_counted_by_project(self):
        uuids = [self.add_server(self.east) for _ in range(3)]
        self.add_server(self.west)
        self.add_host(self.east, 'a')
        self.write(self.database, instance_mappings.mark_deleted, uuids[:1],
                   samples.NOW)
        self.lose()

        lost = self.maintenance.find_losses(self.east.uuid)

        self.assertEqual((['a'], 2, 1), (
            lost.hosts, sum(lost.servers.values()), lost.deleted))

    def test_servers_are_released_before_their_mappings_go(self):
        uuids = {self.add_server(self.east) for _ in range(3)}
        other = self.add_server(self.west)
        self.lose()
        released = []

        def release(batch):
            self.assertEqual(set(batch), set(self.read(
                self.database, instance_mappings.get_many, batch)))
            released.extend(batch)

        self.maintenance.delete_lost(
            self.maintenance.find_losses(self.east.uuid), release)

        self.assertEqual(uuids, set(released))
        self.assertEqual(['cell0', 'west'], self.names())
        self.assertEqual({other}, set(self.read(
            self.database, instance_mappings.get_many, [*uuids, other])))

    def test_answering_cell_is_not_lost(self):
        self.lose(self.west.database_connection + '?timeout=9')

        for uuid in (self.west.uuid, self.east.uuid, objects.CELL0_UUID):
            self.assertIsNone(self.maintenance.find_losses(uuid))
        self.assertRaises(exception.CellMappingNotFound,
                          self.maintenance.find_losses, UNKNOWN)

    def test_cell_with_a_deleted_file_is_lost(self):
        self.lose(self.east.database_connection + '.gone')

        self.assertIn('does not exist', self.maintenance.find_losses(
            self.east.uuid).reason)


class TestListHosts(MaintenanceCase):

    def test_hosts_are_listed_by_name(self):
        for cell, host in ((self.west, 'b'), (self.east, 'c'),
                           (self.east, 'a')):
            self.add_host(cell, host)

        self.assertEqual(['a', 'b', 'c'], [*self.hosts()])
        self.assertEqual(['a', 'c'], [
            host for _, host in self.maintenance.list_hosts(self.east.uuid)])
        self.assertRaises(exception.CellMappingNotFound,
                          self.maintenance.list_hosts, UNKNOWN)
        self.assertEqual({'east', 'west'}, {
            name for name in self.hosts().values()})
        self.assertEqual(3, len(self.read(
            self.database, host_mappings.get_many, ['a', 'b', 'c'])))


class TestInstanceMapper(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cell, self.other = self.add_cell('east'), self.add_cell('west')
        self.mapper = maintenance.InstanceMapper(
            self.database, self.cells, self.targets, self.clock)

    def add(self, count, cell=None, **fields):
        uuids = samples.uuids(count)
        self.query(cell or self.cell, instances.create, [
            samples.instance(uuid, **fields) for uuid in uuids], samples.NOW)
        return uuids

    def query(self, cell, query, *args):
        return self.write(self.targets.database(cell), query, *args)

    def mapped(self, uuids):
        return self.read(self.database, instance_mappings.get_many, uuids)

    def test_instances_are_mapped_with_the_data_of_their_rows(self):
        mine, theirs = self.add(2), self.add(1, project_id='other')
        [gone] = self.add(1)
        self.query(self.cell, samples.put, gone, {'deleted': 4})

        self.assertEqual((4, False), self.mapper.map(self.cell.uuid))

        found = self.mapped([*mine, *theirs, gone])
        self.assertEqual(
            {uuid: ('project', 'user', self.cell.uuid, False)
             for uuid in mine} | {
                theirs[0]: ('other', 'user', self.cell.uuid, False),
                gone: ('project', 'user', self.cell.uuid, True)},
            {uuid: (each.project_id, each.user_id, each.cell_mapping.uuid,
                    each.queued_for_delete) for uuid, each in found.items()})
        usage = self.read(self.database, instance_mappings.usage, 'project')
        self.assertEqual((2, 2, 1024, 0), usage)

    def test_mapped_instance_is_unchanged(self):
        [moved] = samples.uuids(1)
        samples.accept(self.database, [moved])
        self.write(self.database, instance_mappings.decide, [moved],
                   self.other.id, samples.NOW)
        self.query(self.cell, instances.create, [samples.instance(moved)],
                   samples.NOW)

        self.assertEqual((0, False), self.mapper.map(self.cell.uuid))

        self.assertEqual(
            'west', self.mapped([moved])[moved].cell_mapping.name)

    def test_bounded_run_continues_the_last_run(self):
        uuids = self.add(5)

        runs = [self.mapper.map(self.cell.uuid, 2) for _ in range(4)]

        self.assertEqual(
            [(2, True), (2, True), (1, False), (0, False)], runs)
        self.assertEqual({*uuids}, {*self.mapped(uuids)})

    def test_batches_follow_each_other(self):
        uuids = self.add(2 * maintenance.BATCH + 1)
        told = []

        self.assertEqual(
            (len(uuids), False),
            self.mapper.map(self.cell.uuid, progress=told.append))

        self.assertEqual(len(uuids), self.mapper.count(self.cell.uuid))
        self.assertEqual(
            [maintenance.BATCH, 2 * maintenance.BATCH, len(uuids)],
            told)

    def test_unknown_cell_is_an_error(self):
        unknown = samples.uuids(1)[0]
        self.assertIn(unknown, str(self.assertRaises(
            exception.CellMappingNotFound, self.mapper.map, unknown)))

    def test_mapping_is_verified(self):
        verdict = maintenance.MappingVerdict
        [alive], [gone], [lost] = self.add(1), self.add(1), self.add(1)
        self.mapper.map(self.cell.uuid)
        self.query(self.cell, samples.put, gone, {'deleted': 7})
        self.query(self.cell, instances.purge, [lost])
        [waiting] = samples.uuids(1)
        samples.accept(self.database, [waiting])

        for uuid, expected in (
                (alive, verdict.ALIVE), (gone, verdict.DELETED),
                (lost, verdict.ARCHIVED), (waiting, verdict.WITHOUT_CELL),
                (samples.uuids(1)[0], verdict.NOT_MAPPED)):
            self.assertEqual(expected, self.mapper.verify(uuid))
            self.assertEqual(expected, self.mapper.verify(uuid.upper()))
