# SPDX-License-Identifier: Apache-2.0

import datetime

import sqlalchemy as sa

from cellsched.claims.sql import schema as claims_schema
from cellsched.cli import app
from cellsched.db import api as api_schema
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db import cell as cell_schema
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched import objects
from cellsched.testing import databases
from tests.unit.cli import base
from tests.unit.db import samples


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

    def test_schemas_are_created_and_their_versions_shown(self):
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

    def test_error_for_an_unknown_version_lists_versions(self):
        ran = self.manage('api_db', 'sync', 'nix')

        self.assertEnds(1, ran, 'nix', api_schema.SCHEMA.head)
        self.assertEqual('none\n', self.manage('api_db', 'version').out)

    def test_database_of_a_newer_release_is_not_changed(self):
        self.manage('api_db', 'sync')
        parts = self.parts('api.conf')
        with parts.database.writer() as connection:
            connection.exec_driver_sql(
                "UPDATE alembic_version_api SET version_num = 'future'")

        self.assertEnds(1, self.manage('api_db', 'sync'),
                        f'one of {api_schema.SCHEMA.head}', 'future')
        self.assertEnds(1, self.shell('flavor', 'list'), 'future')

    def test_claims_are_in_the_api_database_by_default(self):
        self.write_api_conf(self.sqlite('api'))

        self.manage('claims_db', 'sync')

        self.assertEqual({'api.sqlite'}, self.files())

    def test_sync_of_a_store_without_a_schema_is_refused(self):
        self.write_api_conf(self.sqlite('api'), claims={'store': 'memory'})

        for command, why in (('sync', 'keeps claims only in its process'),
                             ('version', 'has no schema')):
            self.assertEnds(1, self.manage('claims_db', command),
                            '[claims] store', 'memory', why)

    def test_missing_connections_are_named(self):
        self.write('api.conf')

        for command, option in (('api_db', '[api_database] connection'),
                                ('db', '[database] connection'),
                                ('claims_db', '[claims] connection')):
            for what in ('sync', 'version'):
                self.assertEnds(1, self.manage(command, what), option)

    def test_unreachable_database_is_named(self):
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

    def test_cell_is_synced_without_an_api_database(self):
        ran = self.manage('db', 'sync', conf=('cell.conf',))

        self.assertEqual((0, ''), (ran.code, ran.err))
        self.assertEqual({'cell.sqlite'}, self.files())
        self.assertEqual(
            f'{self.head}\n',
            self.manage('db', 'version', conf=('cell.conf',)).out)

    def test_cell0_is_synced_before_the_cell(self):
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

    def test_cell0_is_skipped_with_local_cell(self):
        self.map_cell0()

        ran = self.manage('db', 'sync', '--local_cell',
                          conf=('api.conf', 'cell.conf'))

        self.assertEqual(0, ran.code)
        self.assertEqual({'api.sqlite', 'cell.sqlite'}, self.files())

    def test_unmapped_cell0_is_a_warning(self):
        self.manage('api_db', 'sync')

        ran = self.manage('db', 'sync', conf=('api.conf', 'cell.conf'))

        self.assertEnds(0, ran, 'warning', 'map_cell0')
        self.assertIn('cell database', ran.out)

    def test_unreachable_cell0_exits_with_1_without_a_sync(self):
        self.map_cell0('missing/cell0')

        ran = self.manage('db', 'sync', conf=('api.conf', 'cell.conf'))

        self.assertEqual(1, ran.code)
        self.assertEqual('', ran.out)
        self.assertIn('cell0 cannot be reached', ran.err)
        self.assertIn('--local_cell', ran.err)
        self.assertEqual({'api.sqlite'}, self.files())

    def test_reachable_cells_are_synced_beside_an_unreachable_cell(self):
        self.map_cell0()
        for name, path in (('one', 'one'), ('lost', 'missing/lost'),
                           ('two', 'two')):
            self.manage('cell_v2', 'create_cell', '--name', name, '--no-check',
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

    def test_sync_of_all_cells_without_cells_is_refused(self):
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


COMMAND = 'archive_deleted_rows'


class ArchiveCase(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.write_api_conf(
            claims={'connection': self.sqlite('claims')})
        self.manage('claims_db', 'sync')
        self.database = self.parts('api.conf').database
        self.mapped = {}
        for name, fields in (('cell0', {'uuid': objects.CELL0_UUID,
                                        'transport_url': 'none:///'}),
                             ('cell1', {})):
            opened = self.useFixture(databases.CellDatabase())
            setattr(self, name, opened.database)
            self.mapped[name] = samples.map_cell(self.database, samples.cell(
                name, database_connection=opened.url, **fields))
        self.write('cell1.conf', database={'connection': self.cell1.url})

    def delete(self, cell='cell1', ago=datetime.timedelta(days=1)):
        """Return a server that was deleted some time ago."""
        uuid, = samples.uuids(1)
        samples.accept(self.database, [uuid])
        with self.database.writer() as connection:
            instance_mappings.decide(
                connection, [uuid], self.mapped[cell].id, samples.NOW)
            build_requests.delete(connection, [uuid])
            instance_mappings.mark_deleted(connection, [uuid], samples.NOW)
        with getattr(self, cell).writer() as connection:
            instances.create(
                connection, [samples.instance(uuid)], samples.NOW)
            instances.delete(connection, uuid, self.now() - ago)
        return uuid

    def now(self):
        return self.parts('api.conf').clock.now()

    def archive(self, *argv, **options):
        return self.manage('db', 'archive_deleted_rows', *argv, **options)

    def purge(self, *argv, **options):
        return self.manage('db', 'purge', *argv, **options)

    def archived(self, cell='cell1'):
        with getattr(self, cell).reader() as connection:
            return connection.execute(sa.select(sa.func.count()).select_from(
                models.SHADOWS[models.instances])).scalar()


class TestArchive(ArchiveCase):

    def test_empty_archive_run_exits_with_0(self):
        self.assertEqual(base.Ran(0, '', ''), self.archive('--all-cells'))

    def test_archived_rows_end_with_1_and_are_counted_on_demand(self):
        for cell in 'cell0', 'cell1':
            self.delete(cell)

        ran = self.archive('--all-cells', '--verbose')

        self.assertEqual((1, ''), (ran.code, ran.err))
        for cell in 'cell0', 'cell1':
            self.assertIn(f'{cell}: instances: 1 rows\n', ran.out)
            self.assertEqual(1, self.archived(cell))
        self.delete()
        self.assertEqual(base.Ran(1, '', ''), self.archive('--all-cells'))

    def test_cell_of_the_configuration_is_archived_by_default(self):
        for cell in 'cell0', 'cell1':
            self.delete(cell)

        ran = self.archive(conf=('api.conf', 'cell1.conf'))

        self.assertEqual(base.Ran(1, '', ''), ran)
        self.assertEqual((0, 1), (
            self.archived('cell0'), self.archived('cell1')))
        self.assertEnds(5, self.archive(), '[database] connection')
        self.write('other.conf', database={
            'connection': self.sqlite('other')})
        self.assertEnds(5, self.archive(conf=('api.conf', 'other.conf')),
                        '[database] connection')

    def test_all_is_archived_until_complete(self):
        for _ in range(4):
            self.delete()

        ran = self.archive('--all-cells', '--until-complete', '--verbose',
                           '--max_rows=1')

        self.assertEqual((0, ''), (ran.code, ran.err))
        self.assertIn('cell1: instances: 4 rows\n', ran.out)
        self.assertEqual(4, self.archived())

    def test_rounds_have_the_given_size_and_pause(self):
        for _ in range(3):
            self.delete()
        clock = self.parts('api.conf').clock
        slept = []
        clock.sleep = slept.append

        ran = self.run_app(
            app.Manage, f'--config-file={self.api_conf}', 'db', COMMAND,
            '--all-cells', '--until-complete', '--max_rows=1', '--sleep=7',
            clock=clock)

        self.assertEqual(0, ran.code, ran.err)
        self.assertEqual([7.0] * 3, slept)

    def test_some_stay_for_the_next_time(self):
        for _ in range(3):
            self.delete()

        for archived in 1, 2, 3:
            self.assertEqual(
                1, self.archive('--all-cells', '--max_rows=1').code)
            self.assertEqual(archived, self.archived())
        self.assertEqual(0, self.archive('--all-cells').code)

    def test_recently_deleted_rows_stay(self):
        self.delete(ago=datetime.timedelta(minutes=30))

        for argv in [], ['--before=2999-01-01']:
            self.assertEqual(0, self.archive('--all-cells', *argv).code)
        self.assertEqual(
            1, self.archive('--all-cells', '--settle=600').code)

    def test_rows_deleted_after_a_date_stay(self):
        self.delete()
        days = [(self.now() - datetime.timedelta(days=days)).isoformat()
                for days in (2, 0.5)]

        self.assertEqual(0, self.archive('--all-cells', '--before',
                                         f'{days[0]}Z').code)
        self.assertEqual(1, self.archive('--all-cells', '--before',
                                         f'{days[1]}+00:00').code)

    def test_archived_rows_may_be_removed_at_once(self):
        self.delete()

        ran = self.archive('--all-cells', '--purge', '--verbose')

        self.assertEqual(1, ran.code)
        self.assertIn('cell1: shadow_instances: 1 rows\n', ran.out)
        self.assertEqual(0, self.archived())

    def test_bad_arguments_have_separate_exit_codes(self):
        for code, argv in ((2, '--max_rows=0'), (2, '--max_rows=-1'),
                           (2, '--max_rows=x'), (2, '--max_rows=2147483648'),
                           (4, '--before=yesterday'), (4, '--before='),
                           (5, '--settle=-1'), (5, '--settle=nan'),
                           (5, '--sleep=-1'), (5, '--nonsense')):
            self.delete()
            self.assertEnds(code, self.archive('--all-cells', argv),
                            argv.partition('=')[0])
        self.assertEqual(0, self.archived())

    def test_lack_of_an_api_database_ends_with_3(self):
        self.write('none.conf')

        self.assertEnds(3, self.archive('--all-cells', conf=('none.conf',)),
                        '[api_database] connection')

    def test_failing_cell_is_named_and_the_rest_is_archived(self):
        samples.map_cell(self.database, samples.cell(
            'broken', database_connection=(
                f'postgresql+psycopg2://u:{base.QUOTED}@127.0.0.1:1/x')))
        self.delete()

        ran = self.archive('--all-cells')

        self.assertEnds(5, ran, 'cell broken', '127.0.0.1:1/x')
        self.assertKeepsSecrets(ran)
        self.assertEqual(1, self.archived())
        self.assertEnds(5, self.purge('--all-cells', '--all'),
                        'cell broken')
        self.assertEqual(0, self.archived())

    def test_terminal_shows_progress(self):
        self.delete()
        stderr = base.Terminal()

        self.run_app(app.Manage, f'--config-file={self.api_conf}', 'db',
                     COMMAND, '--all-cells', stderr=stderr)

        self.assertIn('archiving ━', base.without_colors(stderr.getvalue()))
        self.assertIn('1/1', stderr.getvalue())


class TestPurge(ArchiveCase):

    def test_empty_purge_exits_with_3(self):
        self.delete()

        self.assertEqual(
            base.Ran(3, '', ''), self.purge('--all-cells', '--all'))

    def test_removed_rows_end_with_0(self):
        self.delete()
        self.archive('--all-cells')

        ran = self.purge('--all-cells', '--all', '--verbose')

        self.assertEqual((0, ''), (ran.code, ran.err))
        self.assertIn('cell1: shadow_instances: 1 rows\n', ran.out)
        self.assertEqual(0, self.archived())

    def test_rows_deleted_after_a_date_stay(self):
        self.delete()
        self.archive('--all-cells')

        self.assertEqual(3, self.purge(
            '--all-cells', '--before', '2020-01-01').code)
        self.assertEqual(0, self.purge(
            '--before', self.now().isoformat(),
            conf=('api.conf', 'cell1.conf')).code)

    def test_bad_arguments_have_separate_exit_codes(self):
        self.delete()
        self.archive('--all-cells')
        self.write('none.conf')

        for code, *argv in ((1,), (1, '--all', '--before=2099-01-01'),
                            (2, '--before=x'), (5, '--nonsense')):
            self.assertEnds(code, self.purge('--all-cells', *argv))
        self.assertEnds(4, self.purge('--all', conf=('none.conf',)),
                        '[api_database] connection')
        self.assertEqual(1, self.archived())
