# SPDX-License-Identifier: Apache-2.0
"""All services, for who runs several in one process."""

from cellsched.wiring import api as api_
from cellsched.wiring import archiver as archiver_
from cellsched.wiring import auditor as auditor_
from cellsched.wiring import compute as compute_
from cellsched.wiring import conductor as conductor_
from cellsched.wiring import factory
from cellsched.wiring import planner as planner_
from cellsched.wiring import scheduler as scheduler_
from cellsched.wiring import service
from cellsched.wiring import upgrade_checks as upgrade_checks_

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
