# SPDX-License-Identifier: Apache-2.0
"""Parallel queries of cells, and the versions of their compute services."""

from collections.abc import Callable
from collections.abc import Iterable
from concurrent import futures
import dataclasses
import functools
import logging
import threading
from typing import Any

from oslo_log import log

from cellsched.cells import registry
from cellsched.cells import target
from cellsched.clock import Clock
from cellsched import context
from cellsched.context import RequestContext
from cellsched.db.cell import services
from cellsched import exception
from cellsched import objects
from cellsched.observability.conditions import Conditions
from cellsched.rpc import compute

LOG = log.getLogger(__name__)


@dataclasses.dataclass
class GatherResult:
    """Results of a query, by cell uuid.

    :param results: return values
    :param failures: exceptions
    :param silent: cells that did not answer within their deadline
    """

    results: dict[str, Any] = dataclasses.field(default_factory=dict)
    failures: dict[str, Exception] = dataclasses.field(default_factory=dict)
    silent: set[str] = dataclasses.field(default_factory=set)

    def outcome(self, uuid: str) -> Exception | str:
        """Return why a cell has no result; empty if it has one."""
        if uuid in self.silent:
            return 'it took too long'
        return self.failures.get(uuid, '')


class Gatherer:
    """Queries cells in threads, each with its own deadline.

    The deadline of a cell starts when its query starts. A cell whose earlier
    query still hangs counts as silent at once. So a dead cell costs one
    thread, and its deadline once. A cell that does not answer is logged here,
    whatever the query.

    :param executor: runs the queries; its size limits how many run at a time
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
        self._conditions = Conditions(LOG, clock.monotonic)

    def gather(
        self, context: RequestContext,
        cells: Iterable[objects.CellMapping],
        function: Callable[[RequestContext], Any],
        timeout_s: float | None = None,
    ) -> GatherResult:
        """Call a function with a context for each cell.

        :param timeout_s: the deadline of each cell, if not the usual one; a
            cell that exceeds it does not count as hanging for other calls
        """
        def ask(cell: objects.CellMapping) -> Any:
            cell_context = self._targets.target_cell(context, cell)
            # Log lines of this thread belong to this request from now on.
            cell_context.update_store()
            return function(cell_context)

        cells = list(cells)
        gathered = self._gather(
            ((cell.uuid, ask, (cell,)) for cell in cells),
            timeout_s or self._timeout_s, hangs=timeout_s is None)
        for cell in cells:
            self._log(f'Cell {cell.identity}', gathered.outcome(cell.uuid),
                      function, hangs=timeout_s is None)
        return gathered

    def call(
        self, name: str, function: Callable[[], Any], timeout_s: float
    ) -> GatherResult:
        """Call a function that reads another database.

        :param name: identifies the database, as a uuid identifies a cell
        :param timeout_s: the deadline
        """
        gathered = self._gather([(name, function, ())], timeout_s, hangs=True)
        self._log(f'The {name}', gathered.outcome(name), function, hangs=True)
        return gathered

    def _log(
        self, database: str, failure: Exception | str,
        function: Callable[..., Any], hangs: bool,
    ) -> None:
        """Log that a database does not answer, or answers again.

        :param hangs: whether a database that is silent does not answer, or
            the deadline was only that of this query
        """
        name = getattr(function, '__qualname__', type(function).__name__)
        name = name.removesuffix('<lambda>').replace('<locals>.', '')
        away = f'{database} does not answer'
        wrong = f'{database} fails the query {name.rstrip(".")}'
        if not failure:
            self._conditions.end(away)
            self._conditions.end(wrong)
        elif isinstance(failure, exception.DATABASE_UNAVAILABLE) or (
                isinstance(failure, str) and hangs):
            self._conditions.occur(away, failure)
        elif isinstance(failure, Exception):
            self._conditions.occur(
                wrong, failure, logging.ERROR, not isinstance(
                    failure, exception.CellschedException))

    def _gather(
        self, queries: Iterable[tuple[
            str, Callable[..., Any], tuple[objects.CellMapping, ...]]],
        timeout_s: float, hangs: bool,
    ) -> GatherResult:
        gathered = GatherResult()
        started: dict[str, float] = {}
        pending: dict[futures.Future[Any], str] = {}

        def start(
            name: str, query: Callable[..., Any], *args: Any
        ) -> Any:
            started[name] = self._clock.monotonic()
            return query(*args)

        for name, query, args in queries:
            if self._is_hanging(name):
                gathered.silent.add(name)
            else:
                # The cell decides the lane of the executor.
                pending[self._executor.submit(
                    functools.partial(start, name, query), *args)] = name
        while pending:
            # Wait until a query ends, or until the next deadline. A query
            # that waits for a thread has no deadline yet.
            starts = [started[name] for name in pending.values()
                      if name in started]
            remaining_s = timeout_s if not starts else max(
                min(starts) + timeout_s - self._clock.monotonic(), 0.0)
            done, _ = futures.wait(
                pending, remaining_s, futures.FIRST_COMPLETED)
            for future in done:
                name, failure = pending.pop(future), future.exception()
                if failure is None:
                    gathered.results[name] = future.result()
                elif isinstance(failure, Exception):
                    gathered.failures[name] = failure
                else:
                    raise failure
            late = self._expire(
                gathered, pending, started, timeout_s, progress=bool(done))
            if hangs:
                with self._lock:
                    self._hanging.update(late)
        return gathered

    def _is_hanging(self, uuid: str) -> bool:
        with self._lock:
            future = self._hanging.get(uuid)
            if future is not None and future.done():
                del self._hanging[uuid]
                future = None
            return future is not None

    def _expire(
        self, gathered: GatherResult, pending: dict[futures.Future[Any], str],
        started: dict[str, float], timeout_s: float, progress: bool,
    ) -> dict[str, futures.Future[Any]]:
        """Stop waiting for cells whose deadline has passed; return these."""
        now = self._clock.monotonic()
        running, late = False, {}
        for future, uuid in list(pending.items()):
            in_time = uuid in started and (
                now < started[uuid] + timeout_s)
            if in_time or future.done():
                running = True
            elif uuid in started:
                del pending[future]
                gathered.silent.add(uuid)
                late[uuid] = future
        if not running and not progress:
            # All threads hang: the queued queries would never start.
            for future, uuid in list(pending.items()):
                if future.cancel():
                    del pending[future]
                    gathered.silent.add(uuid)
        return late


def lowest_compute(
    cells: registry.CellRegistry, gatherer: Gatherer
) -> compute.Lowest:
    """Query all cells in parallel; leave out those that do not answer.

    Disabled cells are included, because their servers still need messages.
    """
    asked = {cell.uuid: cell for cell in cells.real()}
    gathered = gatherer.gather(context.admin(), asked.values(), _version_there)
    return compute.Lowest(
        min(filter(None, gathered.results.values()), default=None),
        frozenset(asked.keys() - gathered.results.keys()))


def _version_there(cell_context: context.RequestContext) -> int | None:
    with cell_context.cell.database.reader() as connection:
        return services.lowest_version(connection, services.COMPUTE)
