# SPDX-License-Identifier: Apache-2.0
"""Scheduler drivers: how a request for hosts is answered.

``base`` is the contract. To add one, subclass ``base.SchedulerDriver`` and
name it in the entry points of ``cellsched.scheduler.drivers``.
"""
