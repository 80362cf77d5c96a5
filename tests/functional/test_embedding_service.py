# SPDX-License-Identifier: Apache-2.0
"""The package ``examples/embedding_service`` is installed and works."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from tests.unit import base

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / 'examples' / 'embedding_service'

TIMEOUT_S = 600


class TestEmbeddingService(base.TestCase):
    """Another service builds servers, and survives that it is killed."""

    def setUp(self):
        super().setUp()
        directory = self.temporary_directory()
        source, self.site = directory / 'source', directory / 'site'
        # To build leaves things beside the source.
        shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns(
            'build', '__pycache__', '*.egg-info'))
        self.run_python(
            '-m', 'pip', '--quiet', 'install', '--no-index', '--no-deps',
            '--disable-pip-version-check', '--no-build-isolation',
            '--target', self.site, source)

    def run_python(self, *args):
        """Run a command that finds the package; return what it printed."""
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', *args], cwd=ROOT,
            capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
            env={**os.environ, 'PYTHONPATH': f'{self.site}:{ROOT}'})
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_its_own_tests_pass(self):
        printed = self.run_python(
            '-m', 'unittest', 'discover', '-s', EXAMPLE / 'tests')

        self.assertRegex(
            printed, re.compile(r'^Ran 3 tests in .*\n\nOK$', re.MULTILINE))
        self.assertTrue((self.site / 'embedding_service').is_dir())
