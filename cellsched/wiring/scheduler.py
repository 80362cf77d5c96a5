# SPDX-License-Identifier: Apache-2.0
"""The scheduler."""

from collections.abc import Callable

from oslo_config import cfg
from oslo_utils import uuidutils

from cellsched.cells import periodic_discovery
from cellsched.conf import enabled
from cellsched.db import api as api_schema
from cellsched.notify import scheduler_notifier
from cellsched import plugins
from cellsched.rpc import scheduler as scheduler_rpc
from cellsched.rpc import server as rpc_server
from cellsched.scheduler.drivers import base as drivers
from cellsched.scheduler import request_validation
from cellsched.scheduler import service as scheduler_service
from cellsched.wiring import factory
from cellsched.wiring import planner
from cellsched.wiring import service

#: Kinds of plug-ins that it uses.
PLUGINS = (plugins.CLAIMS, plugins.DRIVERS, plugins.FILTERS,
           plugins.NETWORKS, plugins.WEIGHERS)


class SchedulerServiceParts(planner.PlannerParts):
    """The parts of a scheduler."""


@factory.factory(SchedulerServiceParts)
def scheduler(
    conf: cfg.ConfigOpts, parts: SchedulerServiceParts
) -> service.Service:
    """Return a scheduler, on the transport of ``transport_url``."""
    api_schema.SCHEMA.check(parts.database)
    parts.claims.check()
    driver = enabled.make(
        conf, plugins.DRIVERS, drivers.SchedulerDriver, conf, parts)
    manager = scheduler_service.Scheduler(
        driver, conf.scheduler.max_attempts, request_validation.bounds(
            conf.scheduler),
        scheduler_notifier.SchedulerNotifier(
            parts.transports.notifications(), conf.host,
            conf.notifications.notification_format,
            conf.notifications.versioned_notifications_topics, parts.clock),
        parts.reached, conf.scheduler.unknown_hints == 'ignore',
        conf.scheduler.unmet_demands == 'ignore')
    return service.Service(parts, [rpc_server.server(
        parts.transports.get(), scheduler_rpc.TOPIC, conf.host, [manager],
        parts.database.timestamp, conf.scheduler.remote_exceptions)],
        driver.periodic(), _discovering(conf, parts))


def _discovering(
    conf: cfg.ConfigOpts, parts: SchedulerServiceParts
) -> list[tuple[Callable[[], object], float]]:
    """Return the discovery of hosts by period, where that is configured."""
    period_s = conf.scheduler.discover_hosts_in_cells_interval
    if period_s <= 0:
        return []
    return [(periodic_discovery.PeriodicDiscovery(
        parts.database, parts.discovery,
        f'{conf.host}:{uuidutils.generate_uuid()}', period_s).run, period_s)]
