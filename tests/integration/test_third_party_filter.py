# SPDX-License-Identifier: Apache-2.0
"""Packages of others are installed and decide.

``examples/third_party_filter`` is one; so is the one that the page "Write a
filter" shows.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

from cellsched.hosts import document
from cellsched.testing import builders
from tests.unit import base

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / 'examples' / 'third_party_filter'
PAGE = ROOT / 'doc/source/user/filter.rst'

TIMEOUT_S = 600

_BLOCK = re.compile(
    r'^\.\. code-block:: (\w+)\n\n((?:   .*\n|\n)+)', re.MULTILINE)


class TestCase(base.TestCase):
    """A package, installed where nothing else is."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        source, cls.site = cls.directory / 'source', cls.directory / 'site'
        cls.write(source)
        subprocess.run(
            [sys.executable, '-m', 'pip', '--quiet', 'install',
             '--disable-pip-version-check', '--no-index', '--no-deps',
             '--no-build-isolation', '--target', cls.site, source],
            check=True, capture_output=True, text=True, timeout=TIMEOUT_S)

    def run_python(self, *args, directory=None, code=0):
        """Run a command that finds the package; return what it printed."""
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', *args],
            cwd=directory or self.directory, capture_output=True, text=True,
            check=False, timeout=TIMEOUT_S,
            env={**os.environ, 'PYTHONPATH': str(self.site)})
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def cellsched(self, *args, code=0):
        """Run a command of ours; return what it printed."""
        return self.run_python(
            '-c', 'import sys; from cellsched.cmd import shell; '
            'sys.exit(shell.main())', *args, '-f', 'json', code=code)

    def shown(self, name):
        """Return what is told of a filter."""
        return json.loads(self.cellsched('plugin', 'show', 'filter', name))

    def assertTestsPass(self, printed, least):
        """Check that so many tests ran, which unittest says at the end.

        A suite skips the tests of capabilities that a plug-in lacks.
        """
        found = re.search(
            r'^Ran (\d+) tests? in .*\n\nOK( \(skipped=1\))?$', printed,
            re.MULTILINE)
        self.assertIsNotNone(found, printed)
        self.assertGreaterEqual(int(found[1]), least)


class Example(TestCase):

    @classmethod
    def write(cls, source):
        # To build leaves things beside the source.
        shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns(
            'build', '__pycache__', '*.egg-info'))


class TestExample(Example):

    def test_its_own_tests_pass(self):
        self.assertTestsPass(self.run_python(
            *command('discover'), directory=ROOT), 40)

    def test_plugins_are_listed(self):
        listed = {(row['Kind'], row['Name']): row['Summary']
                  for row in json.loads(
                      self.cellsched('plugin', 'list'))}

        for plugin, summary in {
                ('filter', 'GPUMemoryFilter'): 'Reject a host whose GPUs lack',
                ('filter', 'LicenceFilter'): 'Reject a host without a licence',
                ('weigher', 'GPUMemoryWeigher'): 'Score a host by its free',
                ('weigher', 'UnlicensedWeigher'): 'Score a host higher if it',
                ('filter', 'ComputeFilter'): ''}.items():
            self.assertIn(summary, listed[plugin])

    def test_plugins_are_shown_with_their_options(self):
        shown = self.shown('GPUMemoryFilter')

        self.assertEqual(
            ('gpu_memory_mb', [('gpu_memory', 'reserve_mb', 0)]), (
                shown['hints'], [(each['group'], each['name'], each['default'])
                                 for each in shown['options']]))
        shown = self.shown('LicenceFilter')
        self.assertEqual([], shown['options'])

    def test_plugins_decide_in_a_deployment(self):
        self.assertTestsPass(self.run_python(
            '-m', 'unittest', 'tests.functional.third_party',
            directory=ROOT), 7)


class TestPlan(Example):
    """What is decided on a snapshot, by ``cellsched plan``."""

    def setUp(self):
        super().setUp()
        self.snapshot = self.temporary_directory() / 'hosts.json'
        licensed = builders.aggregate(1, licence_products='database')
        broken = builders.aggregate(
            2, licence_products='broken', licence_servers='many')
        hosts = builders.table(
            host=['a', 'b', 'c'], nodename=['a', 'b', 'c'],
            free_ram_mb=[2048, 4096, 8192],
            stats=[json.dumps({'gpu_memory_free_mb': free_mb})
                   for free_mb in (4000, 1000, 0)],
            aggregates=[(licensed,), (licensed, broken), ()])
        self.snapshot.write_text(json.dumps(document.dump(
            document.HostDocument(
                hosts, builders.NOW, {builders.CELL: 'north'}))))

    def plan(self, *wishes, code=0, **options):
        """Return what is printed with these filters enabled."""
        path = self.snapshot.with_name('plan.conf')
        path.write_text('[filter_scheduler]\n' + ''.join(
            f'{name} = {value}\n' for name, value in options.items()))
        return self.cellsched(
            '--config-file', str(path), 'plan', '--snapshot',
            str(self.snapshot), '--vcpus', '1', '--ram', '512', *wishes,
            code=code)

    def places(self, printed):
        return [each['host'] for each in json.loads(printed)['places']]

    def test_both_filters_decide(self):
        enabled = {'enabled_filters': 'GPUMemoryFilter,LicenceFilter'}
        product = ['--extra-spec', 'licence:product=database']

        self.assertEqual(['a'], self.places(self.plan(
            '--hint', 'gpu_memory_mb=2000', *product, **enabled)))
        printed = self.plan(
            '--hint', 'gpu_memory_mb=4001', *product, code=2, **enabled)
        self.assertEqual([], self.places(printed))
        self.assertIn('GPUMemoryFilter', printed)

    def test_filter_named_by_its_path_decides_or_is_named(self):
        enabled = {'enabled_filters': 'LicenceFilter', 'available_filters':
                   'third_party_filter.licences.LicenceFilter'}

        self.assertEqual(['b'], self.places(self.plan(
            '--extra-spec', 'licence:product=database', **enabled)))
        printed = self.plan(
            '--extra-spec', 'licence:product=broken', code=1, **enabled)
        self.assertIn('Filter LicenceFilter failed. (--debug shows why)',
                      printed)


class TestPage(TestCase):
    """The filter of the page and its test, to the letter."""

    @classmethod
    def write(cls, source):
        source.mkdir()
        text = PAGE.read_text(encoding='utf-8')
        for language, name in (('python', 'spare_memory.py'),
                               ('toml', 'pyproject.toml')):
            block, *_ = blocks(text, language)
            (source / name).write_text(block, encoding='utf-8')

    def test_filter_of_the_page_passes_its_test(self):
        [test] = [block for block in blocks(
            PAGE.read_text(encoding='utf-8'), 'python')
            if 'unittest' in block]
        (self.directory / 'test_spare_memory.py').write_text(
            test, encoding='utf-8')

        self.assertTestsPass(self.run_python(
            *command('test_spare_memory')), 10)

    def test_filter_of_the_page_is_shown_with_its_option(self):
        shown = self.shown('SpareMemoryFilter')

        self.assertEqual('spare_memory', shown['module'])
        self.assertEqual([('spare_memory', 'keep_free_mb', 1024)], [
            (each['group'], each['name'], each['default'])
            for each in shown['options']])


def command(word):
    """Return the one of the page's commands that runs these tests."""
    [found] = re.findall(
        rf'^    \.venv/bin/python (-m unittest .*\b{word}\b.*)$',
        PAGE.read_text(encoding='utf-8'), re.MULTILINE)
    return found.split()


def blocks(text, language):
    """Return the blocks of a language."""
    return [textwrap.dedent(block).strip() + '\n'
            for found, block in _BLOCK.findall(text) if found == language]
