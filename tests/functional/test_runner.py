# SPDX-License-Identifier: Apache-2.0
"""The programs that run the tests."""

import io
import os
import pathlib
import subprocess
import sys

import subunit
import testtools

from tests.unit import base
from tools import affected
from tools import run_tests

TOP = pathlib.Path(__file__).resolve().parents[2]


class TestAffected(base.TestCase):

    def test_tests_of_a_module_precede_tests_of_its_importers(self):
        found = affected.unit_tests('cellsched/db/value_types.py')

        self.assertEqual('tests.unit.db.test_value_types', found[0])
        self.assertIn('tests.unit.audit.test_references', found)
        self.assertNotIn('tests.unit.audit.test_checks', found)

    def test_path_of_no_module_is_refused(self):
        for path in ('cellsched/nowhere.py', 'cellsched', 'README.rst',
                     'tests/unit/base.py', '/etc/passwd'):
            error = self.assertRaises(
                affected.NoModule, affected.unit_tests, path)
            self.assertIn(f'{path} is no module; expected', str(error))


class TestProcesses(base.TestCase):

    def test_modules_run_once_and_a_failed_import_is_a_failure(self):
        times = self.temporary_directory() / 'times'
        modules = ['tests.unit.test_context', 'tests.nowhere',
                   'tests.unit.test_urls']
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-m', 'tools.test_processes', '2',
             *modules], cwd=TOP, stdout=subprocess.PIPE, check=True,
            env={**os.environ, 'CELLSCHED_TEST_TIMES': str(times)})

        outcomes = []
        result = testtools.StreamToDict(outcomes.append)
        result.startTestRun()
        subunit.ByteStreamToStreamResult(io.BytesIO(done.stdout)).run(result)
        result.stopTestRun()
        names = [each['id'] for each in outcomes]
        self.assertEqual(len(set(names)), len(names))
        self.assertEqual(
            {'tests.unit.test_context', 'tests.unit.test_urls',
             'tests.nowhere'},
            {name if name == 'tests.nowhere' else name.rsplit('.', 2)[0]
             for name in names})
        [failed] = [each for each in outcomes if each['status'] != 'success']
        self.assertEqual(('tests.nowhere', 'fail'),
                         (failed['id'], failed['status']))
        self.assertIn('ModuleNotFoundError',
                      failed['details']['traceback'].as_text())
        lines = [line.split() for line in times.read_text().splitlines()]
        self.assertEqual(sorted(modules), sorted(line[-1] for line in lines))
        for own_s, children_s, duration_s, _ in lines:
            self.assertEqual('0.00', children_s)
            self.assertGreater(float(own_s), 0)
            self.assertGreater(float(duration_s), 0)


class TestParts(base.TestCase):

    def test_each_test_module_belongs_to_a_single_part(self):
        found = [module for part in ('unit', 'functional', 'integration')
                 for step in run_tests.steps_of(part)
                 for module in step.modules]

        self.assertEqual(
            sorted('.'.join(path.relative_to(TOP).with_suffix('').parts)
                   for path in (TOP / 'tests').rglob('test_*.py')),
            sorted(found))
