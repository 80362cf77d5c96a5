# SPDX-License-Identifier: Apache-2.0
"""Decisions beside nova-scheduler, to compare the two.

Nothing is claimed, and no request is answered.
"""
