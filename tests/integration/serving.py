# SPDX-License-Identifier: Apache-2.0
"""What every kind of real server has."""

import abc
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import os
import pathlib
import random
import shutil
import socket
from typing import Any
from typing import ClassVar

import fixtures

from tests.integration import processes

#: Where all of them listen.
ADDRESS = '127.0.0.1'

#: Where servers keep their directories. A test, which can be the first to
#: import this module, changes the place of temporary files, but servers
#: outlive tests.
ROOT = os.environ.get('TMPDIR') or '/tmp'

#: Times to look for ports, if someone took one between look and use.
_ATTEMPTS_MAX = 3


class NotInstalled(Exception):
    """A server is not on this machine."""


class Server(fixtures.Fixture, abc.ABC):
    """A server.

    Where it listens does not change when it is stopped or killed and started
    again, and what it keeps durably is still there.

    :param search_path: directories with its programs, in place of the usual
    :raises NotInstalled: one of its programs is in none of them
    """

    #: The Debian package.
    package: ClassVar[str]
    #: Programs that must be there.
    programs: ClassVar[tuple[str, ...]]
    #: Ports to listen on.
    ports: ClassVar[tuple[str, ...]]
    #: Part of the output of one that could not have its port.
    port_taken: ClassVar[str]

    def __init__(self, search_path: Sequence[str] | None = None) -> None:
        if search_path is None:
            search_path = [*self.usual_places(), *os.get_exec_path()]
        self.program = {name: self._find(name, search_path)
                        for name in self.programs}
        self._attached = False

    def _setUp(self) -> None:
        self.directory = processes.make_directory(ROOT)
        self.addCleanup(processes.remove_directory, self.directory)
        self.prepare()
        self.processes: list[processes.Process] = []
        self.addCleanup(self.kill)
        for left in reversed(range(_ATTEMPTS_MAX)):
            self.port = {name: self.useFixture(Port()).number
                         for name in self.ports}
            self.processes = self.make_processes()
            try:
                self.start()
                break
            except processes.ProcessFailed as exc:
                self.kill()
                if not left or self.port_taken not in str(exc):
                    raise
        self.addCleanup(self.stop)

    @classmethod
    def usual_places(cls) -> list[str]:
        """Return directories outside the path where its programs may be."""
        return []

    @abc.abstractmethod
    def prepare(self) -> None:
        """Fill the directory with what the server needs there."""

    @abc.abstractmethod
    def make_processes(self) -> list[processes.Process]:
        """Return its processes in the order in which they start."""

    def start(self) -> None:
        """Start what does not run, and wait until it is ready."""
        self._check_ownership()
        for process in self.processes:
            process.start()

    def stop(self) -> None:
        """Shut it down, if it runs."""
        self._check_ownership()
        for process in reversed(self.processes):
            process.stop()
        self._ensure_gone()

    def kill(self) -> None:
        """Make it break off, without a chance to put anything in order."""
        self._check_ownership()
        for process in reversed(self.processes):
            process.kill()
        self._ensure_gone()

    def _check_ownership(self) -> None:
        if self._attached:
            raise RuntimeError(
                'other processes use this server; who stops or kills one '
                'needs one of its own')

    def _find(self, program: str, search_path: Sequence[str]) -> str:
        found = shutil.which(program, path=os.pathsep.join(search_path))
        if found is None:
            raise NotInstalled(
                f'{program} is not installed here; it comes with the Debian '
                f'package {self.package}')
        return found

    def _ensure_gone(self) -> None:
        processes.wait_until(
            lambda: not processes.inside(self.directory),
            f'the processes of {self.directory} to end')


class SharedServer(Server):
    """A server with named parts, which other processes can use too."""

    @abc.abstractmethod
    def url(self, name: str) -> str:
        """Return the URL of a part, which is made if it is not there."""

    @abc.abstractmethod
    def drop(self, name: str) -> None:
        """Remove a part, if it is there, whoever uses it."""

    def description(self) -> dict[str, Any]:
        """Return what another process of this machine needs to use it.

        Whatever else a kind needs for that, it finds in the directory.
        """
        return {'directory': str(self.directory), 'port': self.port}

    def attach(self, description: Mapping[str, Any]) -> None:
        """Use a server that another process has started, and stops.

        This is in place of :meth:`setUp`; only parts can be made then, and
        removed.
        """
        self.directory = pathlib.Path(description['directory'])
        self.port = dict(description['port'])
        self._attached = True


class Port(fixtures.Fixture):
    """A port on which no server listens, kept from all other tests.

    It is outside the range from which clients' ports are taken, so that it
    stays free while a server is down.
    """

    def _setUp(self) -> None:
        limits = pathlib.Path('/proc/sys/net/ipv4/ip_local_port_range')
        first_of_clients = int(limits.read_text().split()[0])
        for number in random.SystemRandom().sample(
                range(10000, max(first_of_clients, 20000)), 1000):
            # An abstract name has one owner on the machine, and goes with
            # its process.
            reserved = socket.socket(socket.AF_UNIX)
            with contextlib.suppress(OSError):
                reserved.bind(f'\0cellsched-port-{number}')
                if _is_free(number):
                    self.number = number
                    self.addCleanup(reserved.close)
                    return
            reserved.close()
        raise OSError('no port is free')


def is_open(address: str, port: int) -> bool:
    """Return whether a server listens."""
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


def _is_free(port: int) -> bool:
    """Return whether no server listens on a port, and one may."""
    if is_open(ADDRESS, port):
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError:
            return False
    return True
