# SPDX-License-Identifier: Apache-2.0
"""Virtualisation drivers: they build the servers of a compute agent.

``base`` is the contract. ``fake`` builds nothing and can be configured to be
slow or to fail. To add a driver, subclass ``base.ComputeDriver`` and name it
in the entry points of ``cellsched.virt``.
"""
