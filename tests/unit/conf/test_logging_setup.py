# SPDX-License-Identifier: Apache-2.0
"""Options of oslo.log that it does not check itself."""

import logging
import os

from cellsched.conf import loader
from cellsched.conf import logging_setup
from cellsched import exception
from tests.unit import base


class TestSetUp(base.TestCase):

    def test_invalid_value_is_refused_in_a_single_line(self):
        root = logging.getLogger()
        before = root.handlers[:], root.level
        self.addCleanup(setattr, root, 'handlers', before[0])
        self.addCleanup(root.setLevel, before[1])
        for text in ('default_log_levels = amqp=WARN,sqlalchemy',
                     'default_log_levels = amqp=LOUD',
                     'use_syslog = true\nsyslog_log_facility = LOG_NOSUCH'):
            path = self.temporary_directory() / 'cellsched.conf'
            path.write_text(f'[DEFAULT]\n{text}\n')
            conf = loader.load([], files=[str(path)], dirs=[])

            error = self.assertRaises(
                exception.ConfigurationInvalid,
                logging_setup.set_up, conf, 'cellsched')

            self.assertIn('default_log_levels', error.field)
            self.assertNotIn('\n', str(error))

    def test_pipe_is_refused_and_not_opened(self):
        path = self.temporary_directory() / 'logging.conf'
        os.mkfifo(path)

        error = self.assertRaises(
            exception.ConfigurationInvalid, logging_setup.load, str(path))

        self.assertIn(f'{path} cannot be used: it is a pipe', str(error))
