# SPDX-License-Identifier: Apache-2.0
"""Packages of third parties are installed, and their plug-ins decide.

They are ``examples/third_party_*`` and the package that the page "Write a
filter" shows. All are installed in one directory.
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
import unittest

from cellsched.hosts import columns
from cellsched.hosts import document
from cellsched.testing import builders
from tests.integration import commands
from tests import profile
from tests.unit import base

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / 'doc/source/user/filter.rst'
EXAMPLES = ('third_party_class', 'third_party_driver', 'third_party_filter',
            'third_party_scheduler')

TIMEOUT_S = 600

PAGES = 'CUSTOM_HUGE_PAGES_MB'

_BLOCK = re.compile(
    r'^\.\. code-block:: (\w+)\n\n((?:   .*\n|\n)+)', re.MULTILINE)

#: The directory of the packages' sources, and that of the installed ones.
SOURCES, SITE = 'sources', 'site'


def setUpModule():
    """Install the packages where no other ones are."""
    TestCase.directory = pathlib.Path(tempfile.mkdtemp())
    unittest.addModuleCleanup(shutil.rmtree, TestCase.directory)
    sources = TestCase.directory / SOURCES
    for name in EXAMPLES:
        # A build leaves files beside the source.
        shutil.copytree(ROOT / 'examples' / name, sources / name,
                        ignore=shutil.ignore_patterns(
                            'build', '__pycache__', '*.egg-info'))
    page = sources / 'page'
    page.mkdir()
    text = PAGE.read_text(encoding='utf-8')
    for language, name in (('python', 'spare_memory.py'),
                           ('toml', 'pyproject.toml')):
        block, *_ = blocks(text, language)
        (page / name).write_text(block, encoding='utf-8')
    TestCase.site = TestCase.directory / SITE
    subprocess.run(
        [sys.executable, '-m', 'pip', '--quiet', 'install',
         '--disable-pip-version-check', '--no-index', '--no-deps',
         '--no-build-isolation', '--target', TestCase.site,
         *sorted(sources.iterdir())],
        check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
    TestCase.commands = commands.Commands(
        env={'PYTHONPATH': os.pathsep.join((str(TestCase.site), str(ROOT)))})
    TestCase.commands.setUp()
    unittest.addModuleCleanup(TestCase.commands.cleanUp)


class TestCase(base.TestCase):
    """A test with the installed packages."""

    commands: commands.Commands
    directory: pathlib.Path
    site: pathlib.Path

    def run_python(self, *args, directory=None):
        """Run Python with the packages; return what it printed."""
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', *args],
            cwd=directory or self.directory, capture_output=True, text=True,
            check=False, timeout=TIMEOUT_S,
            env={**os.environ, 'PYTHONPATH': str(self.site)})
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def cellsched(self, *args, code=0):
        """Run a command with the packages; return what it printed."""
        ended = self.commands.end_of(
            ['cellsched', *args, '-f', 'json'], self.directory)
        self.assertEqual(code, ended.code, ended)
        return ended.output + ended.errors

    def shown(self, kind, name):
        """Return the description of a plug-in, and its options."""
        shown = json.loads(self.cellsched('plugin', 'show', kind, name))
        return shown, [(each['group'], each['name'], each['default'])
                       for each in shown['options']]

    def plan(self, hosts, options, *wishes, code=0):
        """Return what ``cellsched plan`` prints for hosts.

        :param options: lines of the configuration file
        """
        directory = self.temporary_directory()
        snapshot, path = directory / 'hosts.json', directory / 'plan.conf'
        snapshot.write_text(json.dumps(document.dump(
            document.HostDocument(
                hosts, builders.NOW, {builders.CELL: 'north'}))))
        path.write_text('\n'.join(('[filter_scheduler]', *options, '')))
        return self.cellsched(
            '--config-file', str(path), 'plan', '--snapshot', str(snapshot),
            '--vcpus', '1', '--ram', '512', *wishes, code=code)

    def places(self, printed):
        return [each['host'] for each in json.loads(printed)['places']]

    def assertTestsPass(self, printed, least):
        """Check that so many tests ran, which unittest says at the end.

        A suite skips the tests of capabilities that a plug-in lacks.
        """
        found = re.search(
            r'^Ran (\d+) tests? in .*\n\nOK( \(skipped=1\))?$', printed,
            re.MULTILINE)
        self.assertIsNotNone(found, printed)
        self.assertGreaterEqual(int(found[1]), least)


class TestPackages(TestCase):

    def test_plugins_are_listed(self):
        listed = {(row['Kind'], row['Name']): row['Summary'] for row
                  in json.loads(self.cellsched('plugin', 'list'))
                  if not row['Problem']}

        for plugin, summary in {
                ('filter', 'GPUMemoryFilter'): 'Reject a host whose GPUs lack',
                ('filter', 'LicenceFilter'): 'Reject a host without a licence',
                ('weigher', 'GPUMemoryWeigher'): 'Score a host by its free',
                ('weigher', 'UnlicensedWeigher'): 'Score a host higher if it',
                ('resource_class', PAGES): 'Memory in pages of 1 GB',
                ('columns', 'cooling'): 'Keep hosts whose inlet air is cool',
                ('filter', 'CoolHostFilter'): 'Reject a host whose inlet air',
                ('virt', 'fpga'): 'Reports FPGA cards and their slots',
                ('filter', 'ComputeFilter'): ''}.items():
            self.assertIn(summary, listed[plugin])

    def test_plugins_are_shown_with_their_options(self):
        shown, options = self.shown('filter', 'GPUMemoryFilter')
        self.assertEqual('gpu_memory_mb', shown['hints'])
        self.assertEqual([('gpu_memory', 'reserve_mb', 0)], options)
        self.assertEqual([], self.shown('filter', 'LicenceFilter')[1])
        shown, options = self.shown('filter', 'SpareMemoryFilter')
        self.assertEqual('spare_memory', shown['module'])
        self.assertEqual([('spare_memory', 'keep_free_mb', 1024)], options)
        for names, kind, name in (
                ([('fpga', 'families'), ('fpga', 'slots')], 'virt', 'fpga'),
                ([('packing_scheduler', 'servers_max')], 'driver',
                 'packing_scheduler')):
            self.assertEqual(names, [
                option[:2] for option in self.shown(kind, name)[1]])

    def test_plugins_decide_in_deployments(self):
        self.assertTestsPass(self.run_python(
            '-m', 'unittest', 'tests.functional.third_party',
            'tests.functional.third_party_class',
            'tests.functional.third_party_driver', directory=ROOT), 16)

    def test_tests_of_the_packages_pass(self):
        for name, least in (
                ('third_party_class', 25), ('third_party_driver', 10)):
            self.assertTestsPass(self.run_python(
                '-m', 'unittest', 'discover', '-s', f'examples/{name}/tests',
                directory=ROOT), least)

    @profile.full_only('its suite runs by default over the driver of ours')
    def test_tests_of_the_scheduler_pass(self):
        self.assertTestsPass(self.run_python(
            '-m', 'unittest', 'discover', '-s',
            'examples/third_party_scheduler/tests', directory=ROOT), 15)

    def test_commands_of_the_page_run_the_tests(self):
        [test] = [block for block in blocks(
            PAGE.read_text(encoding='utf-8'), 'python')
            if 'unittest' in block]
        (self.directory / 'test_spare_memory.py').write_text(
            test, encoding='utf-8')

        self.assertTestsPass(self.run_python(
            *command('test_spare_memory')), 10)
        self.assertTestsPass(self.run_python(
            *command('discover'), directory=ROOT), 40)


class TestFilterPlan(TestCase):
    """Plans with ``examples/third_party_filter``."""

    def setUp(self):
        super().setUp()
        licensed = builders.aggregate(1, licence_products='database')
        broken = builders.aggregate(
            2, licence_products='broken', licence_servers='many')
        self.hosts = builders.table(
            host=['a', 'b', 'c'], nodename=['a', 'b', 'c'],
            free_ram_mb=[2048, 4096, 8192],
            stats=[json.dumps({'gpu_memory_free_mb': free_mb})
                   for free_mb in (4000, 1000, 0)],
            aggregates=[(licensed,), (licensed, broken), ()])

    def test_both_filters_decide(self):
        enabled = ['enabled_filters = GPUMemoryFilter,LicenceFilter']
        product = ['--extra-spec', 'licence:product=database']

        self.assertEqual(['a'], self.places(self.plan(
            self.hosts, enabled, '--hint', 'gpu_memory_mb=2000', *product)))
        printed = self.plan(
            self.hosts, enabled, '--hint', 'gpu_memory_mb=4001', *product,
            code=2)
        self.assertEqual([], self.places(printed))
        self.assertIn('GPUMemoryFilter', printed)

    def test_filter_named_by_its_path_decides_or_is_named(self):
        enabled = ['enabled_filters = LicenceFilter', 'available_filters = '
                   'third_party_filter.licences.LicenceFilter']

        self.assertEqual(['b'], self.places(self.plan(
            self.hosts, enabled, '--extra-spec', 'licence:product=database')))
        printed = self.plan(
            self.hosts, enabled, '--extra-spec', 'licence:product=broken',
            code=1)
        self.assertIn('Filter LicenceFilter failed. (--debug shows why)',
                      printed)


class TestClassPlan(TestCase):
    """Plans with ``examples/third_party_class``."""

    def plan_pages(self, pages, celsius_max=45, code=0):
        """Return what is printed of a plan on a cool host and a hot one."""
        heat = columns.Column('inlet_celsius', 'float64', 0.0, 'heat')
        hosts = builders.table(
            columns=[heat], host=['cool', 'hot'], nodename=['cool', 'hot'],
            inlet_celsius=[20.0, 40.0], available={PAGES: [1500, 2048]})
        return self.plan(
            hosts, ['enabled_filters = CoolHostFilter', '[cooling]',
                    f'inlet_celsius_max = {celsius_max}'],
            '--extra-spec', f'resources:{PAGES}={pages}', code=code)

    def test_plans_use_the_class(self):
        self.assertEqual(['hot'], self.places(self.plan_pages(1500)))
        self.assertIn('lack huge pages', self.plan_pages(2049, code=2))

    def test_plans_use_the_column(self):
        self.assertEqual([], self.places(self.plan_pages(1500, 35, code=2)))
        self.assertEqual(['cool'], self.places(self.plan_pages(1000, 35)))


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
