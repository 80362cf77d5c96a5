# SPDX-License-Identifier: Apache-2.0
"""The script for bash that ``cellsched complete`` prints, run in bash."""

import subprocess

from cellsched.cli import app
from tests.unit.cli import base

#: Completes the last of the arguments, as bash does.
COMPLETE = '''
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
"_${1//-/_}"
printf '%s\\n' "${COMPREPLY[@]}"
'''


class TestCompletion(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        (self.directory / 'some.conf').touch()

    def script(self, application):
        path = self.directory / f'{application.NAME}.bash'
        if not path.exists():
            ran = self.run_app(application, 'complete')
            self.assertEqual((0, ''), (ran.code, ran.err))
            path.write_text(ran.out)
        return path

    def completed(self, *words, application=app.Shell):
        """Return what bash offers for the last word."""
        done = subprocess.run(
            ['bash', '-c', COMPLETE, 'bash', self.script(application),
             application.NAME, *words], capture_output=True, text=True,
            check=True, timeout=60, cwd=self.directory)
        self.assertEqual('', done.stderr)
        return done.stdout.split()

    def test_commands_are_completed(self):
        self.assertEqual(['server', 'service'], self.completed('ser'))
        self.assertEqual(['list'], self.completed('server', 'li'))
        self.assertEqual(
            ['add-host'], self.completed('aggregate', 'add-'))
        self.assertIn('list', self.completed('server', 'group', ''))

    def test_options_before_the_command_do_not_affect_completion(self):
        for options in (['--config-file', 'a.conf'],
                        ['--config-file', '=', 'a.conf'],
                        ['--debug'], ['-v', '--os-project-id', 'server'],
                        ['--config-file', 'a', '--config-dir', 'b']):
            self.assertEqual(['server', 'service'],
                             self.completed(*options, 'ser'), options)
            self.assertEqual(['list'],
                             self.completed(*options, 'server', 'li'))
            self.assertIn('--sort', self.completed(
                *options, 'server', 'list', '--so'))
        self.assertEqual(['list'], self.completed(
            'server', '--config-file', 'a.conf', 'li'))

    def test_option_of_a_file_is_completed_as_a_file(self):
        for words in (['--config-file', 'so'], ['--config-file', '=', 'so'],
                      ['server', 'list', '--config-file', 'so']):
            self.assertEqual(['some.conf'], self.completed(*words), words)
        self.assertIn('some.conf', self.completed('--config-file', '='))
        self.assertIn('some.conf', self.completed('--config-file', ''))

    def test_options_are_completed(self):
        self.assertEqual(['--config-file', '--config-dir'],
                         self.completed('--conf'))
        self.assertEqual(['--config-file', '--config-dir'],
                         self.completed('server', 'list', '--conf'))
        self.assertEqual(['--flavor'], self.completed(
            'plan', '--fl'))

    def test_argument_of_a_command_is_completed_as_a_file(self):
        self.assertEqual(['some.conf'], self.completed('server', 'show', 'so'))

    def test_unknown_word_has_no_completion(self):
        self.assertEqual(['server', 'service'], self.completed('a.b', 'ser'))
        self.assertEqual([], self.completed('a.b'))

    def test_each_application_has_its_own_script(self):
        self.assertEqual(['sync', 'version'], sorted(self.completed(
            '--config-file', 'a', 'api_db', '',
            application=app.Manage))[:2])

    def test_script_completes_the_given_program_name(self):
        ran = self.run_app(app.Shell, 'complete', '--name', 'cs')

        self.assertIn('complete -F _cs cs\n', ran.out)
        self.assertEqual(0, self.run_app(
            app.Shell, 'complete', '--shell', 'none').code)
