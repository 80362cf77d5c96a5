# SPDX-License-Identifier: Apache-2.0
"""The scheduler of cellsched in the place of nova-scheduler.

Nova's own service runs it with Nova's databases, messages and Placement.
Nova's service calls ``manager``. The product never imports this package.
"""
