# SPDX-License-Identifier: Apache-2.0
"""Notifications to whoever listens.

A notification says that something began or ended. Nobody answers it, and what
it is about goes on whether it could be sent or not. It goes by oslo.messaging,
in the forms and under the names that Nova uses. To add one, write its payload
in ``payloads``, a method of ``scheduler_notifier.SchedulerNotifier`` or of
``task_notifier.TaskNotifier``, and samples in
``doc/source/_static/notifications``.
"""

from cellsched import silence_eventlet  # noqa: F401
