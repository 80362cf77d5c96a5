# SPDX-License-Identifier: Apache-2.0
"""The parts of a conductor above the cells, each made when it is needed."""

from collections.abc import Callable
import functools

from futurist import ThreadPoolExecutor
from oslo_config import cfg
from oslo_utils import uuidutils

from cellsched.cells import cell0
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.cells import target
from cellsched.cells import versions as cell_versions
from cellsched import claims as claims_
from cellsched.claims import base as claims_base
from cellsched import clock as clock_
from cellsched.db import api as api_schema
from cellsched.db import session
from cellsched import exception
from cellsched.listing import servers as listing
from cellsched.notify import task_notifier as notify_tasks
from cellsched import quota
from cellsched.quota import base as quota_base
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import transport


class ConductorParts:
    """Clock, databases, transports, threads and clients of a conductor.

    To be made after a process has forked. What is handed over is used as it
    is, and closed by who handed it over. Several in one process share
    nothing.

    :param clock: tells the time
    :param claims: the claim store, in place of the one configured
    :param databases: opens databases
    :param transports: opens transports
    :param reached: is told what step of a task was done, by its name
    :param new_uuid: makes names that nobody else has
    """

    def __init__(
        self, conf: cfg.ConfigOpts, clock: clock_.Clock | None = None,
        claims: claims_base.ClaimStore | None = None,
        databases: session.Databases | None = None,
        transports: transport.Transports | None = None,
        reached: Callable[[str], None] = lambda step: None,
        new_uuid: Callable[[], str] = uuidutils.generate_uuid,
    ) -> None:
        self.conf = conf
        self.clock = clock or clock_.Clock()
        self.databases = databases or session.Databases(self.clock)
        self.transports = transports or transport.Transports(conf)
        self.reached = reached
        self.new_uuid = new_uuid
        self.compute_cap = cell_versions.ComputeCap(
            conf.upgrade_levels.compute, self.lowest_compute,
            make_lock=self.clock.lock)
        self.compute = compute_rpc.ComputeAPIs(
            conf.conductor.send_retries, self.compute_cap)
        if claims is not None:
            self.claims = claims

    def lowest_compute(self) -> cell_versions.Lowest:
        """Return the lowest version of the compute services of all cells."""
        return cell_versions.over_cells(self.cells, self.gatherer)

    @functools.cached_property
    def claims(self) -> claims_base.ClaimStore:
        """The claim store."""
        return claims_.load(self.conf, self)

    @functools.cached_property
    def database(self) -> session.Database:
        """The API database."""
        return self.open_database(
            'api_database', api_schema.SCHEMA.name)

    @functools.cached_property
    def cells(self) -> registry.CellRegistry:
        return registry.CellRegistry(
            self.database, self.clock, self.conf.cells.refresh_interval)

    @functools.cached_property
    def targets(self) -> target.Targets:
        return target.Targets(
            self.databases, self.transports,
            session.engine_options(self.conf, 'database'))

    @functools.cached_property
    def executor(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.conf.cell_worker_thread_pool_size)

    @functools.cached_property
    def builders(self) -> ThreadPoolExecutor:
        """Threads that take up what was left lying."""
        return ThreadPoolExecutor(self.conf.conductor.recovery_threads)

    @functools.cached_property
    def gatherer(self) -> gather.Gatherer:
        return gather.Gatherer(
            self.executor, self.targets, self.clock, self.conf.cells.timeout)

    @functools.cached_property
    def cell0(self) -> cell0.Cell0:
        return cell0.Cell0(self.database, self.cells, self.targets,
                           self.clock, self.conf.host, self.task_notifier)

    @functools.cached_property
    def task_notifier(self) -> notify_tasks.TaskNotifier:
        """Tells of what conductors do."""
        options = self.conf.notifications
        return notify_tasks.TaskNotifier(
            self.transports.notifications(), self.conf.host,
            options.notification_format,
            options.versioned_notifications_topics,
            options.notify_on_state_change, self.clock)

    @functools.cached_property
    def quotas(self) -> quota_base.QuotaDriver:
        """The quota driver."""
        return quota.load(self.conf, self.clock)

    @functools.cached_property
    def listing(self) -> listing.ServerListing:
        """Finds servers wherever they are."""
        return listing.ServerListing(
            self.database, self.cells, self.targets, self.gatherer)

    def close(self) -> None:
        """Close what was opened here; waits for what was begun."""
        if 'builders' in self.__dict__:
            self.builders.shutdown()
        if 'executor' in self.__dict__:
            self.executor.shutdown(wait=False)
        self.transports.close()
        self.databases.close()

    def open_database(self, group: str, schema: str) -> session.Database:
        """Return the database that a group of options names.

        :raises cellsched.exception.ConfigurationInvalid: it names none
        """
        url = self.conf[group].connection
        if not url:
            raise exception.ConfigurationInvalid(
                field=f'[{group}] connection',
                expected=f'the SQLAlchemy URL of the {schema} database; it '
                         'is not set')
        return self.databases.get(
            url, schema, session.engine_options(self.conf, group))
