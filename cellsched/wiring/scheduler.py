# SPDX-License-Identifier: Apache-2.0
"""The scheduler, and the planner, which selects hosts without claims."""

from collections.abc import Callable
import functools
import pathlib

from oslo_config import cfg
from oslo_utils import uuidutils

from cellsched.cells import discovery
from cellsched.conf import enabled
from cellsched.db import api as api_schema
from cellsched.db.cell import services
from cellsched.host_manager.source import HostSource
from cellsched.notify import notifiers
from cellsched import plugins
from cellsched.rpc import scheduler as scheduler_rpc
from cellsched.rpc import server as rpc_server
from cellsched.scheduler.drivers import base as drivers
from cellsched.scheduler.drivers.filter_scheduler import FilterScheduler
from cellsched.scheduler import recording
from cellsched.scheduler import replay
from cellsched.scheduler import request_validation
from cellsched.scheduler import service as scheduler_service
from cellsched.wiring import base
from cellsched.wiring.components import Components
from cellsched.wiring.service import Service

#: Kinds of plug-ins that a scheduler uses.
PLUGINS = (plugins.CLAIMS, plugins.DRIVERS, plugins.FILTERS,
           plugins.NETWORKS, plugins.WEIGHERS)


@base.factory(Components)
def scheduler(conf: cfg.ConfigOpts, parts: Components) -> Service:
    """Return a scheduler, on the transport of ``transport_url``.

    :raises cellsched.exception.ConfigurationInvalid: the files of recordings
        cannot be written
    """
    api_schema.SCHEMA.check(parts.database)
    parts.claims.check()
    if conf.scheduler.record:
        parts.recorder = recording.Recorder(
            pathlib.Path(conf.scheduler.record),
            conf.scheduler.record_mb * 2 ** 20,
            functools.partial(replay.header_of, conf), parts.clock.monotonic,
            parts.metrics)
        parts.recorder.check()
    driver = enabled.make(
        conf, plugins.DRIVERS, drivers.SchedulerDriver, conf, parts)
    manager = scheduler_service.Scheduler(
        driver, conf.scheduler.max_attempts, request_validation.bounds(
            conf.scheduler),
        notifiers.SchedulerNotifier(
            parts.transports.notifications(), conf.host,
            conf.notifications.notification_format,
            conf.notifications.versioned_notifications_topics, parts.clock),
        parts.reached, conf.scheduler.unknown_hints == 'ignore',
        conf.scheduler.unmet_demands == 'ignore')
    heartbeat = parts.heartbeat(services.SCHEDULER, scheduler_rpc.TOPIC)
    at_once: list[tuple[Callable[[], object], float]] = [
        (heartbeat.report, conf.report_interval),
        *parts.service_counts()]
    period_s = conf.scheduler.discover_hosts_in_cells_interval
    if period_s > 0:
        at_once.append((discovery.PeriodicDiscovery(
            parts.database, parts.discovery,
            f'{conf.host}:{uuidutils.generate_uuid()}', period_s).run,
            period_s))
    return Service(parts, [rpc_server.server(
        parts.transports.get(), scheduler_rpc.TOPIC, conf.host, [manager],
        parts.database.timestamp, conf.scheduler.remote_exceptions,
        clock=parts.clock)],
        driver.periodic(), at_once, driver.state,
        unready=driver.unready, at_stop=heartbeat.stop)


def planner(parts: Components) -> drivers.SchedulerDriver:
    """Return the configured driver, to plan with.

    It reads the live deployment. A plan claims nothing, and is not recorded.
    """
    api_schema.SCHEMA.check(parts.database)
    parts.claims.check()
    driver: drivers.SchedulerDriver = enabled.make(
        parts.conf, plugins.DRIVERS, drivers.SchedulerDriver, parts.conf,
        parts)
    return driver


def host_source(parts: Components) -> HostSource:
    """Return the hosts of the live deployment."""
    api_schema.SCHEMA.check(parts.database)
    parts.claims.check()
    return FilterScheduler(parts.conf, parts).loader
