# SPDX-License-Identifier: Apache-2.0
"""``tools/environment.sh`` and an environment of another user."""

import pathlib
import subprocess

from tests.unit import base

ROOT = pathlib.Path(__file__).resolve().parents[2]

#: The ownership is replaced: a test cannot make files of another user.
SCRIPT = '''set -eu
top=$1
. "$top/tools/environment.sh"
environment=$2
is_own() { false; }
owner() { echo alice; }
make_environment project
'''


class TestCheckout(base.TestCase):

    def test_script_without_a_checkout_ends_with_a_line(self):
        for top, shown in (('unset top', ''), ('top=', ''),
                           ('top=/nowhere', '/nowhere')):
            done = subprocess.run(
                ['bash', '-c', f'{top}; . tools/environment.sh; echo made'],
                cwd=ROOT, capture_output=True, text=True, check=False,
                timeout=60)

            self.assertEqual(
                (1, '', f"environment.sh: top is '{shown}'; expected the path "
                 'of the checkout\n'),
                (done.returncode, done.stdout, done.stderr))


class TestEnvironmentOfAnotherUser(base.TestCase):

    def setUp(self):
        super().setUp()
        self.environment = self.temporary_directory() / 'env'
        self.python = self.environment / 'bin' / 'python'
        self.python.parent.mkdir(parents=True)
        self.python.symlink_to('/bin/true')

    def make(self):
        """Run the script; return the exit code and the standard error."""
        done = subprocess.run(
            ['bash', '-c', SCRIPT, 'demo.sh', ROOT, self.environment],
            capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stderr

    def contents(self):
        return sorted(self.environment.rglob('*'))

    def refused(self):
        before = self.contents()

        code, err = self.make()

        self.assertEqual(1, code)
        self.assertEqual(
            f'demo.sh: {self.environment} belongs to alice and is not '
            'complete or not current; expected a checkout of your own, or '
            'this user\n', err)
        self.assertEqual(before, self.contents())

    def test_unusable_environment_is_kept(self):
        self.python.unlink()
        self.refused()

    def test_outdated_environment_is_kept(self):
        (self.environment / '.installed-project').write_text('of old files')
        self.refused()

    def test_unfinished_environment_is_kept(self):
        (self.environment / '.half-made').touch()
        self.refused()

    def test_complete_environment_is_used(self):
        _, err = self.make()
        self.assertIn('alice', err)
        state = subprocess.run(
            ['bash', '-c', 'top=$1; cd "$top"; cat requirements.txt '
             'test-requirements.txt upper-constraints.txt setup.cfg setup.py '
             'pyproject.toml tools/lowest.py tools/mutation/requirements.txt '
             '| cksum', 'state', ROOT],
            capture_output=True, text=True, check=True).stdout.strip()
        (self.environment / '.installed-project').write_text(
            f'{state} {ROOT}\n')

        self.assertEqual((0, ''), self.make())

    def test_missing_environment_is_not_of_another_user(self):
        """Without the right to write, the user is named."""
        self.python.unlink()
        self.python.parent.rmdir()
        self.environment.rmdir()
        script = SCRIPT.replace('make_environment project', '''
rm() { :; }
mkdir() { false; }
make_environment project''')

        done = subprocess.run(
            ['bash', '-c', script, 'demo.sh', ROOT, self.environment],
            capture_output=True, text=True, check=False, timeout=60)

        self.assertEqual(1, done.returncode)
        self.assertIn(f'{self.environment} cannot be created by ',
                      done.stderr)
