# SPDX-License-Identifier: Apache-2.0
"""A service of somebody else's, which has our task do its builds.

It has its own configuration, its own transport and its own verbs, and knows
neither how our services are put together nor where they run.
"""

from oslo_config import cfg
import oslo_messaging

from cellsched.cells import cell0
from cellsched.cells import registry
from cellsched.cells import target
from cellsched.claims import sql
from cellsched import clock as clock_
from cellsched.conductor.tasks import build_and_schedule
from cellsched import context
from cellsched.db import session
from cellsched.quota import noop
from cellsched.rpc import compute
from cellsched.rpc import scheduler
from cellsched.rpc import transport

OPTS = [cfg.StrOpt('listen'), cfg.StrOpt('placement'), cfg.StrOpt('api'),
        cfg.StrOpt('claims')]


class Orchestra:
    """Plays what it is given."""

    target = oslo_messaging.Target(namespace='orchestra', version='3.7')

    def __init__(self, task):
        self._task = task

    def perform(self, ctxt, pieces):
        self._task.run(context.RequestContext(user_id=ctxt['who']), pieces)
        return len(pieces)


def make(conf):
    """Return the service and what it opened, by its own configuration."""
    conf.register_opts(OPTS, group='orchestra')
    options, clock = conf.orchestra, clock_.Clock()
    databases = session.Databases(clock_.Clock())
    transports = transport.Transports(conf)
    database = databases.get(options.api, 'API')
    targets = target.Targets(databases, transports)
    cells = registry.CellRegistry(database, clock, interval_s=10)
    task = build_and_schedule.BuildAndSchedule(
        database, targets,
        cell0.Cell0(database, cells, targets, clock, 'orchestra'),
        scheduler.SchedulerAPI(
            transports.get(options.placement), database.timestamp),
        compute.ComputeAPIs(),
        sql.SQLClaims(databases.get(options.claims, 'claims')),
        noop.NoopQuotaDriver(conf, clock), clock, 'orchestra',
        build_and_schedule.TaskLimits(lease_s=60))
    server = oslo_messaging.get_rpc_server(
        transports.get(options.listen),
        oslo_messaging.Target(topic='orchestra', server='pit'),
        [Orchestra(task)],
        access_policy=oslo_messaging.DefaultRPCAccessPolicy)
    return server, transports, databases
