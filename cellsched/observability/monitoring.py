# SPDX-License-Identifier: Apache-2.0
"""The HTTP port of a service: health, readiness and metrics.

* ``/healthz`` checks the servers that the service needs, each with a round
  trip, in a limited time.
* ``/readyz`` says whether the service takes work.
* ``/metrics`` has the metrics for Prometheus.

All processes of a service accept connections on the same socket.
"""

from collections.abc import Callable
from collections.abc import Mapping
from concurrent import futures
import contextlib
import dataclasses
import http
from http import server
import logging
import math
import socket
import threading
from typing import Any
from typing import Protocol

from cellsched.clock import Clock
from cellsched.conditions import Conditions
from cellsched import exception
from cellsched.observability.metrics import Metrics
from cellsched import urls

LOG = logging.getLogger(__name__)

#: Checks a server that the service needs; raises an error if that fails.
#: Returns a remark, such as the name of a cell that does not answer, or ''.
Check = Callable[[], str]

#: The begin of the names of checks without which a service gets no work.
BROKER = 'broker'

#: Seconds for which the results of checks are used again.
KEPT_S = 1.0

#: Requests that are answered at a time, and further ones that wait.
_THREADS = 4
_WAITING_MAX = 12

#: Seconds that a client may be silent, and seconds of a request in all.
_CLIENT_S = 5.0
_REQUEST_S = 30.0

#: Seconds between searches for requests that take too long.
_POLL_S = 0.5

#: The longest text of a problem that is shown.
_SHOWN_MAX = 300


class MonitoredService(Protocol):
    """A service that is monitored."""

    def health_checks(self, timeout_s: float) -> Mapping[str, Check]:
        """Return a check for each server that it needs, by name.

        :param timeout_s: the seconds that a check may take
        """

    def unready(self) -> str:
        """Return why it takes no work; empty if it does. Does not block."""


@dataclasses.dataclass(eq=False)
class _Run:
    """A running or ended check."""

    began: float
    done: Any
    ended: float = math.inf
    problem: str | None = None
    remark: str = ''


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """The result of a check.

    :param problem: the problem; None if the check succeeded
    """

    name: str
    problem: str | None
    remark: str = ''


class HealthChecks:
    """Runs checks at the same time, each in a limited time.

    A check that hangs is not started again before it ends, so it costs one
    thread.

    :param start_thread: runs a function in a thread
    """

    def __init__(
        self, checks: Mapping[str, Check], timeout_s: float, clock: Clock,
        start_thread: Callable[[Callable[[], None]], object],
    ) -> None:
        self._checks = checks
        self._timeout_s = timeout_s
        self._clock = clock
        self._start_thread = start_thread
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
        # The result of the last ended run of each check.
        self._problems: dict[str, str | None] = {}
        self._conditions = Conditions(LOG, clock.monotonic)

    def results(self) -> list[CheckResult]:
        """Return the results of all checks, within the time limit."""
        now = self._clock.monotonic()
        deadline = now + self._timeout_s
        with self._lock:
            runs = {name: self._current(name, now) for name in self._checks}
        found = []
        for name, run in runs.items():
            if run.done.wait(max(deadline - self._clock.monotonic(), 0)):
                found.append(CheckResult(name, run.problem, run.remark))
            else:
                seconds = self._clock.monotonic() - run.began
                found.append(CheckResult(
                    name, f'no answer for {seconds:.1f} seconds'))
        return found

    def last_problem(self, kind: str) -> str:
        """Return a problem that the last run of a check has found, or ''.

        Runs the checks again, and waits for none of them.

        :param kind: the begin of the names of the checks
        """
        names = [name for name in self._checks if name.startswith(kind)]
        with self._lock:
            for name in names:
                self._current(name, self._clock.monotonic())
        return next((f'{name}: {self._problems[name]}' for name in names
                     if self._problems.get(name) is not None), '')

    def _current(self, name: str, now: float) -> _Run:
        """Return the running check, a recent result, or a new check."""
        run = self._runs.get(name)
        if run is None or (run.done.is_set() and now - run.ended > KEPT_S):
            run = self._runs[name] = _Run(now, self._clock.event())
            self._start_thread(lambda: self._run(name, run))
        return run

    def _run(self, name: str, run: _Run) -> None:
        failing = f'Health check of {name} fails'
        try:
            run.remark = self._checks[name]()
            self._conditions.end(failing)
        except Exception as exc:
            self._conditions.occur(failing, exc, logging.INFO)
            run.problem = _shown(exception.describe(exc))
        finally:
            self._problems[name] = run.problem
            run.ended = self._clock.monotonic()
            run.done.set()


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer to a request."""

    status: int
    body: bytes
    media_type: str = 'text/plain; charset=utf-8'


class Monitor:
    """Answers the requests for health, readiness and metrics of a process."""

    def __init__(
        self, metrics: Metrics, timeout_s: float, clock: Clock,
        start_thread: Callable[[Callable[[], None]], object],
    ) -> None:
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._clock = clock
        self._start_thread = start_thread
        self._service: MonitoredService | None = None
        self._health: HealthChecks | None = None
        self._starting = 'the service has not started'

    def wait_for(self, problem: str) -> None:
        """Answer that the service waits for a server before it starts."""
        self._starting = f'the service has not started: {_shown(problem)}'

    def watch(self, service: MonitoredService) -> None:
        """Answer for a service, which has started."""
        self._health = HealthChecks(
            service.health_checks(self._timeout_s), self._timeout_s,
            self._clock, self._start_thread)
        self._service = service

    def answer(self, path: str, accept: str) -> Answer:
        """Return the answer to a request of a path.

        :param accept: the media types that the client accepts
        """
        path = path.partition('?')[0]
        if path == '/metrics':
            body, kind = self._metrics.exposition(accept)
            return Answer(http.HTTPStatus.OK, body, kind)
        if path == '/readyz':
            problem = self._unready()
            return _answer(not problem, f'not ready: {problem}' if problem
                           else 'ready')
        if path == '/healthz':
            return self._check()
        return Answer(http.HTTPStatus.NOT_FOUND,
                      b'paths: /healthz /readyz /metrics\n')

    def _unready(self) -> str:
        """Return why the service takes no work; empty if it does."""
        if self._service is None or self._health is None:
            return self._starting
        return self._service.unready() or self._health.last_problem(BROKER)

    def _check(self) -> Answer:
        if self._health is None:
            return _answer(False, self._starting)
        results = self._health.results()
        lines = [
            f'[+] {each.name}: ok' + (f'; {each.remark}' if each.remark
                                      else '')
            if each.problem is None else f'[-] {each.name}: {each.problem}'
            for each in results]
        healthy = all(each.problem is None for each in results)
        return _answer(healthy, *lines, 'healthy' if healthy else 'unhealthy')


def _shown(problem: str) -> str:
    """Return a problem in one line, without passwords."""
    return ' '.join(urls.mask_text(problem).split())[:_SHOWN_MAX]


def _answer(good: bool, *lines: str) -> Answer:
    return Answer(
        http.HTTPStatus.OK if good else http.HTTPStatus.SERVICE_UNAVAILABLE,
        ''.join(f'{line}\n' for line in lines).encode())


def listen(address: str, port: int) -> socket.socket:
    """Return a socket for :class:`MonitoringServer`; may be inherited.

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


class MonitoringServer(server.HTTPServer):
    """Answers HTTP requests in a few threads.

    :param listener: a socket of :func:`listen`
    :param make_threads: returns an executor with a number of threads
    """

    def __init__(
        self, listener: socket.socket, monitor: Monitor, clock: Clock,
        make_threads: Callable[[int], futures.Executor],
        start_thread: Callable[[Callable[[], None]], object],
    ) -> None:
        super().__init__(
            listener.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.monitor = monitor
        self._clock = clock
        self._threads = make_threads(_THREADS)
        self._start_thread = start_thread
        self._lock = threading.Lock()
        #: When requests began.
        self._requests: dict[Any, float] = {}

    def start(self) -> None:
        """Begin to answer."""
        self._start_thread(lambda: self.serve_forever(_POLL_S))

    def stop(self) -> None:
        """Stop to answer; closes the socket in this process."""
        self.shutdown()
        self.server_close()
        self._threads.shutdown(wait=False)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            busy = len(self._requests) >= _THREADS + _WAITING_MAX
            if not busy:
                self._requests[request] = self._clock.monotonic()
        if busy:
            self.shutdown_request(request)
        else:
            self._threads.submit(self._process, request, client_address)

    def _process(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception as exc:
            LOG.debug('A request for the state of the service failed: %s', exc)
        finally:
            with self._lock:
                self._requests.pop(request, None)
            self.shutdown_request(request)

    def service_actions(self) -> None:
        # A client that sends slowly must not keep a thread.
        before = self._clock.monotonic() - _REQUEST_S
        with self._lock:
            late = [each for each, began in self._requests.items()
                    if began < before]
        for each in late:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class _Handler(server.BaseHTTPRequestHandler):
    """Answers a request."""

    timeout = _CLIENT_S
    server: MonitoringServer

    def do_GET(self) -> None:
        """Answer with a body."""
        self._answer(True)

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self._answer(False)

    def _answer(self, with_body: bool) -> None:
        answer = self.server.monitor.answer(
            self.path, self.headers.get('Accept', ''))
        self.send_response(answer.status)
        self.send_header('Content-Type', answer.media_type)
        self.send_header('Content-Length', str(len(answer.body)))
        self.send_header('Cache-Control', 'no-store')
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)

    def version_string(self) -> str:
        """Return the name of the server, without versions."""
        return 'cellsched'

    def log_message(self, format: str, *args: Any) -> None:
        """Log requests, of which there are many, at the lowest level."""
        LOG.debug(format, *args)
