# SPDX-License-Identifier: Apache-2.0
"""Nova's services run with this scheduler in the place of their own.

``integrations/nova/tools/functional.py`` runs far more of Nova's tests.
"""

import json
import os
import pathlib
import subprocess
import sys

from integrations.nova.tools import environment
from tests.integration import base
from tests.integration.nova import caller
from tests.integration import serving

INTEGRATION = pathlib.Path(environment.__file__).parents[1]

#: Tests of Nova's, of seconds each: a plain request by columns, groups, a
#: move, and a request that goes by allocation candidates.
TESTS = (
    'test_json_filter',
    'test_server_group.ServerGroupTestV264.test_boot_servers_with_affinity',
    'test_cold_migrate.ColdMigrationAllowSameHost',
    'libvirt.test_vgpu.VGPUTests.test_create_servers_with_vgpu',
)


def python() -> pathlib.Path:
    """Return the python of the environment of Nova's own tests.

    :raises tests.integration.serving.NotInstalled: it cannot be made
    """
    caller.python()
    try:
        return environment.make()
    except subprocess.CalledProcessError as exc:
        raise serving.NotInstalled(
            f'What tests of Nova need cannot be installed: {exc.output}'
        ) from None


class TestCase(base.TestCase):

    # Each of Nova's tests starts all of its services.
    timeout_s = 600

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.python = base.installed(python)

    def run_python(self, *args, code=0):
        """Run Nova's python, which finds this checkout."""
        done = subprocess.run(
            [self.python, '-W', 'ignore', *args], cwd=INTEGRATION, text=True,
            env={**os.environ, 'PYTHONPATH': os.pathsep.join(
                environment.paths())},
            capture_output=True, check=False, timeout=self.timeout_s)
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done.stdout + done.stderr


class TestPackage(TestCase):

    def test_unit_tests_of_the_package_pass(self):
        said = self.run_python(
            '-m', 'unittest', 'discover', '-t', '.', '-s', 'tests')

        self.assertRegex(said, r'Ran [1-9]\d* tests')

    def test_what_cannot_be_honoured_is_named_line_by_line(self):
        conf = self.directory / 'nova.conf'
        conf.write_text(
            '[DEFAULT]\nservicegroup_driver = mc\n'
            '[filter_scheduler]\nenabled_filters = ComputeFilter,Missing\n'
            'weight_classes = no.such.Weigher\n')

        said = self.run_python(
            '-m', 'cellsched_nova.main', '--config-file', str(conf), code=1)

        lines = [line for line in said.splitlines()
                 if line.startswith('cannot be honoured: ')]
        for name, line in zip(
                ('servicegroup_driver', 'Missing', 'no.such.Weigher'), lines,
                strict=True):
            self.assertIn(name, line)


class TestFunctional(TestCase):

    def test_tests_of_nova_pass_with_this_scheduler(self):
        done = subprocess.run(
            [sys.executable, INTEGRATION / 'tools' / 'functional.py', *TESTS,
             '--failed', '-f', 'json', '--results', self.directory],
            stdout=subprocess.PIPE, text=True, check=False,
            timeout=self.timeout_s)

        found = json.loads(done.stdout)
        self.assertEqual(
            [], [name for row in found.values()
                 for name in (*row['unexplained'], *row['nova_only'])])
        passed = sum(row['both'] + row['passed_untried']
                     for row in found.values())
        self.assertEqual(sum(row['tests'] for row in found.values()), passed)
        self.assertGreaterEqual(passed, len(TESTS))
