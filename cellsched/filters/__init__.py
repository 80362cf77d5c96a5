# SPDX-License-Identifier: Apache-2.0
"""Filters: they decide which hosts may take a request.

``base`` is the contract; every other module is a filter or a family of
filters. To add one, subclass ``base.Filter``, name it in the entry points of
``cellsched.scheduler.filters``, and test it with
``cellsched.testing.suite.filters``.
"""
