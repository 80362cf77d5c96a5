# SPDX-License-Identifier: Apache-2.0
"""Virtualisation drivers: what a compute agent builds servers with.

``base`` is the contract; ``fake`` builds nothing and can be told to be slow
or to fail. To add one, subclass ``base.ComputeDriver`` and name it in the
entry points of ``cellsched.virt``.
"""
