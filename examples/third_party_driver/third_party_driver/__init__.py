# SPDX-License-Identifier: Apache-2.0
"""A virtualisation driver for cellsched that reports child providers."""
