# SPDX-License-Identifier: Apache-2.0

import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.claims import copying
from cellsched.claims.sql import schema
from cellsched.cli import app
from cellsched import clock
from tests.unit.cli import base
from tests.unit.cli import test_server


#: A version of the claims database that is not the current one.
OLDER = '0123456789ab'


class RushingClock(clock.Clock):
    """A clock by which everything takes long."""

    _now = 0.0

    def monotonic(self) -> float:
        self._now += 10.0
        return self._now


class CopyTestCase(base.CommandTestCase):
    """A store with claims in ``api.conf``, and one without in ``new.conf``."""

    def setUp(self):
        super().setUp()
        self.write_api_conf(claims={'connection': self.sqlite('old')})
        self.new_conf = self.write_new(self.sqlite('new'))
        for name in 'api.conf', 'new.conf':
            ran = self.manage('claims_db', 'sync', conf=(name,))
            self.assertEqual(0, ran.code, ran.err)
        self.source = self.parts('api.conf').claims
        self.new_parts = self.parts('new.conf')
        self.target = self.new_parts.claims
        for provider in 'pq':
            self.source.set_inventory(
                provider, {'VCPU': claims.Inventory(8)})
        self.source.claim([claims.Claim(f'c{number}', provider, {'VCPU': 2})
                           for number in range(3) for provider in 'pq'])

    def write_new(self, connection, name='new.conf', **options):
        return self.write(
            name, DEFAULT={'transport_url': self.local('new')},
            claims={'connection': connection, **options})

    def copy(self, *argv, conf=('api.conf',), to=None):
        files = [f'--config-file={self.directory / name}' for name in conf]
        return self.run_app(
            app.Manage, *files, 'claims', 'copy', '--to-config-file',
            to or self.new_conf, *argv, clock=base.StillClock())

    def assertNothingCopied(self):
        self.assertEqual([], self.target.consumers())
        self.assertEqual([], self.target.usages().usages)


class TestCopy(CopyTestCase):

    def test_all_is_copied_and_verified(self):
        ran = self.copy()

        self.assertEqual(base.Ran(
            0, 'Copied 2 providers and the 6 claims of 3 consumers, 3 of them '
            'new\nVerified: both stores are equal\n', ''), ran)
        names = self.source.consumers()
        self.assertEqual(names, self.target.consumers())
        self.assertEqual(self.source.claims_of(names),
                         self.target.claims_of(names))
        self.assertEqual(
            self.source.inventories(), self.target.inventories())

    def test_repeated_copy_is_reported_as_data(self):
        self.copy()

        ran = self.copy('-f', 'json', '--batch', '1')

        self.assertEqual((0, ''), (ran.code, ran.err))
        self.assertEqual({
            'action': 'copied', 'kind': 'claims', 'providers': 2,
            'consumers': 3, 'claims': 6, 'new': 0, 'memberships_lost': 0,
            'verified': True, 'differences': [], 'more_differences': 0,
        }, ran.data)

    def test_later_files_override_earlier_files(self):
        self.write_new(self.sqlite('nowhere'), 'first.conf')

        ran = self.copy('--to-config-file', self.new_conf,
                        to=self.directory / 'first.conf')

        self.assertEqual((0, ''), (ran.code, ran.err))
        self.assertEqual(3, len(self.target.consumers()))

    def test_difference_is_shown_and_ends_with_1(self):
        with self.new_parts.databases.get(
                self.sqlite('new'), 'claims').writer() as connection:
            connection.execute(sa.text(
                'CREATE TRIGGER lying AFTER INSERT ON allocations '
                "WHEN NEW.consumer = 'c1' BEGIN UPDATE allocations SET "
                "amount = 3 WHERE consumer = 'c1' AND provider = 'p'; END"))

        ran = self.copy()

        self.assertEnds(1, ran, '1 providers and consumers differ')
        self.assertEqual([
            'Differs: consumer c1: 2 VCPU of p, 2 VCPU of q in the source, '
            '3 VCPU of p, 2 VCPU of q in the target'],
            ran.out.splitlines()[1:])

    def test_bar_is_shown_on_a_terminal(self):
        ran = self.run_app(
            app.Manage, f'--config-file={self.api_conf}', 'claims', 'copy',
            '--to-config-file', self.new_conf, stderr=base.Terminal())

        self.assertEqual(0, ran.code, ran.err)
        bar = '━' * 40
        for text in f'copying {bar} 8/8', f'comparing {bar} 8/8':
            self.assertIn(text, base.without_colors(ran.err))

    def test_long_copy_logs_its_progress(self):
        ran = self.run_app(
            app.Manage, f'--config-file={self.api_conf}', 'claims', 'copy',
            '--to-config-file', self.new_conf, clock=RushingClock())

        self.assertEqual(0, ran.code, ran.err)
        for text in 'copying 1/8\n', 'copying 8/8\n', 'comparing 8/8\n':
            self.assertIn(text, ran.err)


class TestRefused(CopyTestCase):

    def test_target_equal_to_the_source(self):
        self.write_new(self.sqlite('./old'), 'same.conf')

        self.assertEnds(1, self.copy(to=self.directory / 'same.conf'),
                        'No claims were copied', 'the same store')

    def test_target_with_other_claims(self):
        self.target.set_inventory('p', {'VCPU': claims.Inventory(8)})
        self.target.claim([claims.Claim('c1', 'p', {'VCPU': 1})])

        self.assertEnds(1, self.copy(), 'consumer c1', '1 VCPU of p in the '
                        'target')
        self.assertEqual(['c1'], self.target.consumers())

    def test_target_without_tables_names_the_command(self):
        self.write_new(self.sqlite('empty'), 'empty.conf')

        self.assertEnds(1, self.copy(to=self.directory / 'empty.conf'),
                        'run: cellsched-manage claims_db sync')

    def test_target_of_an_older_schema_names_the_command(self):
        path = self.write_new(self.sqlite('older'), 'older.conf')
        self.manage('claims_db', 'sync', conf=(path.name,))
        engine = sa.create_engine(self.sqlite('older'))
        self.addCleanup(engine.dispose)
        with engine.begin() as connection:
            connection.execute(sa.text(
                f'UPDATE {schema.SCHEMA.version_table} '
                f"SET version_num = '{OLDER}'"))

        self.assertEnds(1, self.copy(to=path), OLDER,
                        'run: cellsched-manage claims_db sync')

    def test_source_without_tables_names_the_command(self):
        self.write_api_conf(claims={'connection': self.sqlite('empty')})

        self.assertEnds(1, self.copy(),
                        'run: cellsched-manage claims_db sync')
        self.assertNothingCopied()

    def test_store_in_memory_is_refused_as_source_and_target(self):
        path = self.write_new(self.sqlite('new'), 'memory.conf',
                              store='memory')
        self.assertEnds(1, self.copy(to=path), str(path), '[claims] store',
                        'the store memory')

        self.write_api_conf(claims={'store': 'memory'})
        self.assertEnds(1, self.copy(), 'the source', '[claims] store',
                        'the store memory')
        self.assertNothingCopied()

    def test_wrong_configuration_of_the_target_is_named(self):
        for options, texts in (
                ({'store': 'nix'}, ('nix', 'sql')),
                ({'require': 'nix'}, ('[claims] require',)),
                ({'conection': 'x'}, ('conection', 'connection'))):
            path = self.write_new(
                self.sqlite('new'), 'wrong.conf', **options)
            self.assertEnds(1, self.copy(to=path), str(path), *texts)
        path = self.write('none.conf', claims={})
        self.assertEnds(1, self.copy(to=path), str(path),
                        '[claims] connection')
        missing = self.directory / 'missing.conf'
        self.assertEnds(1, self.copy(to=missing), str(missing))
        self.assertEnds(1, self.manage('claims', 'copy'), '--to-config-file')
        self.assertNothingCopied()

    def test_error_for_an_unreachable_target_hides_its_password(self):
        path = self.write_new(
            f'postgresql+psycopg2://u:{base.QUOTED}@127.0.0.1:1/x',
            'away.conf')

        for argv in (), ('--debug',):
            ran = self.copy(*argv, to=path)
            self.assertEqual(1, ran.code)
            self.assertIn('127.0.0.1', ran.err)
            self.assertKeepsSecrets(ran)

    def test_documented_default_batch_is_the_default(self):
        self.assertIn(f'by default {copying.BATCH}', ' '.join(
            self.manage('claims', 'copy', '--help').out.split()))

    def test_invalid_batch_size(self):
        for batch in '0', '10001', 'x':
            self.assertEnds(1, self.copy('--batch', batch), 'batch')
        self.assertNothingCopied()

    def test_copy_without_an_api_database_requires_force(self):
        self.write_new(self.sqlite('old'), 'old.conf')

        ran = self.copy(conf=('old.conf',))
        self.assertEnds(1, ran, '[api_database] connection', '--force')
        self.assertNothingCopied()

        self.assertEqual(0, self.copy('--force', conf=('old.conf',)).code)
        self.assertEqual(3, len(self.target.consumers()))

    def test_unreachable_cell_requires_force(self):
        self.write('cell.conf', DEFAULT={'transport_url': self.local('c')},
                   database={'connection': self.sqlite('no/directory')})
        created = self.manage('cell_v2', 'create_cell', '--name', 'lost',
                              '--no-check', conf=('api.conf', 'cell.conf'))
        self.assertEqual(0, created.code, created.err)

        self.assertEnds(1, self.copy(), '(lost)', '--force')
        self.assertNothingCopied()

        self.assertEqual(0, self.copy('--force').code)


class TestRunningServices(test_server.ServerTestCase):

    def test_copy_is_refused_while_services_are_up(self):
        path = self.write(
            'new.conf', DEFAULT={'transport_url': self.local('new')},
            claims={'connection': self.sqlite('new')})
        target = self.parts('new.conf').databases.get(
            self.sqlite('new'), 'claims')
        schema.SCHEMA.sync(target)

        def copy(*argv):
            return self.run_app(
                app.Manage, f'--config-file={self.api_conf}', 'claims',
                'copy', '--to-config-file', path, *argv,
                clock=base.StillClock())

        self.assertEnds(1, copy(), 'up, of host api, conductor-cell1, ',
                        '--force')
        with target.reader() as connection:
            self.assertEqual([], connection.execute(
                sa.select(schema.providers.c.uuid)).all())

        ran = copy('--force')

        self.assertEqual((0, ''), (ran.code, ran.err))
        self.assertIn('Copied 2 providers', ran.out)
