# SPDX-License-Identifier: Apache-2.0
"""Measure select_destinations of Nova's manager and of the one in its place.

Run this with the Python that ``environment.py`` prints, and with the
``PYTHONPATH`` of ``integrations/nova/tools/environment.py``. It starts
PostgreSQL and Placement, and for each manager a process that runs
``novas_place_manager.py``. ``nova_select.py`` describes what runs. Both
managers have the same configuration, with the defaults of all options of this
project: the manager of this project reads hosts continuously while it is
measured.

The managers take turns. While one runs, the process of the other is suspended.
A turn begins with a request that is not a sample, because the resumed manager
must read the changes of the other.

The output is one JSON object. For each manager it has ``samples``, the bytes
of ``memory`` at the end, and the seconds from the ``start`` of the process to
its first answer.
"""

import native  # noqa: F401

import argparse
import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import time

import contents
import deployment
import managers
import nova_select

HERE = pathlib.Path(__file__).resolve().parent


def main(argv=None):
    parser = argparse.ArgumentParser(
        description='Measure select_destinations of both managers.')
    for name, default, meaning in (
            ('hosts', 10000, 'hosts'), ('cells', 80, 'cells'),
            ('instances', 1, 'servers in a request'),
            ('shapes', 0, 'kinds of hosts with NUMA cells'),
            ('turns', 4, 'turns of each'),
            ('nova', 5, "samples of Nova's in a turn"),
            ('ours', 400, 'samples of ours in all turns')):
        parser.add_argument(
            f'--{name}', type=int, default=default, metavar='N',
            help=f'{meaning} (default {default})')
    args = parser.parse_args(argv)
    for name, value in vars(args).items():
        if value < (name != 'shapes'):
            parser.error(f'--{name}: expected a number above 0')
    return nova_select.print_result(run, args)


def run(args):
    """Return the samples, start and memory of each manager."""
    hosts = contents.make_hosts(args.hosts, args.cells, shapes=args.shapes)
    counts = {'nova': [args.nova] * args.turns,
              'ours': [args.ours // args.turns
                       + (turn < args.ours % args.turns)
                       for turn in range(args.turns)]}
    with contextlib.ExitStack() as stack:
        deployed = stack.enter_context(deployment.deployed(
            hosts, with_hardware=bool(args.shapes)))
        # They start and take turns in this order.
        started = {name: stack.enter_context(
            Manager(name, deployed.conf, args)) for name in managers.NAMES}
        for turn in range(args.turns):
            for name, manager in started.items():
                manager.take_turn(counts[name][turn])
        return {name: {'samples': manager.samples, 'start': manager.start_s,
                       'memory': manager.memory()}
                for name, manager in started.items()}


class Manager(contextlib.AbstractContextManager):
    """The process of a manager, which is suspended except in its turns."""

    def __init__(self, name, file, args):
        self.samples = []
        began_at = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, HERE / 'novas_place_manager.py', name, file,
             '--hosts', str(args.hosts), '--cells', str(args.cells),
             '--instances', str(args.instances),
             '--shapes', str(args.shapes)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self._receive()
            self.start_s = time.perf_counter() - began_at
        except BaseException:
            self.__exit__()
            raise
        self._process.send_signal(signal.SIGSTOP)

    def __exit__(self, *exc_info):
        # The process ends at the end of its input.
        self._process.stdin.close()
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def take_turn(self, count):
        """Take this number of samples, after one request that is not one."""
        self._process.send_signal(signal.SIGCONT)
        self._ask(1)
        self.samples += self._ask(count) if count else []
        self._process.send_signal(signal.SIGSTOP)

    def memory(self):
        """Return the resident memory of the process in bytes."""
        status = pathlib.Path(f'/proc/{self._process.pid}/status').read_text()
        [kib] = [line.split()[1] for line in status.splitlines()
                 if line.startswith('VmRSS:')]
        return int(kib) * 1024

    def _ask(self, count):
        self._process.stdin.write(f'{count}\n')
        self._process.stdin.flush()
        return self._receive()

    def _receive(self):
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                f'a manager exited with code {self._process.wait()}')
        return json.loads(line)


if __name__ == '__main__':
    sys.exit(main())
