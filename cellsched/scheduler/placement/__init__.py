# SPDX-License-Identifier: Apache-2.0
"""Placement: hosts are chosen for instances, and claimed."""
