# SPDX-License-Identifier: Apache-2.0
"""All services, for who runs several in one process."""

from cellsched.assembly import api as api_
from cellsched.assembly import archiver as archiver_
from cellsched.assembly import auditor as auditor_
from cellsched.assembly import compute as compute_
from cellsched.assembly import conductor as conductor_
from cellsched.assembly import factory
from cellsched.assembly import planner as planner_
from cellsched.assembly import scheduler as scheduler_
from cellsched.assembly import service
from cellsched.assembly import upgrade_checks as upgrade_checks_

API = api_.API
Service = service.Service


class Parts(
    conductor_.ConductorServiceParts, scheduler_.SchedulerServiceParts,
    api_.APIParts, compute_.AgentParts,
):
    """The parts of all services; see :class:`.ProcessParts`."""


_factory = factory.factory(Parts)

api = _factory(api_.api)
archiver = _factory(archiver_.archiver)
auditor = _factory(auditor_.auditor)
compute = _factory(compute_.compute)
conductor = _factory(conductor_.conductor)
planner = _factory(planner_.planner)
scheduler = _factory(scheduler_.scheduler)
upgrade_checks = _factory(upgrade_checks_.upgrade_checks)
