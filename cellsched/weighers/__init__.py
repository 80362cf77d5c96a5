# SPDX-License-Identifier: Apache-2.0
"""Weighers: they rank the hosts that passed the filters.

``base`` is the contract; every other module is a weigher. To add one,
subclass ``base.Weigher``, name it in the entry points of
``cellsched.scheduler.weighers``, and test it with
``cellsched.testing.suite.weighers``.
"""
