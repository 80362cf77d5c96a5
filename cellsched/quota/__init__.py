# SPDX-License-Identifier: Apache-2.0
"""Quotas: limits on the resources of a project.

``base`` is the contract, and each other module a driver. To add a driver,
subclass ``base.QuotaDriver`` and name it in the entry points of
``cellsched.quota``. If only the limits come from another source, subclass
``db.DbQuotaDriver`` with another ``limits_of``.
"""
