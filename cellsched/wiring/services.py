# SPDX-License-Identifier: Apache-2.0
"""All services, for programs that run several in one process."""

from cellsched.wiring.api import API
from cellsched.wiring.api import api
from cellsched.wiring.components import Components
from cellsched.wiring.compute import compute
from cellsched.wiring.conductor import conductor
from cellsched.wiring.maintenance import archiver
from cellsched.wiring.maintenance import auditor
from cellsched.wiring.maintenance import upgrade_checks
from cellsched.wiring.scheduler import planner
from cellsched.wiring.scheduler import scheduler
from cellsched.wiring.service import Service

__all__ = ['API', 'Components', 'Service', 'api', 'archiver', 'auditor',
           'compute', 'conductor', 'planner', 'scheduler', 'upgrade_checks']
