# SPDX-License-Identifier: Apache-2.0
"""A claim store for cellsched."""
