# SPDX-License-Identifier: Apache-2.0
"""A service that runs: its servers and its threads."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import threading
from typing import Any

from futurist import periodics
from oslo_log import log

from cellsched.batching import STOP_S
from cellsched import exception
from cellsched.rpc import delivery
from cellsched.rpc.server import Server
from cellsched.wiring.base import AgentComponents

LOG = log.getLogger(__name__)

#: Errors of periodic tasks while a database or a broker is unavailable.
_AWAY = (*exception.DATABASE_UNAVAILABLE, *delivery.ERRORS)


#: Errors after which a service must end.
_FATAL = (exception.HostNameTaken,)


class Service:
    """A running service: RPC servers and periodic tasks.

    :param periodic: pairs of a function and the seconds between its calls
    :param at_once: like ``periodic``, for functions that are also called when
        the service starts
    :param state: returns what a report adds to the requests in progress: a
        mapping of titles to values that JSON has
    """

    def __init__(
        self, parts: AgentComponents,
        rpc_servers: Sequence[Server],
        periodic: Sequence[tuple[Callable[[], object], float]] = (),
        at_once: Sequence[tuple[Callable[[], object], float]] = (),
        state: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self.parts = parts
        self._servers = rpc_servers
        self._periodic = periodic
        self._at_once = at_once
        self._state = state
        self._started: list[Server] = []
        self._workers: list[
            tuple[periodics.PeriodicWorker, threading.Thread]] = []
        self._stopping = threading.Event()
        #: The fatal error, and the function called after it, in any thread.
        self.failure: exception.CellschedException | None = None
        self.on_failure: Callable[[], object] = lambda: None

    @property
    def servers(self) -> Sequence[Server]:
        """The RPC servers, for simulations that deliver messages directly."""
        return self._servers

    @property
    def periodic(self) -> Sequence[tuple[Callable[[], object], float, bool]]:
        """Functions, the seconds between calls, and whether to start now."""
        return [*((*each, True) for each in self._at_once),
                *((*each, False) for each in self._periodic)]

    def state(self) -> Mapping[str, Any]:
        """Return the state of this service, for a report on the process."""
        return {'Requests in progress': [
            each.state() for each in self._servers], **self._state()}

    def start(self) -> None:
        """Start the RPC servers and the periodic tasks."""
        for server in self._servers:
            server.start()
            self._started.append(server)
        for function, spacing_s, at_once in self.periodic:
            task = periodics.periodic(spacing_s, at_once)(self._task(function))
            worker = periodics.PeriodicWorker([(task, (), {})])
            thread = threading.Thread(target=worker.start, daemon=True)
            thread.start()
            self._workers.append((worker, thread))

    def stop(self) -> None:
        """Stop the RPC servers, and wait for running messages and tasks."""
        self._stopping.set()
        for server in self._started:
            server.stop()
        for server in self._started:
            server.wait()
        for worker, thread in self._workers:
            # The thread ends with the running call of the task.
            worker.stop()
            thread.join(STOP_S)
        self.parts.close()

    def _task(self, function: Callable[[], object]) -> Callable[[], object]:
        """Return a periodic task of futurist, which cannot mark methods.

        The unavailability of a database or a broker is logged once, and again
        when the task succeeds. An error that would end the worker of
        futurist, such as ``SystemExit``, is logged.
        """
        away = False

        @functools.wraps(function)
        def task() -> None:
            nonlocal away
            if self._stopping.is_set():
                return
            try:
                function()
            except _FATAL as exc:
                self._fail(exc)
            except _AWAY as exc:
                if not away:
                    LOG.warning(
                        'Periodic task %s: a server is unavailable: %s',
                        _name(function), exception.describe(exc))
                away = True
            except (*exception.STOPS, Exception):
                raise
            except BaseException:
                LOG.exception('Periodic task %s failed; it will be retried',
                              _name(function))
            else:
                if away:
                    LOG.info('Periodic task %s: the server is available again',
                             _name(function))
                away = False
        return task

    def _fail(self, exc: exception.CellschedException) -> None:
        self._stopping.set()
        self.failure = exc
        LOG.error('Service stops: %s', exc.format_message())
        self.on_failure()


def _name(function: Callable[[], object]) -> str:
    return getattr(function, '__qualname__', repr(function))
