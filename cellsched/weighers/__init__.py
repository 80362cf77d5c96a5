# SPDX-License-Identifier: Apache-2.0
"""Weighers: which of the hosts that passed is best.

``base`` is the contract, every other module a weigher. To add one, subclass
``base.Weigher``, name it in the entry points of
``cellsched.scheduler.weighers``, and test it with
``cellsched.testing.suite.weighers``.
"""
