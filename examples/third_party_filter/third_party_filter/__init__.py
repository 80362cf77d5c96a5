# SPDX-License-Identifier: Apache-2.0
"""Filters and weighers for cellsched."""
