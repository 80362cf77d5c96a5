# SPDX-License-Identifier: Apache-2.0
"""A service that runs: its servers and its threads."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
import dataclasses
import functools
import logging
import math
from random import Random
import socket
import threading
from typing import Any

from futurist import periodics
from oslo_log import log

from cellsched.batching import STOP_S
from cellsched.clock import Clock
from cellsched import exception
from cellsched.observability.conditions import Conditions
from cellsched.observability import metrics
from cellsched.observability.monitoring import Check
from cellsched.observability.monitoring import Monitor
from cellsched.rpc import delivery
from cellsched.rpc.server import Server
from cellsched.wiring.base import AgentComponents
from cellsched.wiring.base import run_within

LOG = log.getLogger(__name__)

#: Errors of periodic tasks that need no traceback.
_EXPECTED = (exception.CellschedException, *delivery.ERRORS)


#: Errors after which a service must end.
_FATAL = (exception.HostNameTaken,)

#: Seconds after which a periodic task that runs, or is due, does not work.
#: Queries and messages have shorter limits.
_HUNG_S, _LATE_S = 1800.0, 120.0

#: The longest time by which the calls of a periodic task are shifted.
_SHIFT_MAX_S = 60.0

#: Seconds to record the end of a service in its database.
_RECORD_S = 5.0

#: Servers that stop at the same time.
_STOPPED_AT_ONCE = 64


@dataclasses.dataclass(eq=False)
class _Loop:
    """A periodic task and its thread.

    :param at: when the task began, or ended last, on the monotonic clock
    """

    name: str
    spacing_s: float
    at: float
    runs: bool = False
    worker: periodics.PeriodicWorker | None = None
    thread: threading.Thread | None = None

    def fault(self, now: float) -> str | None:
        """Return why the loop does not work, or None."""
        past_s = now - self.at
        if self.thread is None or not self.thread.is_alive():
            return 'has ended'
        if self.runs:
            return f'runs for {past_s:.0f} s' if past_s > _HUNG_S else None
        return (f'last ran {past_s:.0f} s ago'
                if past_s > self.spacing_s + _LATE_S else None)


class Service:
    """A running service: RPC servers and periodic tasks.

    Processes that start at the same time, such as all agents after a power
    cut, call their tasks at different times, at random: otherwise all of them
    would query the databases at the same moments.

    :param periodic: pairs of a function and the seconds between its calls
    :param at_once: like ``periodic``, for functions that are also called when
        the service starts
    :param state: returns what a report adds to the requests in progress: a
        mapping of titles to values that JSON has
    :param builds: returns the instances that are being built, also those that
        no message in progress is about
    :param unready: returns why the service takes no work, or nothing
    :param at_stop: called when the work has ended; records the stop
    """

    def __init__(
        self, parts: AgentComponents,
        rpc_servers: Sequence[Server],
        periodic: Sequence[tuple[Callable[[], object], float]] = (),
        at_once: Sequence[tuple[Callable[[], object], float]] = (),
        state: Callable[[], Mapping[str, Any]] = dict,
        builds: Callable[[], Iterable[str]] = tuple,
        unready: Callable[[], str] = str,
        at_stop: Callable[[], object] = lambda: None,
    ) -> None:
        self.parts = parts
        self.servers = rpc_servers
        self._periodic = periodic
        self._at_once = at_once
        self._state = state
        self._builds = builds
        self._unready = unready
        self._at_stop = at_stop
        self._is_started = False
        self._conditions = Conditions(LOG, parts.clock.monotonic)
        parts.metrics.add_source(self._queues)
        self._started: list[Server] = []
        self._loops: list[_Loop] = []
        self._stopping = threading.Event()
        #: The fatal error, and the function called after it, in any thread.
        self.failure: exception.CellschedException | None = None
        self.on_failure: Callable[[], object] = lambda: None

    @property
    def periodic(self) -> Sequence[tuple[Callable[[], object], float, bool]]:
        """Functions, the seconds between calls, and whether to start now."""
        publishing = self.parts.metrics
        return [*((*each, True) for each in self._at_once),
                *((*each, False) for each in self._periodic),
                *([(publishing.publish, publishing.publish_s, True)]
                  if publishing.publish_s else [])]

    def state(self) -> Mapping[str, Any]:
        """Return the state of this service, for a report on the process."""
        return {'Requests in progress': [
            each.state() for each in self.servers], **self._state()}

    def health_checks(self, timeout_s: float) -> Mapping[str, Check]:
        """Return a check of each server that the service needs, by name.

        :param timeout_s: the seconds that a check may take
        """
        return {**{f'broker, topic {each.topic}': functools.partial(
            each.ping, timeout_s) for each in self.servers},
            **self.parts.health_checks(timeout_s)}

    def unready(self) -> str:
        """Return why the service takes no work; empty if it does."""
        if self._stopping.is_set():
            return 'the service stops'
        if not self._is_started:
            return 'the service has not started'
        return self._unready()

    def _queues(self) -> list[metrics.Reading]:
        return [*self.parts.queues(), *(
            reading for each in self.servers for reading
            in metrics.queue_readings(each.topic, each.state()))]

    def check_queues(self) -> None:
        """Check that the broker accepts the queues of the RPC servers.

        Agents of one process differ only in their hosts, so one is checked.

        :raises Exception: as :meth:`.Transports.check_queues`
        """
        self.parts.transports.check_queues({
            each.topic: each.target for each in self.servers}.values())

    def start(self) -> None:
        """Start the RPC servers and the periodic tasks."""
        for server in self.servers:
            server.start()
            self._started.append(server)
        for function, spacing_s, at_once in self.periodic:
            loop = _Loop(getattr(function, '__qualname__', repr(function)),
                         spacing_s, self.parts.clock.monotonic())
            delay_s = first_delay_s(spacing_s, self.parts.random)
            task = periodics.periodic(spacing_s, run_immediately=True)(
                self._task(function, loop))
            # The times of the calls are kept even if a call takes long, such
            # as one that waits for a database. So processes that have waited
            # for the same database do not go on at the same moments.
            loop.worker = periodics.PeriodicWorker(
                [(task, (), {})], schedule_strategy='aligned_last_finished',
                now_func=functools.partial(
                    self._elapsed, loop.at + delay_s - spacing_s))
            loop.thread = threading.Thread(
                target=self._run, daemon=True,
                args=(loop.worker, 0.0 if at_once else delay_s))
            loop.thread.start()
            self._loops.append(loop)
        self._is_started = True

    def _elapsed(self, since: float) -> float:
        return self.parts.clock.monotonic() - since

    def _run(
        self, worker: periodics.PeriodicWorker, delay_s: float
    ) -> None:
        """Run a periodic task, after a delay, until the service stops."""
        if not self._stopping.wait(delay_s):
            worker.start()

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Stop the RPC servers, and wait for running messages and tasks.

        :param timeout_s: seconds to wait for each server and each task
        """
        self._stopping.set()
        # A listener at a broker notices after up to a second that it has
        # stopped, and a group of agents has many.
        with ThreadPoolExecutor(_STOPPED_AT_ONCE) as pool:
            list(pool.map(lambda server: server.stop(), self._started))
        for server in self._started:
            server.wait(timeout_s)
        for loop in self._loops:
            assert loop.worker is not None and loop.thread is not None
            # The thread ends with the running call of the task.
            loop.worker.stop()
            loop.thread.join(None if timeout_s == math.inf else timeout_s)
        if self._is_started:
            run_within(self._record_stop, _RECORD_S)
        self.parts.close()

    def _record_stop(self) -> None:
        try:
            self._at_stop()
        except exception.CellschedException as exc:
            LOG.warning('The stop of the service is not recorded, so that the '
                        'service counts as down: %s', exception.describe(exc))

    def in_progress(self) -> list[str]:
        """Return the work that a stop waits for, in words."""
        found = []
        uuids = set(self._builds())
        for server in self.servers:
            for method, (count, about) in server.in_progress().items():
                uuids -= about
                found.append((f'message {method}' if count == 1 else
                              f'{count} messages {method}')
                             + _instances(about))
        if uuids:
            found.append(f'{len(uuids)} leased builds{_instances(uuids)}')
        return found + [f'periodic task {loop.name}'
                        for loop in self._loops if loop.runs]

    def stuck(self, timeout_s: float) -> list[str]:
        """Return the loops of this service that do not work, in words.

        A database or a broker that does not answer is no fault of a loop.

        :param timeout_s: seconds to wait for the threads of messages
        """
        now = self.parts.clock.monotonic()
        found = [f'the threads of topic {server.topic} do not run'
                 for server in self._started if not server.answers(timeout_s)]
        return found + [f'periodic task {loop.name} {fault}'
                        for loop in self._loops if (fault := loop.fault(now))]

    def _task(
        self, function: Callable[[], object], loop: _Loop
    ) -> Callable[[], object]:
        """Return a periodic task of futurist, which cannot mark methods.

        An error is logged once, and again when the task succeeds. No error
        ends the worker of futurist.
        """
        failing = f'Periodic task {loop.name} fails and is repeated'

        @functools.wraps(function)
        def task() -> None:
            if self._stopping.is_set():
                return
            loop.at, loop.runs = self.parts.clock.monotonic(), True
            try:
                function()
            except _FATAL as exc:
                self._stopping.set()
                self.failure = exc
                LOG.error('Service stops: %s', exc.format_message())
                self.on_failure()
            except exception.STOPS:
                raise
            except _EXPECTED as exc:
                self._conditions.occur(failing, exc)
            except BaseException as exc:
                self._conditions.occur(failing, exc, logging.ERROR, True)
            else:
                self._conditions.end(failing)
            finally:
                loop.at, loop.runs = self.parts.clock.monotonic(), False
        return task


def first_delay_s(spacing_s: float, random: Random) -> float:
    """Return the seconds before the first call of a periodic task.

    It is a random part of the interval, or of its last minute: a long interval
    may mean that a task has time.
    """
    return spacing_s - random.random() * min(spacing_s, _SHIFT_MAX_S)


#: Instances that a line names.
_NAMED = 10


def _instances(uuids: Iterable[str]) -> str:
    """Return text that names some instances."""
    ordered = sorted(uuids)
    if not ordered:
        return ''
    more = len(ordered) - _NAMED
    return (f' for instance{"s" * (len(ordered) > 1)} '
            + ', '.join(ordered[:_NAMED])
            + (f' and {more} more' if more > 0 else ''))


def monitor(
    recorded: metrics.Metrics, timeout_s: float, listener: socket.socket | None
) -> Monitor:
    """Return what answers for the health and the metrics of a process.

    :param timeout_s: the seconds of the health checks
    :param listener: a socket of :func:`.monitoring.listen`
    """
    return Monitor(
        recorded, timeout_s, Clock(), lambda target: threading.Thread(
            target=target, daemon=True, name='monitoring').start(), listener)
