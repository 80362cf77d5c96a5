# SPDX-License-Identifier: Apache-2.0

from cellsched.claims.sql import schema as claims_schema
from cellsched.db import api as api_schema
from cellsched.db import cell as cell_schema
from tests.unit.cli import base


class ManageTestCase(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.write_api_conf(
            self.sqlite('api'), claims={'connection': self.sqlite('claims')})
        self.write(
            'cell.conf', DEFAULT={'transport_url': self.local('cell')},
            database={'connection': self.sqlite('cell')})

    def files(self):
        return {path.name for path in self.directory.glob('*.sqlite')}


class TestAPIAndClaims(ManageTestCase):

    def test_schemas_are_made_and_their_versions_shown(self):
        for command, head in (
                ('api_db', api_schema.SCHEMA.head),
                ('claims_db', claims_schema.SCHEMA.head)):
            before = self.manage(command, 'version')
            synced = self.manage(command, 'sync')
            again = self.manage(command, 'sync')
            after = self.manage(command, 'version')

            self.assertEqual(base.Ran(0, 'none\n', ''), before)
            self.assertEqual((0, ''), (synced.code, synced.err))
            self.assertIn(head, synced.out)
            self.assertEqual(synced, again)
            self.assertEqual(base.Ran(0, f'{head}\n', ''), after)

    def test_version_may_be_named(self):
        head = api_schema.SCHEMA.head

        self.assertEqual(0, self.manage('api_db', 'sync', head).code)
        self.assertEqual(f'{head}\n', self.manage('api_db', 'version').out)

    def test_unknown_version_is_refused_with_those_that_are_there(self):
        ran = self.manage('api_db', 'sync', 'nix')

        self.assertEnds(1, ran, 'nix', api_schema.SCHEMA.head)
        self.assertEqual('none\n', self.manage('api_db', 'version').out)

    def test_database_of_a_newer_release_is_left_alone(self):
        self.manage('api_db', 'sync')
        parts = self.parts('api.conf')
        with parts.database.writer() as connection:
            connection.exec_driver_sql(
                "UPDATE alembic_version_api SET version_num = 'future'")

        self.assertEnds(1, self.manage('api_db', 'sync'),
                        f'one of {api_schema.SCHEMA.head}', 'future')
        self.assertEnds(1, self.shell('flavor', 'list'), 'future')

    def test_claims_are_in_the_api_database_unless_said_otherwise(self):
        self.write_api_conf(self.sqlite('api'))

        self.manage('claims_db', 'sync')

        self.assertEqual({'api.sqlite'}, self.files())

    def test_store_without_a_schema_has_none_to_sync(self):
        self.write_api_conf(self.sqlite('api'), claims={'store': 'memory'})

        for command, why in (('sync', 'forgets them'),
                             ('version', 'has none')):
            self.assertEnds(1, self.manage('claims_db', command),
                            '[claims] store', 'memory', why)

    def test_missing_connections_are_named(self):
        self.write('api.conf')

        for command, option in (('api_db', '[api_database] connection'),
                                ('db', '[database] connection'),
                                ('claims_db', '[claims] connection')):
            for what in ('sync', 'version'):
                self.assertEnds(1, self.manage(command, what), option)

    def test_database_that_cannot_be_reached_is_named(self):
        self.write_api_conf(
            f'postgresql+psycopg2://u:{base.QUOTED}@127.0.0.1:1/x')

        ran = self.manage('api_db', 'sync')

        self.assertEnds(1, ran, 'API database', '127.0.0.1:1/x',
                        'cannot be reached')
        self.assertKeepsSecrets(ran)


class TestCell(ManageTestCase):

    head = cell_schema.SCHEMA.head

    def map_cell0(self, name='cell0'):
        self.manage('api_db', 'sync')
        ran = self.manage('cell_v2', 'map_cell0', '--database_connection',
                          self.sqlite(name))
        self.assertEqual(0, ran.code, ran.err)

    def test_cell_is_synced_where_no_api_database_is_configured(self):
        ran = self.manage('db', 'sync', conf=('cell.conf',))

        self.assertEqual((0, ''), (ran.code, ran.err))
        self.assertEqual({'cell.sqlite'}, self.files())
        self.assertEqual(
            f'{self.head}\n',
            self.manage('db', 'version', conf=('cell.conf',)).out)

    def test_cell0_is_synced_before_this_cell(self):
        self.map_cell0()

        ran = self.manage('db', 'sync', conf=('api.conf', 'cell.conf'))

        self.assertEqual(
            base.Ran(0, f'cell0: schema version {self.head}\n'
                        f'cell database: schema version {self.head}\n', ''),
            ran)

    def test_cell0_alone_is_synced_above_the_cells(self):
        self.map_cell0()

        ran = self.manage('db', 'sync')

        self.assertEqual(
            base.Ran(0, f'cell0: schema version {self.head}\n', ''), ran)

    def test_cell0_is_left_out_on_demand(self):
        self.map_cell0()

        ran = self.manage('db', 'sync', '--local_cell',
                          conf=('api.conf', 'cell.conf'))

        self.assertEqual(0, ran.code)
        self.assertEqual({'api.sqlite', 'cell.sqlite'}, self.files())

    def test_cell0_that_is_not_mapped_is_a_warning(self):
        self.manage('api_db', 'sync')

        ran = self.manage('db', 'sync', conf=('api.conf', 'cell.conf'))

        self.assertEnds(0, ran, 'warning', 'map_cell0')
        self.assertIn('cell database', ran.out)

    def test_cell0_that_cannot_be_reached_ends_with_1_and_no_sync(self):
        self.map_cell0('missing/cell0')

        ran = self.manage('db', 'sync', conf=('api.conf', 'cell.conf'))

        self.assertEqual(1, ran.code)
        self.assertEqual('', ran.out)
        self.assertIn('cell0 cannot be reached', ran.err)
        self.assertIn('--local_cell', ran.err)
        self.assertEqual({'api.sqlite'}, self.files())

    def test_all_cells_are_synced_though_one_cannot_be_reached(self):
        self.map_cell0()
        for name, path in (('one', 'one'), ('lost', 'missing/lost'),
                           ('two', 'two')):
            self.manage('cell_v2', 'create_cell', '--name', name,
                        '--database_connection', self.sqlite(path),
                        '--transport-url', self.local(name))

        ran = self.manage('db', 'sync', '--all-cells')

        self.assertEnds(1, ran, 'missing/lost')
        self.assertEqual(''.join(
            f'{name}: schema version {self.head}\n'
            for name in ('cell0', 'cell one', 'cell two')), ran.out)
        self.assertEqual(
            {'api.sqlite', 'cell0.sqlite', 'one.sqlite', 'two.sqlite'},
            self.files())
        self.assertEnds(
            1, self.manage('db', 'sync', 'nix', '--all-cells'), 'nix')

    def test_without_cells_there_are_none_to_sync(self):
        self.manage('api_db', 'sync')

        self.assertEnds(
            1, self.manage('db', 'sync', '--all-cells'), 'no cell is mapped')

    def test_api_database_without_schema_ends_with_1_and_no_sync(self):
        ran = self.manage('db', 'sync', conf=('api.conf', 'cell.conf'))

        self.assertEqual(1, ran.code)
        self.assertIn('cellsched-manage api_db sync', ran.err)
        self.assertNotIn('cell.sqlite', self.files())

    def test_unknown_version_is_refused(self):
        self.map_cell0()

        ran = self.manage('db', 'sync', 'nix', conf=('api.conf', 'cell.conf'))

        self.assertEnds(1, ran, 'nix', self.head)
