# SPDX-License-Identifier: Apache-2.0
"""The HTTP port of a service: health, readiness and metrics.

* ``/healthz`` checks the servers that the service needs, each with a round
  trip, in a limited time.
* ``/readyz`` says whether the service takes work.
* ``/metrics`` has the metrics for Prometheus.

All processes of a service accept connections on the same socket.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import contextlib
import dataclasses
import functools
import http
from http import server
import logging
import socket
import threading
from typing import Any
from typing import NamedTuple

from cellsched.clock import Clock
from cellsched import exception
from cellsched.observability.conditions import Conditions
from cellsched.observability.metrics import Metrics
from cellsched import urls

LOG = logging.getLogger(__name__)

#: Checks a server that the service needs; raises an error if that fails.
#: Returns a remark, such as the name of a cell that does not answer, or ''.
Check = Callable[[], str]

#: The begin of the names of checks without which a service gets no work.
BROKER = 'broker'

#: Seconds between two runs of a check.
KEPT_S = 1.0

#: Requests that are answered at a time.
_REQUESTS_MAX = 16

#: Seconds that a client may be silent.
_CLIENT_S = 5.0

#: The longest text of a problem that is shown.
_SHOWN_MAX = 300


@dataclasses.dataclass(eq=False)
class _Run:
    """A running or ended check, with the line about its result."""

    began: float
    done: Any
    line: str = ''


class Answer(NamedTuple):
    """The answer to a request."""

    status: http.HTTPStatus
    body: bytes
    media_type: str = 'text/plain; charset=utf-8'


class Monitor:
    """Answers the requests for health, readiness and metrics of a process.

    Checks run at the same time. A check that hangs is not started again before
    it ends, so it costs one thread.

    :param timeout_s: the seconds of all checks of a request
    :param start_thread: runs a function in a thread
    :param listener: the socket of :func:`listen` for :meth:`serve`
    """

    def __init__(
        self, metrics: Metrics, timeout_s: float, clock: Clock,
        start_thread: Callable[[Callable[[], None]], object],
        listener: socket.socket | None = None,
    ) -> None:
        self._listener = listener
        self._server: _Server | None = None
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._clock = clock
        self._start_thread = start_thread
        self._checks: Mapping[str, Check] = {}
        self._unready: Callable[[], str] = (
            lambda: 'the service has not started')
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
        #: The line of the last ended run of each check.
        self._lines: dict[str, str] = {}
        self._conditions = Conditions(LOG, clock.monotonic)

    def serve(self) -> None:
        """Answer HTTP requests from now on; without a socket, none."""
        if self._listener is not None and self._server is None:
            self._server = _Server(self._listener, self)
            self._start_thread(self._server.serve_forever)

    def stop(self) -> None:
        """Accept no further requests; the socket stays open."""
        if self._server is not None:
            self._server.shutdown()

    def wait_for(self, problem: str) -> None:
        """Answer that the service waits for a server before it starts."""
        text = f'the service has not started: {_shown(problem)}'
        self._unready = lambda: text
        self.serve()

    def watch(
        self, checks: Mapping[str, Check], unready: Callable[[], str]
    ) -> None:
        """Answer for a service, which has started.

        :param checks: a check of each server that the service needs, by name
        :param unready: returns why the service takes no work; empty if it
            does. Does not block
        """
        self._checks, self._unready = checks, unready

    def answer(self, path: str, accept: str) -> Answer:
        """Return the answer to a request of a path.

        :param accept: the media types that the client accepts
        """
        path = path.partition('?')[0]
        if path == '/metrics':
            return Answer(
                http.HTTPStatus.OK, *self._metrics.exposition(accept))
        if path == '/readyz':
            problem = self._unready() or self._broker_problem()
            return _answer(
                not problem, f'not ready: {problem}' if problem else 'ready')
        if path == '/healthz':
            if not self._checks:
                return _answer(False, self._unready())
            lines = self._health()
            healthy = all(line.startswith('[+]') for line in lines)
            return _answer(
                healthy, *lines, 'healthy' if healthy else 'unhealthy')
        return Answer(http.HTTPStatus.NOT_FOUND,
                      b'paths: /healthz /readyz /metrics\n')

    def _health(self) -> list[str]:
        """Return a line about each check, within the time limit."""
        deadline = self._clock.monotonic() + self._timeout_s
        lines = []
        for name, run in self._current(self._checks).items():
            ended = run.done.wait(max(deadline - self._clock.monotonic(), 0))
            seconds = self._clock.monotonic() - run.began
            lines.append(run.line if ended else
                         f'[-] {name}: no answer for {seconds:.1f} seconds')
        return lines

    def _broker_problem(self) -> str:
        """Return a problem that the last check of a broker has found, or ''.

        Check the brokers again, and wait for no check.
        """
        lines = [self._lines.get(name, '') for name in self._current(
            [each for each in self._checks if each.startswith(BROKER)])]
        return next((line.removeprefix('[-] ') for line in lines
                     if line.startswith('[-]')), '')

    def _current(self, names: Iterable[str]) -> dict[str, _Run]:
        """Return a running check, a recent result or a new check of each."""
        now = self._clock.monotonic()
        runs, new = {}, {}
        with self._lock:
            for name in names:
                run = self._runs.get(name)
                if run is None or (run.done.is_set()
                                   and now - run.began > KEPT_S):
                    run = new[name] = _Run(now, self._clock.event())
                runs[name] = self._runs[name] = run
        for name, run in new.items():
            self._start_thread(functools.partial(self._check, name, run))
        return runs

    def _check(self, name: str, run: _Run) -> None:
        failing = f'Health check of {name} fails'
        try:
            remark = self._checks[name]()
            self._conditions.end(failing)
            run.line = f'[+] {name}: ok{remark and "; "}{remark}'
        except Exception as exc:
            self._conditions.occur(failing, exc, logging.INFO)
            run.line = f'[-] {name}: {_shown(exception.describe(exc))}'
        finally:
            self._lines[name] = run.line
            run.done.set()


def _shown(problem: str) -> str:
    """Return a problem in one line, without passwords."""
    return ' '.join(urls.mask_text(problem).split())[:_SHOWN_MAX]


def _answer(good: bool, *lines: str) -> Answer:
    return Answer(
        http.HTTPStatus.OK if good else http.HTTPStatus.SERVICE_UNAVAILABLE,
        ''.join(f'{line}\n' for line in lines).encode())


def listen(address: str, port: int) -> socket.socket:
    """Return a socket for :class:`Monitor`; may be inherited.

    :raises cellsched.exception.ConfigurationInvalid: the address or the port
        cannot be used
    """
    try:
        info = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(
            info[4][:2], family=info[0], backlog=64)
    except OSError as exc:
        raise exception.ConfigurationInvalid(
            field='[monitoring]',
            problem=f'cannot listen on {address} port {port}: {exc.strerror}',
            expected='a local address and a free port') from None
    # A connection may be accepted by another process just before.
    listener.setblocking(False)
    return listener


class _Server(server.ThreadingHTTPServer):
    """Answers HTTP requests in threads, up to a number at a time."""

    def __init__(self, listener: socket.socket, monitor: Monitor) -> None:
        super().__init__(
            listener.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.monitor = monitor
        #: The sockets of requests, the oldest first.
        self._requests: dict[socket.socket, None] = {}

    def verify_request(self, request: Any, client_address: Any) -> bool:
        if len(self._requests) < _REQUESTS_MAX:
            self._requests[request] = None
            return True
        # Clients that send slowly must not keep the threads.
        oldest = next(iter([*self._requests]), request)
        with contextlib.suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)
        return False

    def shutdown_request(self, request: Any) -> None:
        self._requests.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        LOG.debug('A request for the state of the service failed',
                  exc_info=True)


class _Handler(server.BaseHTTPRequestHandler):
    """Answers a request."""

    timeout = _CLIENT_S
    server: _Server

    def do_GET(self) -> None:
        """Answer; a request of HEAD has no body."""
        answer = self.server.monitor.answer(
            self.path, self.headers.get('Accept', ''))
        self.send_response(answer.status)
        self.send_header('Content-Type', answer.media_type)
        self.send_header('Content-Length', str(len(answer.body)))
        self.send_header('Cache-Control', 'no-store')
        self.end_headers()
        if self.command == 'GET':
            self.wfile.write(answer.body)

    do_HEAD = do_GET

    def version_string(self) -> str:
        """Return the name of the server, without versions."""
        return 'cellsched'

    def log_message(self, format: str, *args: Any) -> None:
        """Log requests, of which there are many, at the lowest level."""
        LOG.debug(format, *args)
