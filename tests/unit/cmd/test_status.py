# SPDX-License-Identifier: Apache-2.0

import contextlib
import io
import json

import fixtures

from cellsched.cmd import status
from cellsched.conf import loader
from cellsched.db.cell import compute_nodes
from cellsched import objects
from cellsched.testing import databases
from tests.unit import base
from tests.unit.cmd import processes
from tests.unit.db import samples

PASSWORD = 'secret'


class TestStatus(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_directory()
        self.api = self.useFixture(databases.APIDatabase())
        claims = self.useFixture(databases.ClaimsDatabase())
        self.conf = self.directory / 'api.conf'
        self.conf.write_text(
            f'[api_database]\nconnection = {self.api.url}\n'
            f'[claims]\nconnection = {claims.url}\n')

    def add_cell(self, name, **fields):
        samples.map_cell(self.api.database, samples.cell(name, **{
            'transport_url': 'none:///', **fields}))

    def add_cells(self):
        """Map cell0 and a cell; return the database of that."""
        for fields in ({'name': 'cell0', 'uuid': objects.CELL0_UUID},
                       {'name': 'cell1'}):
            opened = self.useFixture(databases.CellDatabase())
            self.add_cell(database_connection=opened.url, **fields)
        return opened.database

    def run_status(self, *argv):
        """Return the code that the command ends with, and what it prints."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = status.Status().run([f'--config-file={self.conf}', *argv])
        for text in out.getvalue(), err.getvalue():
            self.assertNotIn(PASSWORD, text)
            self.assertNotIn('Traceback', text)
        return code, out.getvalue(), err.getvalue()

    def assertRefuses(self, text):
        code, out, err = self.run_status('upgrade', 'check')
        self.assertEqual((255, ''), (code, out))
        self.assertEqual(1, len(err.splitlines()), err)
        self.assertIn(text, err)

    def test_configuration_is_found_by_the_environment(self):
        self.add_cells()
        self.useFixture(fixtures.EnvironmentVariable(
            loader.VARIABLE, str(self.conf)))
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = status.Status().run(['upgrade', 'check'])

        self.assertEqual(0, code, out.getvalue())
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(0, status.Status().run(['--version']))
        self.assertRegex(out.getvalue(), r'^cellsched-status \d')

    def test_ready_deployment_exits_with_0(self):
        self.add_cells()

        ran = processes.run('status', f'--config-file={self.conf}',
                            'upgrade', 'check')

        self.assertEqual((0, ''), (ran.returncode, ran.stderr), ran.stdout)
        self.assertEqual(6, ran.stdout.count('Result: Success'), ran.stdout)

    def test_warning_ends_with_1_and_json_is_for_programs(self):
        with self.add_cells().writer() as connection:
            compute_nodes.save(connection, samples.uuids(1)[0], 'host',
                               'node', samples.NODE, samples.NOW)

        code, out, err = self.run_status('upgrade', 'check', '--json')

        self.assertEqual((1, ''), (code, err), out)
        self.assertEqual({
            'Cells v2': 0, 'Schemas': 0, 'Host mappings': 1,
            'Compute services': 0, 'Heartbeats': 0, 'Claims': 0},
            {each['check']: each['result']
             for each in json.loads(out)['checks']})

    def test_failure_ends_with_2(self):
        self.add_cells()
        self.add_cell('broken', database_connection=(
            f'postgresql+psycopg2://u:{PASSWORD}@127.0.0.1:1/x'))

        code, out, err = self.run_status('upgrade', 'check')

        self.assertEqual((2, ''), (code, err), out)
        self.assertIn('broken', out)

    def test_failed_checks_exit_with_255_and_a_single_line(self):
        self.conf.write_text('[scheduler]\nnonsense = 1\n')
        self.assertRefuses('nonsense')
        self.conf.write_text('')
        self.assertRefuses('[api_database] connection')
        self.conf.write_text(f'connection is u:{PASSWORD}\n')
        self.assertRefuses(str(self.conf))
        self.conf.write_bytes(b'# caf\xe9\n')
        self.assertRefuses('UTF-8')
        self.conf.unlink()
        self.assertRefuses(str(self.conf))
        self.conf.mkdir()
        self.assertRefuses(str(self.conf))

    def test_option_for_shell_completion_does_not_exist(self):
        self.assertNotIn('shell_completion', loader.new_conf())

    def test_wrong_command_line_is_no_failed_check(self):
        for argv in ([], ['upgrade'], ['upgrade', 'check', '--nonsense']):
            self.assertEqual(255, self.run_status(*argv)[0])
        self.assertEqual(0, self.run_status('--help')[0])
