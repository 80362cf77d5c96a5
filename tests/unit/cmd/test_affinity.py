# SPDX-License-Identifier: Apache-2.0
"""Which CPUs the processes of a service keep to."""

import os
import pathlib
import signal

from cellsched.cmd import affinity
from cellsched import exception
from tests.unit import base
from tests.unit.cmd import services

USABLE = sorted(os.sched_getaffinity(0))

#: Two, where the machine has as many.
CPUS = USABLE[:2]


def children(pid):
    return [int(child)
            for thread in pathlib.Path(f'/proc/{pid}/task').iterdir()
            for child in (thread / 'children').read_text().split()]


def cpus(pid):
    """Return the CPUs that any thread of a process may use."""
    found = set()
    for thread in pathlib.Path(f'/proc/{pid}/task').iterdir():
        found |= os.sched_getaffinity(int(thread.name))
    return sorted(found)


class TestAffinity(base.TestCase):

    def test_cpu_that_may_not_be_used_is_named(self):
        other = USABLE[-1] + 1
        error = self.assertRaises(
            exception.ConfigurationInvalid, affinity.Affinity, [*CPUS, other])
        self.assertIn('[DEFAULT] cpu_affinity', str(error))
        self.assertIn(f'not {other}', str(error))

    def test_without_cpus_nothing_changes(self):
        affinity.Affinity([]).keep()
        self.assertEqual(set(USABLE), os.sched_getaffinity(0))


class TestServices(services.ServiceTestCase):

    def start_workers(self, number):
        service = self.start(
            'scheduler', api=True, scheduler={'workers': number},
            DEFAULT={'cpu_affinity': ','.join(map(str, CPUS))})
        service.until('has started', number)
        return service

    def test_one_process_keeps_to_the_first(self):
        service = self.start_workers(1)
        self.assertEqual(CPUS[:1], cpus(service.popen.pid))

    def test_workers_take_them_in_turn(self):
        service = self.start_workers(3)
        self.assertEqual(
            sorted([[cpu] for cpu in (CPUS * 3)[:3]]),
            sorted(map(cpus, children(service.popen.pid))))
        # Who only waits for them is not kept anywhere.
        self.assertEqual(USABLE, cpus(service.popen.pid))

    def test_worker_in_place_of_another_takes_its_cpu(self):
        service = self.start_workers(2)
        for _ in range(2):
            before = {pid: cpus(pid) for pid in children(service.popen.pid)}
            ended = min(before)
            os.kill(ended, signal.SIGKILL)
            new = self.new_child(service, before)
            self.assertEqual(before[ended], cpus(new))

    def new_child(self, service, before):
        started = service.output.count('has started')
        service.until('has started', started + 1)
        [new] = set(children(service.popen.pid)) - set(before)
        return new

    def test_cpu_that_is_not_there_ends_it_with_one_line(self):
        code, errors = self.run_to_end(
            'scheduler', api=True, DEFAULT={'cpu_affinity': '65535'})
        self.assertEqual(1, code)
        self.assertRegex(errors, r'\A.*\[DEFAULT\] cpu_affinity.*\n\Z')

    def test_what_is_no_cpu_ends_it_with_one_line(self):
        for wrong in ('-1', 'all', '0-3'):
            code, errors = self.run_to_end(
                'scheduler', api=True, DEFAULT={'cpu_affinity': wrong})
            self.assertEqual(1, code)
            self.assertRegex(errors, r'\A.*cpu_affinity.*\n\Z')
