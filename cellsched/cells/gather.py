# SPDX-License-Identifier: Apache-2.0
"""Asking many cells at once."""

from collections.abc import Callable
from collections.abc import Iterable
from concurrent import futures
import dataclasses
import threading
from typing import Any

from cellsched.cells import target
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched import objects


@dataclasses.dataclass
class Gathered:
    """Results from the cells, by cell uuid.

    :param results: what the function returned
    :param failures: what it raised
    :param silent: cells that did not answer within their deadline
    """

    results: dict[str, Any] = dataclasses.field(default_factory=dict)
    failures: dict[str, Exception] = dataclasses.field(default_factory=dict)
    silent: set[str] = dataclasses.field(default_factory=set)


class Gatherer:
    """Asks cells in threads, each with a deadline of its own.

    A cell's time runs from the moment that its question is put. One that
    still hangs from an earlier question is silent at once, so a dead cell
    costs one thread and its deadline once.

    :param executor: runs the questions; its size bounds how many run at once
    """

    def __init__(
        self, executor: futures.Executor, targets: target.Targets,
        clock: Clock, timeout_s: float,
    ) -> None:
        self._executor = executor
        self._targets = targets
        self._clock = clock
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._hanging: dict[str, futures.Future[Any]] = {}

    def gather(
        self, context: RequestContext,
        cells: Iterable[objects.CellMapping],
        function: Callable[[RequestContext], Any],
    ) -> Gathered:
        """Call a function with a context aimed at each cell."""
        gathered = Gathered()
        started: dict[str, float] = {}
        pending: dict[futures.Future[Any], str] = {}

        def ask(cell: objects.CellMapping) -> Any:
            started[cell.uuid] = self._clock.monotonic()
            aimed = self._targets.aim(context, cell)
            # What is logged in this thread is of this request from now on.
            aimed.update_store()
            return function(aimed)

        for cell in cells:
            if self._is_hanging(cell.uuid):
                gathered.silent.add(cell.uuid)
            else:
                pending[self._executor.submit(ask, cell)] = cell.uuid
        while pending:
            done, _ = futures.wait(
                pending, self._patience_s(pending, started),
                futures.FIRST_COMPLETED)
            for future in done:
                self._keep(gathered, pending.pop(future), future)
            self._expire(gathered, pending, started, progress=bool(done))
        return gathered

    def _is_hanging(self, uuid: str) -> bool:
        with self._lock:
            future = self._hanging.get(uuid)
            if future is not None and future.done():
                del self._hanging[uuid]
                future = None
            return future is not None

    def _patience_s(
        self, pending: dict[futures.Future[Any], str],
        started: dict[str, float],
    ) -> float:
        """Return the seconds until the next deadline."""
        starts = [started[uuid] for uuid in pending.values()
                  if uuid in started]
        if not starts:
            return self._timeout_s
        left = min(starts) + self._timeout_s - self._clock.monotonic()
        return max(left, 0.0)

    @staticmethod
    def _keep(
        gathered: Gathered, uuid: str, future: futures.Future[Any]
    ) -> None:
        failure = future.exception()
        if failure is None:
            gathered.results[uuid] = future.result()
        elif isinstance(failure, Exception):
            gathered.failures[uuid] = failure
        else:
            raise failure

    def _expire(
        self, gathered: Gathered, pending: dict[futures.Future[Any], str],
        started: dict[str, float], progress: bool,
    ) -> None:
        """Give up on cells whose time is over."""
        now = self._clock.monotonic()
        running = False
        for future, uuid in list(pending.items()):
            in_time = uuid in started and (
                now < started[uuid] + self._timeout_s)
            if in_time or future.done():
                running = True
            elif uuid in started:
                del pending[future]
                gathered.silent.add(uuid)
                with self._lock:
                    self._hanging[uuid] = future
        if not running and not progress:
            # Every thread hangs; who waits for one would wait for ever.
            for future, uuid in list(pending.items()):
                if future.cancel():
                    del pending[future]
                    gathered.silent.add(uuid)
