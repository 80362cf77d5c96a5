# SPDX-License-Identifier: Apache-2.0
"""A virtualisation driver with providers of its own for cellsched."""
