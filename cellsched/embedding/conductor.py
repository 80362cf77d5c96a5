# SPDX-License-Identifier: Apache-2.0
"""The conductor that services of other projects embed."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Self

from oslo_config import cfg

from cellsched.audit import claims as audit_claims
from cellsched.audit import facts
from cellsched.audit import repairs
from cellsched.cells import maintenance
from cellsched.conductor import recovery
from cellsched.conductor.tasks import build_and_schedule
from cellsched.context import RequestContext
from cellsched.db import api as api_schema
from cellsched.embedding import acceptance
from cellsched.embedding.mappings import Mappings
from cellsched.embedding.parts import ConductorParts
from cellsched.listing import server
from cellsched import objects
from cellsched.rpc import conductor as conductor_rpc
from cellsched.rpc import scheduler as scheduler_rpc

#: How often a lease is renewed within its time.
_RENEWALS = 3


class EmbeddedConductor:
    """Builds servers, each to its one fate, in a process of any service.

    A build that was accepted ends as one server in one cell, or as one record
    in cell0 that says why, or deleted, whatever is killed on the way. That
    holds as long as some process calls the functions of :attr:`periodic`.

    To be made after a process has forked. Methods may be called by several
    threads at a time.

    :param conf: has the options of :func:`.register_opts`
    :param parts: are used instead of its own, and not closed with it
    :raises cellsched.exception.ConfigurationInvalid: names an option that is
        missing or wrong
    :raises cellsched.exception.SchemaOutOfDate: a database lacks its tables
    :raises cellsched.exception.DatabaseUnreachable: one does not answer
    """

    #: The build task.
    task: build_and_schedule.BuildAndSchedule
    #: The client of schedulers.
    scheduler: scheduler_rpc.SchedulerAPI
    #: Cells, and where hosts and servers are.
    mappings: Mappings

    def __init__(
        self, conf: cfg.ConfigOpts,
        parts: ConductorParts | None = None,
    ) -> None:
        self.parts = ConductorParts(conf) if parts is None else parts
        self._own_parts = parts is None
        try:
            api_schema.SCHEMA.check(self.parts.database)
            self.parts.claims.check()
            self.scheduler = _scheduler(self.parts)
            self.task = _task(self.parts, self.scheduler)
            self.mappings = Mappings(
                self.parts.database, maintenance.CellMaintenance(
                    self.parts.database, self.parts.cells,
                    self.parts.targets, self.parts.clock))
            self._periodic = self._make_periodic()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def periodic(self) -> Sequence[tuple[Callable[[], None], float]]:
        """Functions to be called all the time, and seconds between calls.

        Each in a thread of its own: one must not wait for another. They
        renew leases, take up builds that were left lying, tell compute hosts
        again, and release claims that leaked. What they raise while a
        database or a broker is away passes, and they are to be called again.
        """
        return self._periodic

    def accept(
        self, context: RequestContext, names: Mapping[str, str],
        spec: objects.RequestSpec, min_count: int = 1,
    ) -> list[str]:
        """Accept servers; return the uuids of those that are new.

        From then on each comes to its fate, whoever calls :meth:`run` for it
        or dies. To accept again what was accepted changes nothing, so who
        keeps uuids before this may repeat it after a crash.

        :param names: names of the servers, by their uuids
        :param spec: what each of them is to be; project, user and numbers are
            set here
        :param min_count: how many of them must be built for any to be
        :raises cellsched.exception.OverQuota: the project's quota has no room
            for all of them
        """
        return acceptance.accept(
            self.parts.database, self.parts.quotas, context, names, spec,
            min_count)

    def run(
        self, context: RequestContext, uuids: Sequence[str]
    ) -> None:
        """Build servers that were accepted; returns when they were cast.

        Those that are gone, or that another conductor builds, are left out.
        What fails of something that passes is tried again by
        :attr:`periodic`.
        """
        self.task.run(context, uuids)

    def get(
        self, context: RequestContext, uuid: str
    ) -> server.Server:
        """Return a server, wherever it is.

        :raises cellsched.exception.InstanceNotFound: there is none
        """
        return self.parts.listing.get(context, uuid)[0]

    def close(self) -> None:
        """Close what was opened here; waits for builds that were begun.

        Nobody may be in one of the other methods, or in what
        :attr:`periodic` names.
        """
        if self._own_parts:
            self.parts.close()

    def _make_periodic(self) -> list[tuple[Callable[[], None], float]]:
        parts, options = self.parts, self.parts.conf.conductor
        reader = facts.Reader(
            parts.database, parts.cells, parts.gatherer, parts.claims)
        leaked = audit_claims.LeakedClaims(reader, repairs.Repairs(
            reader, parts.targets, parts.cell0, parts.clock, parts.conf.host))
        return [
            (self.task.leases.renew, options.build_lease / _RENEWALS),
            (recovery.Recoverer(
                parts.database, self.task, options.build_lease,
                parts.builders, options.recovery_threads,
                new_uuid=parts.new_uuid).run, options.recovery_interval),
            (_stalled_builds(parts).run, options.cast_check_interval),
            (leaked.run, options.claims_check_interval),
            *parts.compute_cap.periodic(parts.conf.cells.refresh_interval)]


def _scheduler(parts: ConductorParts) -> scheduler_rpc.SchedulerAPI:
    conf = parts.conf
    return scheduler_rpc.SchedulerAPI(
        parts.transports.get(), parts.database.timestamp,
        conf.conductor.scheduling_timeout, conf.long_rpc_timeout,
        conf.upgrade_levels.scheduler, scheduler_rpc.VERSION)


def _task(
    parts: ConductorParts, scheduler: scheduler_rpc.SchedulerAPI
) -> build_and_schedule.BuildAndSchedule:
    conf = parts.conf
    return build_and_schedule.BuildAndSchedule(
        parts.database, parts.targets, parts.cell0, scheduler, parts.compute,
        parts.claims, parts.quotas, parts.clock, conf.host,
        build_and_schedule.TaskLimits(
            conf.conductor.build_lease, conf.conductor.build_deadline,
            conf.conductor.build_attempts, conf.conductor.joint_transactions,
            conf.conductor.retry_delay, conf.conductor.retries,
            fenced=not _share_a_file(conf)),
        new_uuid=parts.new_uuid, reached=parts.reached,
        notifier=parts.task_notifier)


def _stalled_builds(parts: ConductorParts) -> recovery.StalledBuilds:
    conf = parts.conf
    return recovery.StalledBuilds(
        parts.database, parts.cells, parts.gatherer, parts.targets,
        parts.compute,
        conductor_rpc.ConductorAPIs(
            conf.conductor.send_retries, conf.upgrade_levels.conductor,
            conductor_rpc.BUILD_INSTANCES),
        recovery.RetryPolicy(
            conf.conductor.cast_timeout, conf.conductor.cast_attempts,
            conf.service_down_time), parts.builders)


def _share_a_file(conf: cfg.ConfigOpts) -> bool:
    """Return whether the claims are in the API database's SQLite file."""
    url = conf.api_database.connection
    return url.startswith('sqlite') and (
        conf.claims.connection or url) == url
