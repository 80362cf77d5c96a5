# SPDX-License-Identifier: Apache-2.0
"""A service that builds its machines with cellsched."""
