# SPDX-License-Identifier: Apache-2.0
import logging
import os

from oslo_log import log

from cellsched.cmd import configuration
from cellsched import exception
from cellsched import plugins
from tests.unit import base

#: A configuration of logging that writes to a file.
LOGGING = """[loggers]
keys = root
[handlers]
keys = file
[formatters]
keys =
[logger_root]
level = %(level)s
handlers = file
[handler_file]
class = %(kind)s
args = (%(path)r,)
"""


class Handler(logging.Handler):
    """A handler that keeps the lines about the configuration."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.lines = []

    def emit(self, record):
        if record.name == configuration.__name__:
            self.lines.append((record.levelname, record.getMessage()))


class ConfigurationTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        root = logging.getLogger()
        self.addCleanup(setattr, root, 'handlers', root.handlers)
        self.addCleanup(root.setLevel, root.level)
        self.addCleanup(log.set_defaults, None, log.get_default_log_levels())
        self.directory = self.temporary_directory()
        self.path = self.directory / 'a.conf'
        self.logging = self.directory / 'logging.ini'

    def write(self, *lines):
        self.path.write_text('\n'.join(['[DEFAULT]', *lines, '']))

    def write_logging(self, level='INFO', kind='FileHandler', **values):
        self.logging.write_text(LOGGING % {
            'level': level, 'kind': kind,
            'path': str(self.directory / 'log'), **values})

    def read(self, *args):
        return configuration.ServiceConfiguration(
            [*args, '--config-file', str(self.path)], [plugins.CLAIMS])


class TestReadAgain(ConfigurationTestCase):

    def setUp(self):
        super().setUp()
        self.write()
        self.read_files = self.read()
        self.conf = self.read_files.conf
        self.handler = Handler()
        logging.getLogger().handlers = [self.handler]
        logging.getLogger(configuration.__name__).setLevel(logging.INFO)

    def assert_refused(self, expected):
        """Check that one line has the error, and that all values stay."""
        self.handler.lines.clear()
        self.read_files.read_again()

        [(level, text)] = self.handler.lines
        self.assertEqual('ERROR', level)
        self.assertIn(expected, text)
        self.assertEqual(1, len(text.splitlines()))
        self.assertEqual([self.handler], logging.getLogger().handlers)
        self.assertIs(False, self.conf.debug)
        self.assertIsNone(self.conf.log_config_append)

    def assert_changed(self):
        """Check that a valid file is read after the refused ones."""
        self.write('debug = true')
        self.handler.lines.clear()

        self.read_files.read_again()

        self.assertEqual([(
            'INFO', 'The configuration was read again; changed options: '
            '[DEFAULT] debug')], self.handler.lines)
        self.assertIs(True, self.conf.debug)

    def test_invalid_text_changes_no_option(self):
        for line, expected in (
                ('debug = maybe', '[DEFAULT] debug'),
                ('report_interval = often', '[DEFAULT] report_interval'),
                ('debugg = true', 'did you mean debug?'),
                ('no assignment', 'line 3')):
            self.write('debug = true' if 'debug =' not in line else '', line)
            self.assert_refused(expected)
        self.path.write_bytes(b'[DEFAULT]\ndebug = true\n# caf\xe9\n')
        self.assert_refused('UTF-8')
        self.assert_changed()

    def test_missing_file_changes_no_option(self):
        self.path.unlink()
        self.assert_refused('No such file')
        self.path.mkdir()
        self.assert_refused('directory')
        self.path.rmdir()
        self.assert_changed()

    def test_unusable_logging_file_changes_no_option(self):
        self.write('debug = true', f'log_config_append = {self.logging}')
        self.assert_refused('No such file')
        self.logging.mkdir()
        self.assert_refused('Is a directory')
        self.logging.rmdir()
        for text, expected in (
                ('', 'formatters'), ('s3cret\n', 'line 1 cannot be parsed'),
                ('[loggers]\ns3cret\n', 'line 2 cannot be parsed')):
            self.logging.write_text(text)
            self.assert_refused(expected)
            self.assertNotIn('s3cret', self.handler.lines[0][1])
        for values, expected in (
                ({'level': 'LOUD'}, 'LOUD'),
                ({'kind': 'missing.Handler'}, 'missing'),
                ({'path': '/missing/directory/log'}, '/missing/directory'),
                ({'path': 7.5}, 'TypeError')):
            self.write_logging(**values)
            self.assert_refused(expected)
        self.logging.write_bytes(b'# caf\xe9\n')
        self.assert_refused('decode')
        self.assert_changed()

    def test_changed_file_of_logging_is_loaded(self):
        self.write_logging('WARNING')
        self.write(f'log_config_append = {self.logging}')

        self.read_files.read_again()
        logging.getLogger().warning('after the reload')

        self.assertEqual(logging.WARNING, logging.getLogger().level)
        self.assertIn('after the reload',
                      (self.directory / 'log').read_text())

    def test_line_about_an_error_has_the_given_level(self):
        self.write('debug = maybe')

        self.read_files.read_again(logging.INFO)

        self.assertEqual(['INFO'], [level for level, _ in self.handler.lines])


class TestStart(ConfigurationTestCase):

    def refused(self):
        return str(self.assertRaises(
            exception.ConfigurationInvalid, self.read))

    def test_unusable_file_of_logging_is_named(self):
        self.write(f'log_config_append = {self.logging}')
        self.assertIn('No such file', self.refused())
        self.write_logging(level='LOUD')
        self.assertIn(f'[DEFAULT] log_config_append: {self.logging} cannot be '
                      'used: ValueError', self.refused())

    def test_unwritable_log_file_is_named(self):
        self.write(f'log_file = {self.directory}{os.sep}missing/log')

        self.assertIn('log_file', self.refused())
