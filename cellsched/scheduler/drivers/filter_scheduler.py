# SPDX-License-Identifier: Apache-2.0
"""The driver that keeps hosts in columns, and filters and weighs them."""

from collections.abc import Sequence
from typing import Any

from oslo_config import cfg

from cellsched import context as context_
from cellsched.filters import base as filters
from cellsched.hosts import loader
from cellsched import objects
from cellsched import plugins
from cellsched.scheduler.drivers import base
from cellsched.scheduler import pipeline
from cellsched.scheduler import placing
from cellsched.weighers import base as weighers


class FilterScheduler(base.Driver):
    """Decides on a table in memory, and lets the claim store arbitrate.

    The filters of ``[filter_scheduler] enabled_filters`` say which hosts may
    take a request, the weighers of ``weight_classes`` which is best.
    """

    def __init__(self, conf: cfg.ConfigOpts, parts: Any) -> None:
        super().__init__(conf, parts)
        self.loader = loader.Loader(
            parts.database, parts.cells, parts.gatherer, parts.discovery,
            parts.claims, parts.clock, conf.scheduler.refresh_interval,
            conf.default_availability_zone,
            [column for more in plugins.load_all(plugins.COLUMNS).values()
             for column in more])
        self._placing = placing.Placing(
            self.loader, self.make_pipeline(), parts.claims, parts.clock,
            conf.scheduler.claim_attempts)

    def make_pipeline(self) -> pipeline.Pipeline:
        """Return the decision that this driver makes."""
        options = self.conf.filter_scheduler
        return pipeline.Pipeline(
            filters.make(self.conf, options.enabled_filters),
            weighers.make(self.conf, options.weight_classes))

    def select_destinations(
        self, context: context_.RequestContext, request: objects.RequestSpec,
        instance_uuids: Sequence[str], alternates: int,
    ) -> list[list[objects.Selection]]:
        return self._placing.place(
            context, request, instance_uuids, alternates)
