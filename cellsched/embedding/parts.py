# SPDX-License-Identifier: Apache-2.0
"""The parts of a conductor above the cells, each made when it is needed."""

import functools

from futurist import ThreadPoolExecutor

from cellsched.cells import cell0
from cellsched.notify import task_notifier as notify_tasks
from cellsched.parts import servers


class ConductorParts(servers.ServerParts):
    """The parts of a conductor; :class:`~.ProcessParts` says what is taken.

    Several in one process share nothing.
    """

    @functools.cached_property
    def builders(self) -> ThreadPoolExecutor:
        """Threads that take up what was left lying."""
        return ThreadPoolExecutor(self.conf.conductor.recovery_threads)

    @functools.cached_property
    def cell0(self) -> cell0.Cell0:
        return cell0.Cell0(self.database, self.cells, self.targets,
                           self.clock, self.conf.host, self.task_notifier)

    @functools.cached_property
    def task_notifier(self) -> notify_tasks.TaskNotifier:
        """Tells of what conductors do."""
        options = self.conf.notifications
        return notify_tasks.TaskNotifier(
            self.transports.notifications(), self.conf.host,
            options.notification_format,
            options.versioned_notifications_topics,
            options.notify_on_state_change, self.clock)

    def close(self) -> None:
        """Close what was opened here; waits for what was begun."""
        if 'builders' in self.__dict__:
            self.builders.shutdown()
        super().close()
