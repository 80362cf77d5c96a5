# SPDX-License-Identifier: Apache-2.0
"""Prefer hosts by the metrics that they report."""

from collections.abc import Iterable
import math

import numpy as np
from oslo_config import cfg

from cellsched.conf import metrics
from cellsched import exception
from cellsched.hosts import state
from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base

_Setting = Iterable[tuple[str, float]]


class MetricsWeigher(base.Weigher):
    """Score a host by the sum of its metrics, each multiplied by a ratio.

    The ratios are ``[metrics] weight_setting``. As in Nova, hosts report
    ``cpu.percent`` and its four parts, such as ``cpu.idle.percent``, as
    fractions, and the sum has whole percents. A host that does not report
    all of these metrics as numbers fails the request. If ``[metrics]
    required`` is off, its score is ``weight_of_unavailable`` instead. The
    weight is ``[metrics] weight_multiplier``, or the metadata
    ``metrics_weight_multiplier`` of the host's aggregates.
    """

    group = metrics.GROUP.name
    multiplier_name = 'weight_multiplier'
    local = True
    fixed = True
    by_row = True

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return list(metrics.OPTS)

    def applies(self, request: objects.RequestSpec) -> bool:
        return bool(self.options.weight_setting)

    def multiplier(self, hosts: view.Hosts) -> float | view.Column:
        return hosts.number(
            'metrics_weight_multiplier', self.options.weight_multiplier)

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        required = self.options.required
        setting = [(name, ratio) for name, ratio in self.options.weight_setting
                   if ratio or required]
        scores = hosts.each(
            'metrics', lambda text: _sum(text, setting, math.nan), 'float64')
        missing = np.isnan(scores)
        if not missing.any():
            return scores
        if required:
            raise _not_found(hosts, int(missing.argmax()), setting)
        # If the multiplier is zero, a missing metric must not move the bounds
        # between which the other scores are normalized.
        rest = hosts.each(
            'metrics', lambda text: _sum(text, setting, 0.0), 'float64')
        worst = self.options.weight_of_unavailable
        return np.where(missing, np.where(
            self.multiplier(hosts) == 0, rest, worst), scores)


def _sum(text: str, setting: _Setting, absent: float) -> float:
    """Return the sum of the metrics; ``absent`` where one is missing."""
    values = state.metric_values(text)
    total = sum(ratio * values.get(name, absent) for name, ratio in setting)
    return total if math.isfinite(total) else absent


def _not_found(
    hosts: view.Hosts, place: int, setting: _Setting
) -> exception.CellschedException:
    reported = state.metric_values(
        hosts.value('metrics', int(hosts['metrics'][place])))
    name = next((name for name, _ in setting if name not in reported), 'sum')
    return exception.ComputeHostMetricNotFound(
        name=name, host=hosts['host'][place], node=hosts['nodename'][place])
