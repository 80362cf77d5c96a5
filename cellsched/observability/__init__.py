# SPDX-License-Identifier: Apache-2.0
"""The state of a process for operators: metrics, health and traces.

To add a metric, define it in ``metrics`` and add a row to the table in
``doc/source/admin/metrics.rst``. ``monitoring`` answers requests over HTTP,
and ``tracing`` records spans.
"""
