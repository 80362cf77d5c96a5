# SPDX-License-Identifier: Apache-2.0
"""Builds at a steady rate, and what the processes need meanwhile.

    soak.py [--minutes N] [--rate N] [--cells N] [--agents N]

``tools/soak.sh`` runs this in the environment that it makes. It starts a
cluster of its own, creates servers, and deletes each one that is ACTIVE. It
fails if a server is in ERROR, if the memory of a process grows, if the number
of connections grows, or if the audit finds anything at the end.
"""

import argparse
import collections
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
import contextlib
import os
import pathlib
import sys
import tempfile
import time

from cellsched.conf import loader
from cellsched import context
from cellsched.wiring import services
from tests.integration import processes
from tools import cluster

#: Seconds between two looks at the servers and the processes.
TICK_S = 1.0

#: Seconds until the last servers are ACTIVE, or gone.
END_S = 120.0

#: Memory in MB, as a share and in addition, and connections, that a process
#: may have more in the last fifth of the run than in the second one. Pools
#: open connections until they have as many as are used at the same time.
SHARE, MORE_MB, MORE_CONNECTIONS = 0.05, 6.0, 10

USER = context.member('soak', 'soak')

_PAGE_MB = os.sysconf('SC_PAGE_SIZE') / 2 ** 20
_ESTABLISHED = '01'

Sample = Mapping[str, tuple[float, int]]


class Soak:
    """A run: its servers, and samples of memory and connections."""

    def __init__(self, world: cluster.Cluster, stack: contextlib.ExitStack):
        self._world = world
        conf = loader.load(
            files=[str(world.directory / 'api.conf')], dirs=[])
        self._api = services.api(conf, services.Components(conf))
        stack.callback(self._api.close)
        self._api.flavors.create(context.admin(), 'soak', 1, 512, 1)
        self._callers = stack.enter_context(futures.ThreadPoolExecutor(8))
        self._deleted: set[str] = set()
        self.created = 0
        self.samples: list[Sample] = []

    def run(self, seconds: float, rate: float) -> None:
        """Build for a time, then wait until all servers are gone."""
        begin = time.monotonic()
        calls: collections.deque[futures.Future] = collections.deque()
        while (now := time.monotonic() - begin) < seconds:
            while self.created < now * rate:
                self.created += 1
                calls.append(self._callers.submit(
                    self._api.servers.create, USER,
                    f'soak{self.created}', 'soak'))
            self._delete_active()
            while calls and calls[0].done():
                calls.popleft().result()
            self.samples.append(self._sample())
            rest_s = TICK_S - (time.monotonic() - begin - now)
            time.sleep(max(rest_s, 0))
        for each in calls:
            each.result()
        processes.wait_until(
            lambda: not self._delete_active(), 'the servers to go', END_S)

    def _delete_active(self) -> int:
        """Delete the servers that are ACTIVE; return how many there are."""
        found = self._api.servers.list(USER, limit=1000).servers
        for each in found:
            if each.status == 'ERROR':
                raise SystemExit(
                    f'server {each.uuid} is in ERROR: {each.reason}')
            if each.status == 'ACTIVE' and each.uuid not in self._deleted:
                self._deleted.add(each.uuid)
                self._callers.submit(
                    self._api.servers.delete, USER, each.uuid)
        return len(found)

    def _sample(self) -> Sample:
        connections = connections_of()
        return {each.name: (memory_mb(each.pid), connections(each.pid))
                for each in self._world.deployment.services}


def memory_mb(pid: int) -> float:
    """Return the memory of a process that no other process shares, in MB."""
    _, resident, shared, *_ = pathlib.Path(
        f'/proc/{pid}/statm').read_text().split()
    return (int(resident) - int(shared)) * _PAGE_MB


def connections_of():
    """Return a function that counts the connections of a process."""
    sockets = {fields[9] for line in pathlib.Path(
        '/proc/net/tcp').read_text().splitlines()[1:]
        if (fields := line.split())[3] == _ESTABLISHED}

    def count(pid: int) -> int:
        return len(sockets & {*_sockets(pid)})
    return count


def _sockets(pid: int) -> Iterator[str]:
    for entry in pathlib.Path(f'/proc/{pid}/fd').iterdir():
        with contextlib.suppress(OSError):
            target = os.readlink(entry)
            if target.startswith('socket:['):
                yield target[len('socket:['):-1]


def growth(samples: Sequence[Sample]) -> Iterator[tuple[str, bool, str]]:
    """Compare the second fifth of a run with the last one.

    :returns: for each process its name, whether it grew, and text
    """
    fifth = len(samples) // 5
    first, last = samples[fifth:2 * fifth], samples[-fifth:]
    for name in samples[0]:
        mb, then_mb = (sum(each[name][0] for each in part) / fifth
                       for part in (first, last))
        used, then_used = (max(each[name][1] for each in part)
                           for part in (first, last))
        grew = (then_mb > mb * (1 + SHARE) + MORE_MB
                or then_used > used + MORE_CONNECTIONS)
        yield name, grew, (
            f'{mb:6.1f} MB, then {then_mb:6.1f} MB; '
            f'{used:3} connections, then {then_used:3}')


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog='soak.sh', description='Build at a steady rate.')
    parser.add_argument('--minutes', type=float, default=10.0,
                        help='length of the run (%(default)s)')
    parser.add_argument('--rate', type=float, default=20.0,
                        help='servers a second (%(default)s)')
    parser.add_argument('--cells', type=cluster.count, default=2,
                        help='number of cells (%(default)s)')
    parser.add_argument('--agents', type=cluster.count, default=2,
                        help='number of agents in each cell (%(default)s)')
    args = parser.parse_args(argv)
    with contextlib.ExitStack() as stack:
        directory = pathlib.Path(
            stack.enter_context(tempfile.TemporaryDirectory()))
        world = cluster.Cluster(
            stack, directory, args.cells, args.agents, 1)
        run = Soak(world, stack)
        run.run(args.minutes * 60, args.rate)
        failed = False
        for name, grew, text in growth(run.samples):
            failed |= grew
            print(f'{name:30} {text}{"  GROWS" if grew else ""}')
        world.deployment.manage(['api'], 'audit')
    print(f'{run.created} servers in {args.minutes:g} minutes; the audit '
          f'found nothing{"; something grows" if failed else ""}.')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
