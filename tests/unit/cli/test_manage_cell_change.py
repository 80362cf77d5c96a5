# SPDX-License-Identifier: Apache-2.0

from cellsched.db.api import build_requests
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instances
from tests.unit.cli import base
from tests.unit.cli import test_manage_cell
from tests.unit.db import samples

UNKNOWN = samples.uuids(1)[0]


class ChangeCase(test_manage_cell.CellTestCase):

    def setUp(self):
        super().setUp()
        self.cell_v2('map_cell0')
        self.uuid = self.create_cell('c1')

    @property
    def cell(self):
        return next(cell for cell in self.cells() if cell.uuid == self.uuid)

    def changed(self, *argv, uuid=None):
        return self.cell_v2(
            'update_cell', '--cell_uuid', uuid or self.uuid, *argv)

    def write_api(self, query, *args):
        with self.parts('api.conf').database.writer() as connection:
            return query(connection, *args)

    def add_host(self, host):
        self.write_api(host_mappings.create_missing, [host], self.cell.id,
                       samples.NOW)

    def add_server(self, host=None):
        """Have a server in the cell; return its uuid."""
        uuids = samples.uuids(1)
        parts = self.parts('api.conf')
        samples.accept(parts.database, uuids)
        self.write_api(instance_mappings.decide, uuids, self.cell.id,
                       samples.NOW)
        self.write_api(build_requests.delete, uuids)
        with parts.targets.database(self.cell).writer() as connection:
            instances.create(connection, [
                samples.instance(uuids[0], host=host)], samples.NOW)
        return uuids[0]


class TestUpdateCell(ChangeCase):

    def test_only_what_is_given_changes_whatever_is_configured(self):
        before = self.cell
        self.write_cell_conf('other')

        ran = self.cell_v2(
            'update_cell', '--cell_uuid', self.uuid, '--name', 'east',
            conf=('api.conf', 'other.conf'))

        self.assertEqual(0, ran.code)
        self.assertIn('Changed name of cell', ran.out)
        self.assertEqual(
            ('east', before.transport_url, before.database_connection),
            (self.cell.name, self.cell.transport_url,
             self.cell.database_connection))

    def test_urls_are_changed_to_those_of_no_other_cell(self):
        ran = self.changed('--transport-url', self.local('new'),
                           '--database_connection', self.sqlite('new'))

        self.assertEqual(0, ran.code, ran.err)
        self.assertEqual(
            (self.local('new'), self.sqlite('new')),
            (self.cell.transport_url, self.cell.database_connection))
        self.create_cell('c2')
        self.assertEnds(3, self.changed(
            '--transport-url', self.local('c2')), 'transport URL')
        self.assertEnds(1, self.changed(
            '--transport-url', f'nix://u:{base.PASSWORD}@h/x'))

    def test_name_of_another_cell_is_taken_with_a_warning(self):
        self.create_cell('c2')

        ran = self.changed('--name', 'c2')

        self.assertEqual(0, ran.code)
        self.assertIn('2 cells are called c2', ran.err)
        self.assertEqual('', self.changed('--name', 'c3').err)

    def test_urls_come_from_the_configuration_on_demand(self):
        urls = self.local('other'), self.write_cell_conf('other')

        ran = self.cell_v2(
            'update_cell', '--cell_uuid', self.uuid, '--from-configuration',
            conf=('api.conf', 'other.conf'))

        self.assertEqual(0, ran.code, ran.err)
        self.assertEqual(urls, (self.cell.transport_url,
                                self.cell.database_connection))
        ran = self.cell_v2(
            'update_cell', '--cell_uuid', self.uuid, '--from-configuration',
            '--transport-url', self.local('third'),
            conf=('api.conf', 'other.conf'))
        self.assertEqual((self.local('third'), urls[1]), (
            self.cell.transport_url, self.cell.database_connection))

    def test_cell_is_disabled_and_enabled(self):
        for option, disabled in (('--disable', True), ('--disable', True),
                                 ('--enable', False)):
            self.assertEqual(0, self.changed(option).code)
            self.assertEqual(disabled, self.cell.disabled)

    def test_what_cannot_be_done_has_its_exit_code(self):
        cell0 = '0' * 8 + '-0000-0000-0000-' + '0' * 12
        for code, argv, uuid, text in (
                (1, ['--name', 'x'], UNKNOWN, UNKNOWN),
                (1, [], None, 'something to change'),
                (1, ['--name', 'a\nb'], None, '--name'),
                (4, ['--enable', '--disable'], None, 'exclude'),
                (5, ['--disable'], cell0, 'cannot be disabled')):
            self.assertEnds(code, self.changed(*argv, uuid=uuid), text)
        self.assertEqual(('c1', False), (self.cell.name, self.cell.disabled))


class TestDeleteCell(ChangeCase):

    def deleted(self, *argv, uuid=None):
        return self.cell_v2(
            'delete_cell', '--cell_uuid', uuid or self.uuid, *argv)

    def test_cell_goes_when_nothing_lives_there(self):
        self.assertEnds(1, self.deleted(uuid=UNKNOWN), UNKNOWN)
        self.add_host('h1')
        self.assertEnds(2, self.deleted(), '1 hosts', '--force')

        ran = self.deleted('--force')

        self.assertEqual(base.Ran(
            0, f'Unmapped cell {self.uuid} and 1 hosts\n', ''), ran)
        self.assertEqual(['cell0'], [cell.name for cell in self.cells()])

    def test_servers_keep_it(self):
        uuid = self.add_server()
        for argv in (), ('--force',):
            self.assertEnds(3, self.deleted(*argv), '1 servers')
        self.write_api(instance_mappings.mark_deleted, [uuid], samples.NOW)
        self.assertEnds(4, self.deleted(), 'archive_deleted_rows')

        self.assertEqual(0, self.deleted('--force').code)


class TestHosts(ChangeCase):

    def deleted(self, host, uuid=None):
        return self.cell_v2('delete_host', '--cell_uuid', uuid or self.uuid,
                            '--host', host)

    def test_hosts_are_listed_by_name(self):
        for host in 'b', 'a':
            self.add_host(host)

        for argv in (), ('--cell_uuid', self.uuid):
            self.assertEqual(
                [{'Cell Name': 'c1', 'Cell UUID': self.uuid, 'Hostname': host}
                 for host in ('a', 'b')],
                self.cell_v2('list_hosts', *argv, '-f', 'json').data)
        self.assertEnds(
            1, self.cell_v2('list_hosts', '--cell_uuid', UNKNOWN), UNKNOWN)

    def test_host_goes_when_no_server_is_there(self):
        self.add_host('a')
        self.add_host('b')
        self.add_server(host='b')
        other = self.create_cell('c2')

        self.assertEqual(base.Ran(0, 'Unmapped host a\n', ''),
                         self.deleted('a'))
        for code, host, uuid in ((1, 'b', UNKNOWN), (2, 'a', None),
                                 (3, 'b', other), (4, 'b', None)):
            self.assertEnds(code, self.deleted(host, uuid),
                            UNKNOWN if uuid == UNKNOWN else f"'{host}'")
        self.assertEqual(['b'], [
            row['Hostname'] for row in
            self.cell_v2('list_hosts', '-f', 'json').data])
