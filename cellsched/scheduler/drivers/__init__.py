# SPDX-License-Identifier: Apache-2.0
"""Scheduler drivers, which select and claim hosts for a request.

``base`` is the contract. To add a driver, subclass ``base.SchedulerDriver``
and name it in the entry points of ``cellsched.scheduler.drivers``.
"""
