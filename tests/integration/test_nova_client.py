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
from tests.integration.nova import news
from tests.integration.nova import wishes
from tests.integration import processes
from tests.integration import serving
from tests import profile
from tests.unit.scheduler import test_requirements

NAMES = pathlib.Path(__file__).parent / 'nova' / 'names.py'


class TestQuorumQueues(
        answers.Answers, moves.Moves, news.News, wishes.Wishes):
    quorum = True

    def test_queue_of_the_scheduler_is_of_the_kind(self):
        self.world.check_queue()


@profile.by_default(
    own=True, reason='classic queues; the calls are proven on quorum queues')
class TestClassicQueues(
        answers.Answers, moves.Moves, news.News, wishes.Wishes):
    quorum = False

    def test_queue_of_the_scheduler_is_of_the_kind(self):
        self.world.check_queue()


class TestNames(base.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # To install Nova first is not of the test's time.
        cls.python = base.installed(caller.python)

    def test_names_that_are_recorded_are_those_of_nova(self):
        told = subprocess.run(
            [self.python, '-I', NAMES], cwd=self.directory, check=True,
            env=processes.environment(), stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True).stdout

        self.assertEqual(json.loads(told), json.loads(
            test_requirements.NOVA_NAMES.read_text()))


@profile.full_only('an environment of Nova that cannot be made')
class TestEnvironment(base.TestCase):

    def test_that_nova_cannot_be_installed_is_told(self):
        # Nobody listens there.
        for installer, index in ('PIP', 'INDEX_URL'), ('UV', 'DEFAULT_INDEX'):
            self.useFixture(fixtures.EnvironmentVariable(
                f'{installer}_{index}', f'http://{serving.ADDRESS}:9/'))
        for retries in 'PIP_RETRIES', 'UV_HTTP_RETRIES':
            self.useFixture(fixtures.EnvironmentVariable(retries, '0'))

        exc = self.assertRaises(
            serving.NotInstalled, caller.python, self.directory / 'nova')

        self.assertIn('Nova cannot be installed', str(exc))
        self.assertIn('nova==34.0.0', str(exc))
