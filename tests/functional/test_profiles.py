# SPDX-License-Identifier: Apache-2.0
"""The contents of the profiles of the test suite."""

import os
import pathlib
import subprocess
import sys

from tests import profile
from tests.unit import base

TOP = pathlib.Path(__file__).resolve().parents[2]

#: Prints which tests of both profiles run, by name.
TESTS = '''
import unittest

from tests import profile


class Suite(unittest.TestCase):
    def test_one(self):
        print('ran one')

    def test_two(self):
        print('ran two')


@profile.full_only('a second server')
class Second(Suite):
    @classmethod
    def setUpClass(cls):
        print('started a second server')


@profile.by_default('test_one', own=True, reason='a second driver')
class Third(Suite):
    def test_three(self):
        print('ran three')


unittest.main(verbosity=2)
'''


class TestProfiles(base.TestCase):

    def run_tests(self, name, code=0):
        done = subprocess.run(
            [sys.executable, '-c', TESTS], cwd=TOP, capture_output=True,
            text=True, check=False,
            env={**os.environ, profile.VARIABLE: name})
        self.assertEqual(code, done.returncode, done.stderr)
        return done

    def test_full_profile_runs_all_tests(self):
        done = self.run_tests('full')

        self.assertEqual(
            {'ran one': 3, 'ran two': 3, 'ran three': 1,
             'started a second server': 1},
            {line: done.stdout.splitlines().count(line)
             for line in done.stdout.splitlines()})

    def test_default_profile_starts_no_unused_server(self):
        done = self.run_tests('')

        self.assertEqual(
            ['ran one', 'ran one', 'ran three', 'ran two'],
            sorted(done.stdout.splitlines()))
        for reason, times in ('a second server', 2), ('a second driver', 1):
            self.assertEqual(
                times, done.stderr.count(f'{profile.LEFT_OUT}{reason}'))

    def test_unknown_profile_is_refused(self):
        done = self.run_tests('fast', code=1)

        self.assertIn(
            'CELLSCHED_TEST_PROFILE=fast: unknown profile; '
            'expected default or full', done.stderr)
