# SPDX-License-Identifier: Apache-2.0
"""Nova's own client calls the running scheduler through a broker."""

import json
import pathlib
import subprocess

import fixtures

from tests.integration import base
from tests.integration.nova import answers
from tests.integration.nova import caller
from tests.integration.nova import moves
from tests.integration.nova import selections
from tests.integration.nova import updates
from tests.integration import processes
from tests.integration import serving
from tests import profile
from tests.unit.scheduler import test_requirements

NAMES = pathlib.Path(__file__).parent / 'nova' / 'names.py'


class TestQuorumQueues(
        answers.Answers, moves.Moves, updates.Updates, selections.Selections):
    quorum = True

    def test_queue_of_the_scheduler_has_the_type(self):
        self.world.check_queue()


@profile.by_default(
    own=True, reason='classic queues; the calls are proven on quorum queues')
class TestClassicQueues(
        answers.Answers, moves.Moves, updates.Updates, selections.Selections):
    quorum = False

    def test_queue_of_the_scheduler_has_the_type(self):
        self.world.check_queue()


@profile.full_only(
    'a pinned release of Nova; unit tests use the recorded names')
class TestNames(base.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # The installation does not count as time of the test.
        cls.python = base.installed(caller.python)

    def test_recorded_names_equal_the_names_of_nova(self):
        output = subprocess.run(
            [self.python, '-I', NAMES], cwd=self.directory, check=True,
            env=processes.environment(), stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True).stdout

        self.assertEqual(json.loads(output), json.loads(
            test_requirements.NOVA_NAMES.read_text()))


@profile.full_only('an environment of Nova that cannot be made')
class TestEnvironment(base.TestCase):

    def test_failed_installation_of_nova_is_reported(self):
        # No server listens on this port.
        for installer, index in ('PIP', 'INDEX_URL'), ('UV', 'DEFAULT_INDEX'):
            self.useFixture(fixtures.EnvironmentVariable(
                f'{installer}_{index}', f'http://{serving.ADDRESS}:9/'))
        for retries in 'PIP_RETRIES', 'UV_HTTP_RETRIES':
            self.useFixture(fixtures.EnvironmentVariable(retries, '0'))

        exc = self.assertRaises(
            serving.NotInstalled, caller.python, self.directory / 'nova')

        self.assertIn('Nova cannot be installed', str(exc))
        self.assertIn('nova==34.0.0', str(exc))
