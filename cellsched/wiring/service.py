# SPDX-License-Identifier: Apache-2.0
"""A service that runs: its servers and its threads."""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import threading

from futurist import periodics
from oslo_log import log
import oslo_messaging

from cellsched import exception
from cellsched.rpc import delivery
from cellsched.wiring.base import AgentComponents

LOG = log.getLogger(__name__)

#: What periodic tasks fail of while a server is away.
_AWAY = (exception.DatabaseUnreachable, *delivery.ERRORS)


#: After which a service does nothing more.
_FATAL = (exception.HostNameTaken,)


class Service:
    """A service: what answers its messages, and what it does of its own.

    :param periodic: pairs of a function and the seconds between its calls
    :param at_once: likewise, for functions that are called first when the
        service has begun to answer
    """

    def __init__(
        self, parts: AgentComponents,
        rpc_servers: Sequence[oslo_messaging.MessageHandlingServer],
        periodic: Sequence[tuple[Callable[[], object], float]] = (),
        at_once: Sequence[tuple[Callable[[], object], float]] = (),
    ) -> None:
        self.parts = parts
        self._servers = rpc_servers
        self._periodic = periodic
        self._at_once = at_once
        self._started: list[oslo_messaging.MessageHandlingServer] = []
        self._workers: list[
            tuple[periodics.PeriodicWorker, threading.Thread]] = []
        self._stopping = threading.Event()
        #: Why it cannot go on, and what is called then, in whatever thread.
        self.failure: exception.CellschedException | None = None
        self.on_failure: Callable[[], object] = lambda: None

    @property
    def servers(self) -> Sequence[oslo_messaging.MessageHandlingServer]:
        """The servers, for who hands them messages in another way."""
        return self._servers

    @property
    def periodic(self) -> Sequence[tuple[Callable[[], object], float, bool]]:
        """Functions, the seconds between their calls, and whether at once."""
        return [*((*each, True) for each in self._at_once),
                *((*each, False) for each in self._periodic)]

    def start(self) -> None:
        """Begin to answer."""
        for server in self._servers:
            server.start()
            self._started.append(server)
        for function, spacing_s, at_once in self.periodic:
            task = periodics.periodic(spacing_s, at_once)(
                self._task(function))
            worker = periodics.PeriodicWorker([(task, (), {})])
            thread = threading.Thread(target=worker.start, daemon=True)
            thread.start()
            self._workers.append((worker, thread))

    def stop(self) -> None:
        """Take no more messages, and finish what was begun."""
        self._stopping.set()
        for server in self._started:
            server.stop()
        for server in self._started:
            server.wait()
        for worker, thread in self._workers:
            # This waits for its turn as long as there is something to do.
            worker.stop()
            thread.join()
        self.parts.close()

    def _task(self, function: Callable[[], object]) -> Callable[[], object]:
        """Return a function that futurist can mark, as it cannot methods.

        While a server is away that it needs, the log says so once, and not
        each time; once more when it is back. What futurist would not survive,
        such as ``SystemExit``, is logged.
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
                    LOG.warning('%s waits for a server that is away: %s',
                                _name(function), delivery.describe(exc))
                away = True
            except (*exception.STOPS, Exception):
                raise
            except BaseException:
                LOG.exception('Periodic task %s failed; it is done again in '
                              'its time', function)
            else:
                if away:
                    LOG.info('%s goes on', _name(function))
                away = False
        return task

    def _fail(self, exc: exception.CellschedException) -> None:
        self._stopping.set()
        self.failure = exc
        LOG.error('This service cannot go on: %s', exc.format_message())
        self.on_failure()


def _name(function: Callable[[], object]) -> str:
    return getattr(function, '__qualname__', repr(function))
