# SPDX-License-Identifier: Apache-2.0
"""Tests: unit, functional, integration, and regressions."""

from oslo_service import backend

backend.init_backend(backend.BackendType.THREADING)
