# SPDX-License-Identifier: Apache-2.0
"""The state of a process for operators: metrics, health, traces and log lines.

To add a metric, define it in ``metrics`` and add a row to the table in
``doc/source/admin/metrics.rst``. ``monitoring`` answers requests over HTTP,
``tracing`` records spans, and ``conditions`` logs the begin and the end of a
problem that lasts.
"""
