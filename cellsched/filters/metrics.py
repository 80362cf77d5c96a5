# SPDX-License-Identifier: Apache-2.0
"""Keep hosts that report the metrics of the metrics weigher."""

from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from cellsched.conf import metrics
from cellsched.filters import base
from cellsched.hosts import state
from cellsched.hosts import view
from cellsched import objects


class MetricsFilter(base.Filter):
    """Reject a host that lacks a metric of ``[metrics] weight_setting``.

    Without this filter, ``MetricsWeigher`` fails a request that reaches such
    a host, if ``[metrics] required`` is on.
    """

    reason = 'lacks a metric that hosts are weighed by'
    run_filter_once_per_request = True
    group = metrics.GROUP.name

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return [option for option in metrics.OPTS
                if option.name == 'weight_setting']

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._names = {name for name, _ in options.weight_setting}

    def applies(self, request: objects.RequestSpec) -> bool:
        return bool(self._names)

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        return hosts.each(
            'metrics', lambda text: self._names <= _reported(text))


def _reported(text: str) -> set[Any]:
    """Return the names of the metrics that a host reports."""
    metrics_ = state.parsed(text)
    if not isinstance(metrics_, list):
        return set()
    return {name for each in metrics_ if isinstance(each, Mapping)
            and isinstance(name := each.get('name'), str)}
