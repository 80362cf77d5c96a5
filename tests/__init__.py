# SPDX-License-Identifier: Apache-2.0
"""Tests: unit, functional, integration, and regressions."""

from oslo_service import backend

from cellsched import silence_eventlet  # noqa: F401

backend.init_backend(backend.BackendType.THREADING)
