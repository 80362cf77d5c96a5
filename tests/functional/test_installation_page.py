# SPDX-License-Identifier: Apache-2.0
"""The page "Installation" names existing extras and files."""

import configparser
from importlib import metadata
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

from tests.unit import base
from tests.unit import tidy

PAGE = tidy.ROOT / 'doc' / 'source' / 'admin' / 'installation.rst'

_UNIT = re.compile(
    r'^\.\. code-block:: ini\n   :caption: (.*)\n\n((?:   .*\n|\n)+)',
    re.MULTILINE)


class TestInstallation(base.TestCase):

    def setUp(self):
        super().setUp()
        self.text = PAGE.read_text(encoding='utf-8')
        #: The units by their captions.
        self.units = {caption: textwrap.dedent(text)
                      for caption, text in _UNIT.findall(self.text)}

    def test_extras_are_those_of_the_package(self):
        # What is installed has one of pbr's too.
        setup = configparser.RawConfigParser()
        setup.read(tidy.ROOT / 'setup.cfg', encoding='utf-8')
        self.assertEqual(
            {*setup['extras']},
            {*re.findall(r'(?m)^   \* - ``(\w+)``$', self.text)})

    def test_units_run_each_service_with_files_of_the_page(self):
        files = {*re.findall(r'(?m)^   \* - ``(/etc/\S+)``$', self.text)}
        named, run = set(), set()
        for text in self.units.values():
            [command] = re.findall(r'(?m)^ExecStart=(.*)$', text)
            program, *options = command.split()
            run.add(pathlib.Path(program).name)
            self.assertEqual({'--config-file'}, {*options[::2]})
            named |= {*options[1::2]}

        self.assertEqual(
            {'cellsched-scheduler', 'cellsched-conductor',
             'cellsched-compute'}, run)
        scripts = metadata.distribution('cellsched').entry_points.select(
            group='console_scripts')
        self.assertEqual(set(), run - scripts.names)
        self.assertEqual(files, named)

    def test_systemd_reads_the_units(self):
        if shutil.which('systemd-analyze') is None:
            self.skipTest('systemd-analyze is missing; Debian has it in the '
                          'package systemd')
        directory = self.temporary_directory()
        programs = str(pathlib.Path(sys.executable).parent)
        for number, text in enumerate(self.units.values()):
            unit = directory / f'cellsched-{number}.service'
            # Whether a program is there is looked at too.
            unit.write_text(text.replace('/opt/cellsched/bin', programs))

            done = subprocess.run(
                ['systemd-analyze', 'verify', str(unit)],
                capture_output=True, text=True, check=False, timeout=600)

            self.assertEqual((0, ''), (done.returncode, done.stderr))
