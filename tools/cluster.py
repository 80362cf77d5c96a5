# SPDX-License-Identifier: Apache-2.0
"""A cluster on this machine: servers, cells, services and agents.

    cluster.py up | status | down [--directory DIR] [--cells N] …

``tools/cluster.sh`` runs this in the environment that it makes. ``up`` starts
a process that starts all others, and stays until ``down`` ends it. If it is
killed, the others end too.
"""

import argparse
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from tests.integration import deployment
from tests.integration import processes
from tests.integration import servers
from tests.integration import serving

#: Exit codes of ``status``, as those of init scripts.
RUNS, BROKEN, DOWN = 0, 1, 3

#: The capacity of each host.
HOST = {'vcpus': 16, 'memory_mb': 65536, 'local_gb': 400}

#: Seconds to wait for the start, and for the end, of a whole cluster.
TIMEOUT_S = 600.0

#: The file with the processes of a cluster, and the log of the process that
#: starts them.
STATE, LOG = 'cluster.json', 'cluster.log'


class Database:
    """PostgreSQL, with readable names of databases."""

    def __init__(self, server: servers.PostgreSQL) -> None:
        self._server = server

    def url(self, name: str) -> str:
        """Return the URL of a database, which is created if needed."""
        return servers.by_psycopg(self._server.url(f'cellsched_{name}'))


class Deployment(deployment.Deployment):
    """A deployment whose services have ports for health and metrics.

    :ivar ports: the port of each service, by the name of its process
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.ports: dict[str, int] = {}

    def _write(self, name: str, groups: Mapping[str, Any]) -> None:
        if name.startswith('control'):
            services = ['scheduler', 'conductor']
        elif name in self._cells:
            services = ['conductor']
        else:
            services = [] if name == 'api' else ['compute']
        ports = {service: self.useFixture(serving.Port()).number
                 for service in services}
        self.ports.update({f'cellsched-{service}-{name}': port
                           for service, port in ports.items()})
        super()._write(name, {**groups, 'monitoring': {
            f'{service}_port': port for service, port in ports.items()}})


class Cluster:
    """A cluster that this process runs.

    :param stack: the exit stack that ends it
    """

    def __init__(
        self, stack: contextlib.ExitStack, directory: pathlib.Path,
        cells: int, agents: int, schedulers: int,
    ) -> None:
        self.directory = directory
        self.broker = stack.enter_context(servers.RabbitMQ())
        self.database = stack.enter_context(servers.PostgreSQL())
        self.deployment = stack.enter_context(Deployment(
            self.broker, Database(self.database), {
                f'cell{cell}': {
                    f'cell{cell}-host{host}': HOST
                    for host in range(1, agents + 1)}
                for cell in range(1, cells + 1)},
            workers=1, directory=directory, controls=schedulers))
        (directory / 'prometheus.yml').write_text(json.dumps({
            'global': {'scrape_interval': '15s'},
            'scrape_configs': [{'job_name': 'cellsched', 'static_configs': [{
                'targets': [f'{serving.ADDRESS}:{port}' for port in
                            self.deployment.ports.values()]}]}]}, indent=2))

    @property
    def processes(self) -> list[processes.Process]:
        """All processes, the servers first."""
        return [*self.broker.processes, *self.database.processes,
                *self.deployment.services]

    def start(self) -> None:
        """Start the processes that do not run."""
        for server in self.broker, self.database:
            server.start()
        started = [each for each in self.deployment.services
                   if not each.running]
        for each in started:
            each.start()
        for each in started:
            each.wait_for(r'has started as .*\n')

    def write(self, number: int) -> None:
        """Write the state of the cluster.

        :param number: incremented with each write
        """
        path = self.directory / STATE
        new = path.with_suffix('.new')
        new.write_text(json.dumps({
            'number': number, 'pid': os.getpid(),
            'amqp': self.broker.port['amqp'],
            'sql': self.database.port['sql'],
            'processes': {each.name: each.pid for each in self.processes},
            'ports': self.deployment.ports}))
        new.replace(path)


def run(args: argparse.Namespace) -> int:
    """Run a cluster until SIGTERM; SIGHUP starts what has ended."""
    received: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: received.put(number))
    # The files have passwords.
    os.umask(0o077)
    with contextlib.ExitStack() as stack:
        cluster = Cluster(stack, args.directory, args.cells, args.agents,
                          args.schedulers)
        count = 1
        cluster.write(count)
        while received.get() == signal.SIGHUP:
            cluster.start()
            count += 1
            cluster.write(count)
        # What has been killed is no error at the end.
        for each in cluster.deployment.services:
            if not each.running:
                each.kill()
    return 0


def up(args: argparse.Namespace) -> int:
    """Start a cluster, or those of its processes that have ended."""
    state = read(args.directory)
    if state and is_ours(state['pid'], args.directory):
        if set(find(state, args.directory).values()) == {True}:
            print(f'The cluster in {args.directory} runs already.')
            return 0
        os.kill(state['pid'], signal.SIGHUP)
        wait_for(args.directory, state['number'] + 1, state['pid'])
        return status(args)
    made = not args.directory.exists()
    if state:
        remove(args.directory)
    elif not made and any(args.directory.iterdir()):
        raise SystemExit(f'--directory: {args.directory} is not empty; '
                         'expected a new directory or an empty one')
    # The account of PostgreSQL looks for its files below.
    args.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    if args.directory.stat().st_uid != os.getuid():
        raise SystemExit(f'--directory: {args.directory} belongs to another '
                         'user; expected a directory of your own')
    with open(args.directory / LOG, 'wb') as log:
        process = subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-m', 'tools.cluster', 'run',
             *options(args)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd='/',
            env={**os.environ, 'TMPDIR': str(args.directory)},
            start_new_session=True)
    print(f'Starting {args.cells} cells with {args.agents} agents each; this '
          'takes about a minute …', file=sys.stderr)
    try:
        wait_for(args.directory, 1, process.pid, process)
    except BaseException:
        process.terminate()
        process.wait(TIMEOUT_S)
        raise
    print(f'The cluster runs. Use it with\n\n    export CELLSCHED_CONFIG='
          f'{args.directory}/api.conf\n\nIts logs are in {args.directory}.')
    return 0


def status(args: argparse.Namespace) -> int:
    """Show the processes of a cluster; return the exit code."""
    state = read(args.directory)
    if not state or not is_ours(state['pid'], args.directory):
        print(f'No cluster runs in {args.directory}.')
        return DOWN
    found = find(state, args.directory)
    width = max(map(len, found))
    for name, runs in found.items():
        pid, port = state['processes'][name], state['ports'].get(name)
        print(f'{name:{width}}  {"runs" if runs else "has ended":9}  {pid:7}'
              + (f'  http://{serving.ADDRESS}:{port}' if port else ''))
    return RUNS if all(found.values()) else BROKEN


def down(args: argparse.Namespace) -> int:
    """End a cluster, and remove its files."""
    state = read(args.directory)
    if not state:
        print(f'No cluster runs in {args.directory}.')
        return 0
    if is_ours(state['pid'], args.directory):
        os.kill(state['pid'], signal.SIGTERM)
        processes.wait_until(
            lambda: not processes.is_alive(state['pid']),
            'the cluster to end', TIMEOUT_S)
    remove(args.directory)
    print(f'The cluster in {args.directory} has ended.')
    return 0


def read(directory: pathlib.Path) -> dict[str, Any] | None:
    try:
        return json.loads((directory / STATE).read_text())
    except FileNotFoundError:
        return None


def find(state: dict[str, Any], directory: pathlib.Path) -> dict[str, bool]:
    """Return whether each process runs, by name."""
    return {name: is_ours(pid, directory)
            for name, pid in state['processes'].items()}


def is_ours(pid: int, directory: pathlib.Path) -> bool:
    """Return whether a process belongs to the cluster in a directory.

    The number of one that has ended may belong to another process.
    """
    return processes.is_alive(pid) and pid in processes.inside(directory)


def wait_for(
    directory: pathlib.Path, number: int, pid: int,
    process: 'subprocess.Popen[bytes] | None' = None,
) -> None:
    """Wait until a cluster has written its state this many times."""
    end = time.monotonic() + TIMEOUT_S
    while (read(directory) or {}).get('number', 0) < number:
        if (process and process.poll() is not None
                or not processes.is_alive(pid) or time.monotonic() > end):
            log = (directory / LOG).read_text(errors='replace')
            raise SystemExit(f'The cluster does not start:\n{log[-2000:]}')
        time.sleep(0.2)


def remove(directory: pathlib.Path) -> None:
    """Remove the files of a cluster, and the directory if it is empty."""
    for path in directory.iterdir():
        if path.is_dir() and (path.name == 'state'
                              or path.name.startswith('cellsched-')):
            shutil.rmtree(path)
        elif path.name == STATE or path.suffix in (
                '.conf', '.log', '.new', '.yml'):
            path.unlink()
    with contextlib.suppress(OSError):
        directory.rmdir()


def options(args: argparse.Namespace) -> list[str]:
    return [f'--directory={args.directory}', f'--cells={args.cells}',
            f'--agents={args.agents}', f'--schedulers={args.schedulers}']


def count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1000:
        raise argparse.ArgumentTypeError(
            f'{text} is out of range; expected 1 to 1000')
    return number


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog='cluster.sh', description='Run a cluster on this machine.')
    commands = {'up': up, 'status': status, 'down': down, 'run': run}
    parser.add_argument('command', choices=commands,
                        metavar='up | status | down',
                        help='start, show or end the cluster')
    parser.add_argument(
        '--directory', type=lambda text: pathlib.Path(text).resolve(),
        default=pathlib.Path(
            tempfile.gettempdir(), f'cellsched-cluster-{os.getuid()}'),
        help='for all files; new or empty (%(default)s)')
    parser.add_argument('--cells', type=count, default=3,
                        help='number of cells (%(default)s)')
    parser.add_argument('--agents', type=count, default=2,
                        help='number of agents in each cell (%(default)s)')
    parser.add_argument('--schedulers', type=count, default=2,
                        help='number of schedulers, and of conductors above '
                             'the cells (%(default)s)')
    args = parser.parse_args(argv)
    try:
        return commands[args.command](args)
    except serving.NotInstalled as exc:
        raise SystemExit(str(exc)) from None


if __name__ == '__main__':
    sys.exit(main())
