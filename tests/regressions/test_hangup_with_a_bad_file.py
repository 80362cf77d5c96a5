# SPDX-License-Identifier: Apache-2.0
"""SIGHUP while a file is broken changes nothing, and ends no process."""

import re
import signal

from tests import profile
from tests.unit.cmd import services

ERROR = 'ERROR .*The configuration cannot be read again'


class TestHangup(services.ServiceTestCase):

    def check(self, workers):
        """Break the files of a service, one after the other."""
        path = self.configure(cell=True, conductor={'workers': workers})
        valid = path.read_bytes()
        service = self.start_code(
            'from cellsched.cmd import conductor; conductor.main()',
            '--config-file', str(path))
        service.until('has started', workers)
        for number, broken in enumerate((
                valid.replace(b'[DEFAULT]', b'[DEFAULT]\ndebug = maybe'),
                valid + b'\n# caf\xe9\n',
                valid.replace(b'[DEFAULT]', b'[DEFAULT]\nlog_config_append = '
                              b'/missing')), 1):
            path.write_bytes(broken)
            service.signal(signal.SIGHUP)
            # The parent logs an error, and the workers log the text as INFO.
            service.until(ERROR, number)
            service.until('cannot be read again',
                          number * (workers + (workers > 1)))
        path.write_bytes(
            valid.replace(b'[DEFAULT]', b'[DEFAULT]\ndebug = true'))
        service.signal(signal.SIGHUP)
        service.until(r'changed options: \[DEFAULT\] debug',
                      workers + (workers > 1))

        self.assertEqual(0, service.stop(), service.output)
        self.assertEqual(workers, service.output.count('has started'))
        self.assertEqual(3, len(re.findall(ERROR, service.output)))
        self.assertNotIn('Traceback', service.output)

    def test_parent_and_workers_keep_their_options(self):
        self.check(workers=2)

    @profile.full_only('two workers read the same files')
    def test_single_process_keeps_its_values(self):
        self.check(workers=1)
