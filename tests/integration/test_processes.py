# SPDX-License-Identifier: Apache-2.0
"""The processes of integration tests: what they promise the other tests."""

import os
import pathlib
import sys
from typing import Any

import testtools

from tests.integration import base
from tests.integration import processes


def process(directory: pathlib.Path, *lines: str, **options: Any):
    """Return a process of Python, not started."""
    code = '\n'.join(['import os, signal, subprocess', *lines])
    return processes.Process(
        [sys.executable, '-c', code], directory, **options)


class TestProcess(base.TestCase):

    def test_process_is_ready_after_its_output(self):
        each = self.useFixture(process(
            self.directory, 'print("port 17", flush=True)', 'signal.pause()',
            ready=r'port \d+'))

        self.assertTrue(each.running)
        self.assertEqual('port 17\n', each.output())

    def test_process_is_ready_after_a_function_returns_true(self):
        flag = self.directory / 'flag'

        self.useFixture(process(
            self.directory, f'open({str(flag)!r}, "w").close()',
            'signal.pause()', ready=flag.exists))

        self.assertTrue(flag.exists())

    def test_process_ending_before_ready_is_an_error_with_its_output(self):
        each = process(
            self.directory, 'raise SystemExit("no database")', ready='ready')

        error = self.assertRaises(processes.ProcessFailed, each.start)

        self.assertIn('no database', str(error))

    def test_process_not_ready_in_time_is_killed(self):
        each = process(self.directory, 'signal.pause()', ready='ready',
                       ready_timeout_s=0.1)

        self.assertRaises(TimeoutError, each.start)

        self.assertFalse(each.running)

    def test_process_ignoring_the_stop_is_killed_with_an_error(self):
        each = process(
            self.directory, 'signal.signal(signal.SIGTERM, signal.SIG_IGN)',
            'print("ready", flush=True)', 'while True: signal.pause()',
            ready='ready', stop_timeout_s=0.1)
        each.start()
        pid = each.pid

        self.assertRaises(TimeoutError, each.stop)

        self.assertFalse(processes.is_alive(pid))

    def test_process_ending_before_the_stop_is_an_error(self):
        each = process(self.directory, 'raise SystemExit(3)')
        each.start()
        processes.wait_until(lambda: not each.running, 'its end')

        error = self.assertRaises(processes.ProcessFailed, each.stop)

        self.assertIn('ended with 3 before it was asked to', str(error))

    def test_process_failing_at_the_stop_is_an_error(self):
        each = process(
            self.directory, 'try:', '    print("ready", flush=True)',
            '    signal.pause()', 'finally:', '    raise SystemExit(4)',
            ready='ready', stop_signal=2)
        each.start()

        error = self.assertRaises(processes.ProcessFailed, each.stop)

        self.assertIn('ended with 4 when asked to', str(error))

    def test_children_end_with_their_process(self):
        each = process(
            self.directory, 'child = subprocess.Popen(["sleep", "1000"])',
            'print(child.pid, flush=True)', 'signal.pause()', ready=r'\d+\n')
        each.start()
        child = int(each.output())
        self.assertTrue(processes.is_alive(child))

        each.stop()

        processes.wait_until(
            lambda: not processes.is_alive(child), "the child's end")

    def test_output_is_of_the_last_run(self):
        each = self.useFixture(process(
            self.directory, 'print("run", os.getpid(), flush=True)',
            'signal.pause()', ready='run .*\n'))
        first = each.output()

        each.kill()
        each.start()

        self.assertEqual(f'run {each.pid}\n', each.output())
        self.assertEqual(first + each.output(), each.log.read_text())

    def test_output_is_shown_when_a_test_fails(self):
        class Test(base.TestCase):
            def test(self):
                self.process(['sh', '-c', 'echo why; exec sleep 1000'],
                             ready='why')
                self.fail('it failed')

        result = testtools.TestResult()
        Test('test').run(result)

        [(_, text)] = result.failures
        self.assertIn('sh.log: {{{why}}}', text)

    def test_failing_command_is_an_error_with_its_output(self):
        error = self.assertRaises(
            processes.ProcessFailed, self.run_command, 'sh', '-c',
            'echo why >&2; exit 3')

        self.assertIn('ended with 3 instead of 0:\nwhy', str(error))

    def test_commands_of_the_project_are_in_the_path(self):
        with_path = processes.environment()['PATH']

        self.assertEqual(
            str(pathlib.Path(sys.executable).parent),
            with_path.split(os.pathsep)[0])
