# SPDX-License-Identifier: Apache-2.0
"""The process of a conductor: it starts, stops, and says what is wrong."""

import signal

from tests.unit.cmd import services

STARTED = 'has started as host1'


class TestConductor(services.ServiceTestCase):

    def check_run(self, workers):
        service = self.start(
            'conductor', api=True, cell=True, conductor={'workers': workers})
        service.until(STARTED, workers)

        # The outputs of two reports at a time would mix.
        for count, number in enumerate((signal.SIGUSR1, signal.SIGUSR2), 1):
            service.signal(number)
            service.until('"keys_in_use"' if workers == 1
                          else ' Options of service ', count)

        self.assertEqual(0, service.stop(), service.output)

        self.assertEqual(workers, service.output.count('has stopped'))
        self.assertNotIn('Traceback', service.output)

    def test_conductor_runs_until_a_signal(self):
        self.check_run(workers=1)

    def test_conductor_with_two_workers_runs_until_a_signal(self):
        self.check_run(workers=2)

    def test_hangup_rereads_the_configuration(self):
        service = self.start(
            'conductor', cell=True, conductor={'workers': 1})
        service.until(STARTED)

        self.configure(cell=True, conductor={'workers': 1},
                       DEFAULT={'debug': 'true'})
        service.signal(signal.SIGHUP)
        service.until('debug changed from')
        (self.directory / 'service.conf').write_text('what?')
        service.signal(signal.SIGHUP)
        service.until('cannot be read again')

        self.assertEqual(0, service.stop(), service.output)

    def test_unset_database_is_refused_in_a_single_line(self):
        self.assertEqual(
            (1, 'conductor: Configuration: [database] connection: it is not '
                'set; expected the SQLAlchemy URL of the cell database\n'),
            self.run_to_end('conductor'))

    def test_error_of_several_processes_is_a_single_line(self):
        code, error = self.run_to_end(
            'conductor', cell=True, conductor={'workers': 2}, database={
                'connection': f'sqlite:///{self.directory}/new.sqlite'})

        self.assertEqual((1, 1), (code, error.count('\n')))
        self.assertTrue(error.endswith(
            'run: cellsched-manage db sync\n'), error)

    def test_unwritable_log_is_refused_in_a_single_line(self):
        code, error = self.run_to_end(
            'conductor', cell=True, DEFAULT={'log_file': '/nowhere/at/all'})

        self.assertEqual((1, 1), (code, error.count('\n')))
        self.assertIn('[DEFAULT] log_file', error)
        self.assertIn('/nowhere/at/all', error)
