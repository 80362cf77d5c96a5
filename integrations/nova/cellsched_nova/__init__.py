# SPDX-License-Identifier: Apache-2.0
"""The scheduler of cellsched in the place of nova-scheduler.

Nova's own service runs it, over Nova's databases, messages and Placement.
``manager`` is what Nova's service calls; all else is below it. Nothing in the
product imports this package.
"""
