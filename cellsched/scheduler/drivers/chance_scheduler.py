# SPDX-License-Identifier: Apache-2.0
"""The driver that selects hosts at random."""

import numpy as np

from cellsched.hosts import view
from cellsched import objects
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.weighers import base as weighers


class ChanceScheduler(filter_scheduler.FilterScheduler):
    """Selects any host that is up and has capacity.

    This is the baseline for a configuration of filters and weighers. It
    ignores their options.
    """

    def make_pipeline(self) -> pipeline.Pipeline:
        return filter_scheduler.pipeline_of(
            self.conf, ['ComputeFilter'],
            weighed_by=[_Dice(self.parts.random.getrandbits(64))])


class _Dice(weighers.Weigher):
    """Gives each host a random weight; has no option."""

    multiplier_name = ''

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = np.random.default_rng(seed)

    def multiplier(self, hosts: view.Hosts) -> float:
        return 1.0

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        return self._generator.random(len(hosts))
