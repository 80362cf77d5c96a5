# SPDX-License-Identifier: Apache-2.0
"""Filters and a weigher for cellsched."""
