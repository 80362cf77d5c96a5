# SPDX-License-Identifier: Apache-2.0
"""The public name of the metrics of a process, for embedding services."""

from cellsched.observability.prometheus import PrometheusMetrics

__all__ = ['PrometheusMetrics']
