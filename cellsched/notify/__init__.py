# SPDX-License-Identifier: Apache-2.0
"""Notifications, by oslo.messaging, in Nova's forms and under Nova's names.

A notification reports the start or the end of an operation. A failure to send
it never fails the operation. To add one, write its payload in ``payloads``, a
method of ``notifiers.SchedulerNotifier`` or ``notifiers.TaskNotifier``, and
samples in ``doc/source/_static/notifications``.
"""

from cellsched import silence_eventlet  # noqa: F401
