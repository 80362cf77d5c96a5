# SPDX-License-Identifier: Apache-2.0
"""The planner, which decides as schedulers do and takes nothing."""

import functools

from oslo_config import cfg

from cellsched.db import api as api_schema
from cellsched.parts import api_database
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler.explanation import recorder
from cellsched.wiring import factory


class PlannerParts(api_database.APIDatabaseParts):
    """The parts of what decides."""

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


@factory.factory(PlannerParts)
def planner(
    conf: cfg.ConfigOpts, parts: PlannerParts
) -> filter_scheduler.FilterScheduler:
    """Return what plans on the live deployment, and takes nothing.

    It decides with the configured filters and weighers.
    """
    api_schema.SCHEMA.check(parts.database)
    parts.claims.check()
    return filter_scheduler.FilterScheduler(conf, parts)
