# SPDX-License-Identifier: Apache-2.0
"""Components of conductors, and of all services above the cells."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
import functools
from typing import Any
from typing import TYPE_CHECKING

from oslo_config import cfg

from cellsched.batching import QueueExecutor
from cellsched.batching import TaskQueue
from cellsched.cells.cell0 import Cell0
from cellsched.cells.discovery import Discovery
from cellsched.cells import gather
from cellsched.cells.gather import Gatherer
from cellsched.cells.registry import CellRegistry
from cellsched.cells.service_records import Heartbeat
from cellsched.cells.service_records import ServiceCounts
from cellsched.cells.target import Targets
from cellsched.conf import enabled
from cellsched.context import admin
from cellsched.context import RequestContext
from cellsched.db import api as api_schema
from cellsched.db import session
from cellsched import exception
from cellsched.notify.notifiers import TaskNotifier
from cellsched.observability.metrics import queue_readings
from cellsched.observability.metrics import Reading
from cellsched.observability.monitoring import Check
from cellsched import plugins
from cellsched.quota.base import QuotaDriver
from cellsched.rpc import compute
from cellsched.wiring import base

if TYPE_CHECKING:
    from cellsched.listing.servers import ServerListing
    from cellsched.scheduler.explanation.decision_record import Recorder
    from cellsched.scheduler import recording


class CellComponents(base.AgentComponents):
    """Components of the conductor of a cell."""

    @functools.cached_property
    def task_notifier(self) -> TaskNotifier:
        """Sends the notifications of conductors."""
        options = self.conf.notifications
        return TaskNotifier(
            self.transports.notifications(), self.conf.host,
            options.notification_format,
            options.versioned_notifications_topics,
            options.notify_on_state_change, self.clock)

    def heartbeat(self, binary: str, topic: str) -> Heartbeat:
        """Return the record of this service.

        :param binary: Nova's name of the service
        """
        return Heartbeat(
            binary, topic, self.conf.host, self.record_database, self.new_uuid)

    def record_database(self) -> session.Database:
        """Return the database that has the record of this service."""
        return self.cell_database


class Components(CellComponents):
    """Components of a service that has the API database, and so all cells.

    A process of a single cell, or a command, may have the database of that
    cell too.

    :ivar recorder: records decisions of a scheduler to files, if that is on
    """

    recorder: 'recording.Recorder | None' = None

    def lowest_compute(self) -> compute.Lowest:
        """Return the lowest version of the compute services of all cells.

        Without an API database it is that of the process's own cell.
        """
        if not self.conf.api_database.connection:
            return super().lowest_compute()
        return gather.lowest_compute(self.cells, self.gatherer)

    @functools.cached_property
    def database(self) -> session.Database:
        """The API database."""
        return self.open_database('api_database', api_schema.SCHEMA.name)

    @functools.cached_property
    def cells(self) -> CellRegistry:
        """The mapped cells."""
        return CellRegistry(
            self.database, self.clock, self.conf.cells.refresh_interval)

    @functools.cached_property
    def targets(self) -> Targets:
        """Databases and transports of cells."""
        return Targets(
            self.databases, self.transports,
            session.engine_options(self.conf, 'database'),
            self.conf.database.connection)

    @functools.cached_property
    def executor(self) -> QueueExecutor:
        """Threads that read cells, which take turns."""
        return self._queue_executor(
            self.conf.cell_worker_thread_pool_size, _cell_of)

    @functools.cached_property
    def gatherer(self) -> Gatherer:
        """Reads many cells at the same time."""
        return Gatherer(
            self.executor, self.targets, self.clock, self.conf.cells.timeout)

    @functools.cached_property
    def discovery(self) -> Discovery:
        """Maps hosts to their cells."""
        return Discovery(self.database, self.cells, self.targets, self.clock)

    @functools.cached_property
    def cell0(self) -> Cell0:
        """Records servers that could not be built."""
        return Cell0(self.database, self.cells, self.targets, self.clock,
                     self.conf.host, self.task_notifier)

    def record_database(self) -> session.Database:
        """Return the database of cell0, or that of the service's cell.

        :raises cellsched.exception.CellMappingNotFound: cell0 is not mapped
        """
        if not self.conf.api_database.connection:
            return super().record_database()
        return self.targets.database(self.cells.cell0())

    def service_counts(self) -> list[tuple[Callable[[], None], float]]:
        """Return a periodic function that counts services for metrics.

        :returns: nothing if metrics are off
        """
        if not self.metrics.is_on:
            return []
        counts = ServiceCounts(
            self.cells, self.gatherer, self.conf.service_down_time)
        self.metrics.add_source(counts.metrics)
        return [(counts.read, self.conf.report_interval)]

    @functools.cached_property
    def quotas(self) -> QuotaDriver:
        """The quota driver."""
        return enabled.make(
            self.conf, plugins.QUOTA, QuotaDriver, self.conf, self.clock)

    @functools.cached_property
    def listing(self) -> 'ServerListing':
        """Finds servers in all cells."""
        # Schedulers and conductors find none.
        from cellsched.listing.servers import ServerListing

        return ServerListing(self.database, self.cells, self.gatherer)

    @functools.cached_property
    def builders(self) -> QueueExecutor:
        """Threads that continue interrupted builds; projects take turns."""
        return self._queue_executor(
            self.conf.conductor.recovery_threads, _lane_of_builds,
            lambda context, builds, *args: len(builds))

    @functools.cached_property
    def senders(self) -> ThreadPoolExecutor:
        """Threads that send messages of the API in the background."""
        return ThreadPoolExecutor(self.conf.executor_thread_pool_size)

    @functools.cached_property
    def decisions(self) -> 'Recorder':
        """Records decisions of schedulers in the API database."""
        # A conductor and a service that embeds one import no scheduler.
        from cellsched.scheduler.explanation.decision_record import Recorder

        return Recorder(
            self.database, self.clock, self.conf.scheduler.decision_retention)

    def health_checks(self, timeout_s: float) -> dict[str, Check]:
        checks = super().health_checks(timeout_s)
        if not self.conf.api_database.connection:
            return checks
        # A cell has less time than all checks together.
        gatherer = Gatherer(
            self.executor, self.targets, self.clock, timeout_s / 2)
        return {'API database': lambda: base.ask(self.database),
                'cells': lambda: self._check_cells(gatherer), **checks}

    def _check_cells(self, gatherer: Gatherer) -> str:
        """Check that an enabled cell answers; return those that do not."""
        cells = {cell.uuid: cell for cell in self.cells.enabled()}

        def ask(context: RequestContext) -> None:
            assert context.cell is not None
            base.ask(context.cell.database)

        gathered = gatherer.gather(admin(), cells.values(), ask)
        away = [each.name or uuid for uuid, each in cells.items()
                if uuid not in gathered.results]
        remark = away and f'no answer of {", ".join(sorted(away))}'
        if away and len(away) == len(cells):
            raise exception.CellUnreachable(
                cell=', '.join(sorted(away)), reason='no cell answers')
        return remark or ''

    def queues(self) -> list[Reading]:
        made = self.__dict__
        return [
            reading for name, queue in (
                ('executor', 'cells'), ('builders', 'recovery'))
            if name in made
            for reading in queue_readings(queue, made[name].state())]

    def _queue_executor(
        self, places: int, lane: Callable[..., Any],
        weight: Callable[..., int] = lambda *args: 1,
    ) -> QueueExecutor:
        return QueueExecutor(
            ThreadPoolExecutor(TaskQueue.threads(places)), places, lane,
            weight)

    def close(self) -> None:
        made = self.__dict__
        if 'builders' in made:
            self.builders.shutdown()
        if 'decisions' in made:
            # Writes pending decisions, so before the database is closed.
            self.decisions.close()
        if self.recorder is not None:
            self.recorder.close()
        for name in ('senders', 'executor'):
            if name in made:
                made[name].shutdown(wait=False)
        super().close()


def _lane_of_builds(context: RequestContext, *args: Any) -> str | None:
    """Return the cell of stalled builds, or the project of a batch."""
    # Only the contexts of stalled builds target a cell.
    return context.cell.uuid if context.cell else context.project_id


def _cell_of(*args: Any) -> str | None:
    """Return the cell that a task is for, if any."""
    return args[0].uuid if args else None


def conductor_components(conf: cfg.ConfigOpts) -> CellComponents:
    """Return the components of the conductor that a configuration means."""
    if conf.api_database.connection:
        return Components(conf)
    return CellComponents(conf)
