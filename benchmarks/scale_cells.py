# SPDX-License-Identifier: Apache-2.0
"""Cells with many agents, each cell in one light process.

    scale_cells.py DIRECTORY CELLS HOSTS AT_ONCE

A process has the conductor of a cell and its agents, which are threads. All
processes are forked from this one, so that they share the memory of the code.
Each writes a line when its hosts are reported and when its services run. If
one of them ends, all end.

``AT_ONCE`` is the number of cells that start at the same time.
"""

import multiprocessing
import os
import pathlib
import signal
import sys
import threading
import time

from oslo_service import backend

from cellsched import silence_eventlet  # noqa: F401

backend.init_backend(backend.BackendType.THREADING)

from cellsched.cmd import launch  # noqa: E402
from cellsched.conf import loader  # noqa: E402
from cellsched import plugins  # noqa: E402
from cellsched.standalone import deployment  # noqa: E402
from cellsched.wiring import base  # noqa: E402
from cellsched.wiring import components  # noqa: E402
from cellsched.wiring import compute  # noqa: E402
from cellsched.wiring import services  # noqa: E402

#: Resources of a host; enough for all builds.
HOST = {'vcpus': 1000, 'memory_mb': 2 ** 20, 'local_gb': 100_000}

#: The first hosts of all cells have the most memory, then the second ones, so
#: that builds go to all cells.
STEP_MB = 512


def main(directory, cells, hosts, at_once):
    starting = multiprocessing.BoundedSemaphore(at_once)
    # Import all code before the fork, and keep the garbage collector from
    # writing to its pages.
    services.Components(
        loader.load(files=[str(directory / 'cell1.conf')], dirs=[]))
    plugins.load('oslo.messaging.drivers', 'rabbit')
    launch.freeze_objects()
    for number in range(1, cells + 1):
        if not os.fork():
            try:
                run_cell(directory, f'cell{number}', hosts, starting)
            finally:
                os._exit(1)
    _, status = os.wait()
    print(f'a cell has ended with {status}', flush=True)
    os.killpg(0, signal.SIGKILL)


def run_cell(directory, cell, hosts, starting):
    """Run the conductor of a cell and its agents."""
    with starting:
        conf = loader.load(files=[str(directory / f'{cell}.conf')], dirs=[])
        parts = components.CellComponents(conf)
        services.conductor(conf, parts).start()
        group, _ = compute.agent_group(parts, (
            base.AgentComponents(
                deployment.view(conf, host_options(directory, cell, number)),
                parts.clock, parts.claims, parts.databases, parts.transports)
            for number in range(1, hosts + 1)))
        say(f'{cell} has reported at {time.time()}')
        group.start()
    say(f'{cell} has started at {time.time()}')
    threading.Event().wait()


def host_options(directory, cell, number):
    host = f'{cell}-host{number}'
    return {'DEFAULT': {'host': host,
                        'state_path': str(directory / 'state' / host)},
            'fake_virt': {**HOST, 'memory_mb': (
                HOST['memory_mb'] - STEP_MB * number)}}


def say(line):
    # One write, so that lines of different processes do not mix.
    os.write(1, f'{line}\n'.encode())


if __name__ == '__main__':
    main(pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:]))
