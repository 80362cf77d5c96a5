# SPDX-License-Identifier: Apache-2.0
"""The scheduler, and what plans as it decides."""

from collections.abc import Callable
import functools
import random as random_

from oslo_config import cfg
from oslo_utils import uuidutils

from cellsched.assembly import factory
from cellsched.assembly import service
from cellsched.cells import periodic_discovery
from cellsched.conf import enabled
from cellsched.db import api as api_schema
from cellsched.notify import scheduler_notifier
from cellsched.parts import api_database
from cellsched import plugins
from cellsched.rpc import scheduler as scheduler_rpc
from cellsched.rpc import server as rpc_server
from cellsched.scheduler.drivers import base as drivers
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler.explanation import recorder
from cellsched.scheduler import request_validation
from cellsched.scheduler import service as scheduler_service

#: Kinds of plug-ins that it uses.
PLUGINS = (plugins.CLAIMS, plugins.DRIVERS, plugins.FILTERS,
           plugins.NETWORKS, plugins.WEIGHERS)


class SchedulerServiceParts(api_database.APIDatabaseParts):
    """The parts of a scheduler."""

    @functools.cached_property
    def random(self) -> random_.Random:
        """The source of chance."""
        return random_.Random()

    @functools.cached_property
    def decisions(self) -> recorder.Recorder:
        """Keeps what schedulers of this process decide."""
        return recorder.Recorder(
            self.database, self.clock, self.conf.scheduler.decision_retention)

    def close(self) -> None:
        if 'decisions' in self.__dict__:
            # They go before the database does.
            self.decisions.close()
        super().close()


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


@factory.factory(SchedulerServiceParts)
def planner(
    conf: cfg.ConfigOpts, parts: SchedulerServiceParts
) -> filter_scheduler.FilterScheduler:
    """Return what plans on the live deployment, and takes nothing.

    It decides with the configured filters and weighers.
    """
    api_schema.SCHEMA.check(parts.database)
    parts.claims.check()
    return filter_scheduler.FilterScheduler(conf, parts)
