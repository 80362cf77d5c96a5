# SPDX-License-Identifier: Apache-2.0
"""Servers that all processes of a run share.

::

    python -m tests.integration.sharing COMMAND…

runs a command, and starts one server of each kind when one of the command's
processes first asks for it. The servers go when the command has ended, however
that comes about. Without it, each process that needs servers starts its own.
"""

from concurrent import futures
import contextlib
import importlib
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from typing import Any

from tests.integration import processes
from tests.integration import serving

#: Names the socket at which servers can be asked for.
VARIABLE = 'CELLSCHED_SHARED_SERVERS'

#: As long as the slowest of all kinds may take to start.
_TIMEOUT_S = 700.0

_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class Servers:
    """One server of each kind, started when it is first asked for.

    The kinds are started at the same time, each by a thread of its own.
    """

    def __init__(self) -> None:
        self._started: dict[str, futures.Future[serving.SharedServer]] = {}
        self._lock = threading.Lock()
        self._pool = futures.ThreadPoolExecutor()

    def answer(self, name: str) -> dict[str, Any]:
        """Return what a process needs to use the server of a kind.

        :param name: the class with its module, as :func:`attached` asks
        """
        with self._lock:
            started = self._started.get(name)
            if started is None:
                started = self._pool.submit(_started, name)
                self._started[name] = started
        try:
            return {'server': started.result().description()}
        except serving.NotInstalled as exc:
            return {'not_installed': str(exc)}
        except Exception as exc:
            return {'error': f'{type(exc).__name__}: {exc}'}

    def close(self) -> None:
        """End all that were started, without the courtesies of a shutdown."""
        self._pool.shutdown()
        for started in self._started.values():
            if started.exception() is None:
                started.result().kill()
                started.result().cleanUp()


class Listener(socketserver.ThreadingUnixStreamServer):
    """Answers the processes of the run, at a socket in the file system."""

    daemon_threads = True
    #: All of them may ask at once.
    request_queue_size = 128

    def __init__(self, path: str, servers: Servers) -> None:
        super().__init__(path, _Handler)
        self.servers = servers


class _Handler(socketserver.StreamRequestHandler):

    server: Listener

    def handle(self) -> None:
        name = self.rfile.readline().decode().strip()
        answer = self.server.servers.answer(name)
        self.wfile.write(json.dumps(answer).encode() + b'\n')


def attached(
    kind: type[serving.SharedServer], path: str
) -> serving.SharedServer:
    """Return the server of a kind that the processes of this run share.

    :param path: of the socket, which :data:`VARIABLE` has
    :raises serving.NotInstalled: there is none on this machine
    :raises processes.ProcessFailed: it could not be started
    """
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_TIMEOUT_S)
        client.connect(path)
        client.sendall(f'{kind.__module__}:{kind.__qualname__}\n'.encode())
        with client.makefile('rb') as reader:
            answer = json.loads(reader.readline())
    if 'not_installed' in answer:
        raise serving.NotInstalled(answer['not_installed'])
    if 'error' in answer:
        raise processes.ProcessFailed(answer['error'])
    server = kind()
    server.attach(answer['server'])
    return server


def main(command: list[str]) -> int:
    """Run a command with shared servers; return its exit code.

    A signal that ends this process ends the command, too.
    """
    for number in _ENDING:
        signal.signal(number, _end)
    try:
        return _run(command)
    except _Ended as exc:
        # Whoever waits for this process sees what ended it.
        signal.signal(exc.number, signal.SIG_DFL)
        os.kill(os.getpid(), exc.number)
        raise


def _run(command: list[str]) -> int:
    directory = processes.make_directory(serving.ROOT)
    path = str(directory / 'servers')
    servers = Servers()
    with contextlib.ExitStack() as stack:
        stack.callback(processes.remove_directory, directory)
        stack.callback(servers.close)
        listener = stack.enter_context(Listener(path, servers))
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        stack.callback(listener.shutdown)
        # What the command starts belongs to its group.
        with subprocess.Popen(
                command, env={**os.environ, VARIABLE: path},
                process_group=0) as running:
            processes.guard(running.pid)
            try:
                return running.wait()
            finally:
                processes.kill_guarded(running.pid)


class _Ended(BaseException):
    """This process is told to end by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _end(number: int, frame: object) -> None:
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise _Ended(number)


def _started(name: str) -> serving.SharedServer:
    module, _, kind = name.partition(':')
    server: serving.SharedServer = getattr(
        importlib.import_module(module), kind)()
    server.setUp()
    return server


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
