# SPDX-License-Identifier: Apache-2.0
"""A service that has cellsched build its machines."""
