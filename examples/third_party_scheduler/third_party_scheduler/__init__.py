# SPDX-License-Identifier: Apache-2.0
"""A scheduler driver outside cellsched."""
