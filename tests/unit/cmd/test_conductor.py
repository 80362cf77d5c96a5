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

    def test_it_runs_until_a_signal_stops_it(self):
        self.check_run(workers=1)

    def test_so_it_does_in_several_processes(self):
        self.check_run(workers=2)

    def test_hangup_makes_it_read_its_configuration_again(self):
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

    def test_database_that_is_not_set_is_one_line(self):
        self.assertEqual(
            (1, 'conductor: Configuration: [database] connection: it is not '
                'set; expected the SQLAlchemy URL of the cell database\n'),
            self.run_to_end('conductor'))

    def test_error_of_several_processes_is_one_line(self):
        code, error = self.run_to_end(
            'conductor', cell=True, conductor={'workers': 2}, database={
                'connection': f'sqlite:///{self.directory}/new.sqlite'})

        self.assertEqual((1, 1), (code, error.count('\n')))
        self.assertTrue(error.endswith(
            'run: cellsched-manage db sync\n'), error)

    def test_log_that_cannot_be_written_is_one_line(self):
        code, error = self.run_to_end(
            'conductor', cell=True, DEFAULT={'log_file': '/nowhere/at/all'})

        self.assertEqual((1, 1), (code, error.count('\n')))
        self.assertIn('[DEFAULT] log_file', error)
        self.assertIn('/nowhere/at/all', error)
