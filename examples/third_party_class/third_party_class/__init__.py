# SPDX-License-Identifier: Apache-2.0
"""A resource class and a column for cellsched."""
