# SPDX-License-Identifier: Apache-2.0
"""The page "Installation" and the units name existing extras and files."""

import configparser
from importlib import metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys

from tests.unit import base
from tests.unit import tidy

PAGE = tidy.ROOT / 'doc' / 'source' / 'admin' / 'installation.rst'
MANUAL = tidy.ROOT / 'doc' / 'man'
UNITS = sorted((tidy.ROOT / 'etc' / 'systemd').glob('*.service'))

#: The default of ``graceful_shutdown_timeout``.
STOP_S = 60


class TestInstallation(base.TestCase):

    def setUp(self):
        super().setUp()
        self.text = PAGE.read_text(encoding='utf-8')
        #: The sections of the units, by their file names.
        self.units = {path.name: self.read(path) for path in UNITS}

    def read(self, path):
        unit = configparser.RawConfigParser()
        unit.optionxform = str
        unit.read(path, encoding='utf-8')
        return unit

    def test_extras_equal_the_extras_of_the_package(self):
        # What is installed has one of pbr's too.
        setup = configparser.RawConfigParser()
        setup.read(tidy.ROOT / 'setup.cfg', encoding='utf-8')
        self.assertEqual(
            {*setup['extras']},
            {*re.findall(r'(?m)^   \* - ``(\w+)``$', self.text)})

    def test_version_is_read_from_setup_cfg_with_any_git_tags(self):
        tree = self.temporary_directory()
        for name in ('setup.py', 'setup.cfg', 'README.rst',
                     'requirements.txt', 'pyproject.toml'):
            shutil.copy(tidy.ROOT / name, tree)
        git = ['git', '-C', str(tree), '-c', 'user.name=a', '-c',
               'user.email=a@example.org']
        env = {name: value for name, value in os.environ.items()
               if name != 'PBR_VERSION'}
        for command in (['init', '--quiet'],
                        ['commit', '--quiet', '--allow-empty', '-m', 'a'],
                        ['tag', '9.0.0'],
                        ['commit', '--quiet', '--allow-empty', '-m', 'b']):
            subprocess.run([*git, *command], check=True)

        ended = subprocess.run(
            [sys.executable, 'setup.py', '--version'], cwd=tree, env=env,
            capture_output=True, text=True)

        setup = configparser.RawConfigParser()
        setup.read(tidy.ROOT / 'setup.cfg', encoding='utf-8')
        version = setup['metadata']['version']
        self.assertEqual(version, ended.stdout.split('\n')[-2], ended.stderr)
        self.assertEqual(version, metadata.version('cellsched'))

    def test_units_run_each_service_with_files_of_the_page(self):
        files = {*re.findall(r'(?m)^   \* - ``(/etc/\S+)``$', self.text)}
        named, run = set(), set()
        for unit in self.units.values():
            program, *options = unit['Service']['ExecStart'].split()
            run.add(pathlib.Path(program).name)
            self.assertEqual({'--config-file'}, {*options[::2]})
            named |= {path.replace('%i', name) for path in options[1::2]
                      for name in ('api', 'cell1')}

        self.assertEqual(
            {'cellsched-scheduler', 'cellsched-conductor',
             'cellsched-compute'}, run)
        scripts = metadata.distribution('cellsched').entry_points.select(
            group='console_scripts')
        self.assertEqual(set(), run - scripts.names)
        self.assertEqual(files, named)

    def test_page_lists_the_units(self):
        self.assertEqual(
            {*self.units},
            {*re.findall(r'(?m)^   \* - ``(\S+\.service)``$', self.text)})

    def test_units_leave_time_to_stop_and_are_hardened(self):
        for unit in self.units.values():
            service = unit['Service']
            self.assertGreater(int(service['TimeoutStopSec']), STOP_S)
            # Workers would get a second signal, which ends them at once.
            self.assertEqual('mixed', service['KillMode'])
            self.assertEqual(
                ('notify', 'cellsched', 'true', 'strict', 'on-failure'),
                (service['Type'], service['User'],
                 service['NoNewPrivileges'], service['ProtectSystem'],
                 service['Restart']))

    def test_wheel_has_the_units(self):
        setup = (tidy.ROOT / 'setup.cfg').read_text(encoding='utf-8')
        [place] = re.findall(r'(?m)^    (\S+) = etc/systemd/\*$', setup)
        self.assertIn(f' /opt/cellsched/{place}/*.service\n', self.text)

    def test_wheel_has_the_manual_pages_of_the_units(self):
        setup = (tidy.ROOT / 'setup.cfg').read_text(encoding='utf-8')
        [place] = re.findall(r'(?m)^    (\S+) = doc/man/\*$', setup)
        self.assertIn(f' /opt/cellsched/{place}/*.1\n', self.text)
        named = {re.fullmatch(r'man:(\S+)\((1)\)', unit['Unit'][
            'Documentation']).expand(r'\1.\2')
            for unit in self.units.values()}

        self.assertEqual(named, {path.name for path in MANUAL.iterdir()})

    def test_manual_pages_have_the_words_of_their_sources(self):
        """``tools/test.sh docs`` writes the pages to ``doc/build/man``."""
        for path in MANUAL.iterdir():
            source = tidy.ROOT / 'doc/source/reference/commands' / (
                f'{path.stem}.rst')
            # A reference has another text in a manual page.
            text = re.sub(r'\(?:doc:`[^`]*`\)', '', source.read_text())
            page = re.sub(r'\\f.|\\(?=-)', '', path.read_text()).lower()

            self.assertEqual(
                [], [word for word in re.findall(r'\w[\w-]+', text.lower())
                     if word not in page])

    def test_systemd_reads_the_units(self):
        if shutil.which('systemd-analyze') is None:
            self.skipTest('systemd-analyze is missing; Debian has it in the '
                          'package systemd')
        directory = self.temporary_directory()
        programs = str(pathlib.Path(sys.executable).parent)
        for path in UNITS:
            unit = directory / path.name.replace('@', '@cell1')
            # Whether a program is there is looked at too. The pages of the
            # manual are not installed.
            unit.write_text(re.sub('Documentation=.*\n', '', path.read_text(
                encoding='utf-8').replace('/opt/cellsched/bin', programs)))

            done = subprocess.run(
                ['systemd-analyze', 'verify', str(unit)],
                capture_output=True, text=True, check=False, timeout=600)

            self.assertEqual((0, ''), (done.returncode, done.stderr))
