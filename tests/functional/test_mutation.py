# SPDX-License-Identifier: Apache-2.0
"""The tests of tools/mutation.sh, and surviving mutations."""

import ast
import csv
import importlib.util
import pathlib
import pkgutil
import re
import sys
import threading

from tests.functional import base

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / 'tools/mutation'
SURVIVORS = ROOT / 'doc/source/contributor/mutation-survivors.csv'
GUARDS = ROOT / 'doc/source/contributor/guards.csv'

#: A test that passes, one that does not end, and one that a change breaks.
TESTS = {
    'test_sound.py': '',
    'test_endless.py': 'import pathlib, time\n'
                       'pathlib.Path("begun").touch()\n'
                       'time.sleep(1000)\n',
    'test_noticing.py': 'import cellsched\n'
                        'assert cellsched.NUMBER == 1\n',
}


def load(name):
    spec = importlib.util.spec_from_file_location(
        f'mutation_{name}', TOOL / f'{name}.py')
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestSuites(base.TestCase):

    def setUp(self):
        super().setUp()
        self.suites = load('suites')

    def exists(self, name):
        return (ROOT / name.replace('.', '/')).with_suffix('.py').is_file()

    def test_each_module_has_tests(self):
        for package in self.suites.BEYOND_UNIT:
            for path in (ROOT / package).rglob('*.py'):
                module = path.relative_to(ROOT).as_posix()
                for stage in self.suites.stages(ROOT, module):
                    self.assertTrue(all(map(self.exists, stage)), stage)

    def test_own_tests_run_before_tests_of_the_package(self):
        own, package, functional = self.suites.stages(
            ROOT, 'cellsched/conductor/tasks/lease.py')

        self.assertEqual(
            ['tests.unit.conductor.tasks.test_lease'], own)
        self.assertIn('tests.unit.conductor.test_recovery', package)
        self.assertIn('tests.functional.test_recovery', functional)

    def test_own_tests_can_be_several_modules(self):
        root = self.temporary_directory()
        tests = root / 'tests/unit/claims'
        tests.mkdir(parents=True)
        for name in 'test_memory', 'test_memory_groups', 'test_memories':
            (tests / f'{name}.py').touch()

        own, *_ = self.suites.stages(root, 'cellsched/claims/memory.py')

        self.assertEqual(['tests.unit.claims.test_memory',
                          'tests.unit.claims.test_memory_groups'], own)

    def test_package_has_the_tests_of_its_name(self):
        own, *_ = self.suites.stages(ROOT, 'cellsched/claims/sql/__init__.py')

        self.assertIn('tests.unit.claims.test_sql', own)


class TestTrees(base.TestCase):

    def setUp(self):
        super().setUp()
        self.trees = load('trees')
        self.root = self.temporary_directory()
        for name in ('benchmarks', 'cellsched', 'doc', 'etc', 'examples',
                     'tests', 'tools'):
            (self.root / name).mkdir()
        (self.root / 'setup.cfg').touch()
        (self.root / 'cellsched/__init__.py').write_text('NUMBER = 1\n')
        (self.root / 'tests/__init__.py').touch()
        for name, text in TESTS.items():
            (self.root / 'tests' / name).write_text(text)

    def copies(self, count=1):
        return self.trees.copies(self.root, count)

    def test_change_of_a_copy_affects_only_its_tests(self):
        with self.copies(2) as (tree, other):
            tree.check()
            with tree.changed('cellsched/__init__.py', 'NUMBER = 2\n'):
                self.assertTrue(tree.passes(['tests.test_sound'], 60))
                self.assertFalse(tree.passes(['tests.test_noticing'], 60))
                self.assertTrue(other.passes(['tests.test_noticing'], 60))
                self.assertEqual(
                    'NUMBER = 1\n',
                    (self.root / 'cellsched/__init__.py').read_text())
            self.assertTrue(tree.passes(['tests.test_noticing'], 60))

    def test_endless_tests_count_as_failed(self):
        with self.copies() as [tree]:
            self.assertFalse(tree.passes(['tests.test_endless'], 0.1))

    def test_interruption_ends_the_process_and_removes_the_copy(self):
        with self.copies() as [tree]:
            passed = []
            thread = threading.Thread(target=lambda: passed.append(
                tree.passes(['tests.test_endless'], None)))
            thread.start()
            while not (tree.path / 'begun').exists():
                thread.join(0.01)
            tree.running.stop()
            thread.join(60)

            self.assertEqual([False], passed)
            self.assertFalse(tree.passes(['tests.test_sound'], 60))
        self.assertFalse(tree.path.exists())


class TestSurvivors(base.TestCase):
    """Each row of the table is current, and has a reason."""

    def test_changed_lines_are_in_their_function(self):
        with SURVIVORS.open(encoding='utf-8', newline='') as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            module, function, change = (
                row[name].strip('`')
                for name in ('module', 'function', 'change'))
            source = (ROOT / module).read_text(encoding='utf-8')
            before, arrow, _ = change.partition(' → ')
            self.assertTrue(arrow, row)
            self.assertTrue(row['reason'].endswith('.'), row)
            self.assertIn(before, self.text(source, function), row)
        keys = [(row['module'], row['function'], row['change'])
                for row in rows]
        self.assertEqual(len(keys), len(set(keys)))

    def text(self, source, function):
        """Return what a function is made of, in one line."""
        node = ast.parse(source)
        for name in function.split('.'):
            node = next(each for each in ast.walk(node)
                        if getattr(each, 'name', None) == name
                        and hasattr(each, 'body'))
        return re.sub(r'\n\s*', ' ', ast.get_source_segment(source, node))


class TestGuards(base.TestCase):
    """Each row of the table is current."""

    def test_guards_are_in_their_modules_and_tests_exist(self):
        with GUARDS.open(encoding='utf-8', newline='') as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            module, text, test = (
                row[name].strip('`').replace(r'\n', '\n')
                for name in ('module', 'text', 'test'))
            source = (ROOT / module).read_text(encoding='utf-8')
            self.assertEqual(1, source.count(text), row['guard'])
            if not test.startswith('--'):
                self.assertTrue(callable(pkgutil.resolve_name(test)))
        self.assertGreater(len(rows), 15)
