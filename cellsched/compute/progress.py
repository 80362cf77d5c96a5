# SPDX-License-Identifier: Apache-2.0
"""Progress of the builds on a host, recorded in the cell."""

import collections
from collections.abc import Sequence
import dataclasses
import datetime
import threading
from typing import Any

from cellsched import batching
from cellsched.clock import Clock
from cellsched.db.cell import build_casts
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched import exception


class Outcomes:
    """Counts the consecutive failed builds of each node.

    Thread-safe. The counts are lost when the process stops.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failed: collections.Counter[str] = collections.Counter()

    def failed(self, node: str) -> None:
        """Count a failed build, regardless of its cause."""
        with self._lock:
            self._failed[node] += 1

    def succeeded(self, node: str) -> None:
        """Reset the count of a node."""
        with self._lock:
            self._failed.pop(node, None)

    def failed_in_a_row(self, node: str) -> int:
        """Return the number of failed builds since the last success."""
        with self._lock:
            return self._failed[node]


#: Nova's number for a server that runs.
RUNNING = 1


@dataclasses.dataclass(eq=False)
class _BuildReport:
    """The start or the end of a build, and the result of recording it.

    :param message: message of a starting build
    """

    uuid: str
    message: build_casts.BuildMessage | None = None
    #: When an ended build began on this host.
    started_at: datetime.datetime | None = None
    #: Whether the row had the expected state, and has the new one.
    recorded: bool = False
    had_networks: bool = False
    error: Exception | None = None

    @property
    def reads_networks(self) -> bool:
        # A server has no networks before its first build.
        return self.message is not None and self.message.tried != 1

    def change(self, host: str, now: datetime.datetime) -> instances.Change:
        """Return the change of the server's state."""
        if self.message is None:
            return instances.Change(
                self.uuid, 'finish',
                {'power_state': RUNNING, 'launched_at': now}, {'host': host})
        expected: dict[str, Any] = {'host': None}
        if self.message.tried:
            # A message of an earlier attempt may come again while the build
            # is on its way to another host, which has its claims.
            expected['build_attempts'] = self.message.tried
        # Another host or node may have the name by now. The claim is on the
        # node with the uuid.
        node = self.message.chosen.nodename
        node_uuid = self.message.chosen.get('compute_node_uuid')
        return instances.Change(
            self.uuid, 'begin',
            {'host': host, 'node': node, 'network_allocated': True}, expected,
            (node_uuid, host, node) if node_uuid else None)


class ProgressReports:
    """Records the start and the end of builds in the rows of servers.

    Reports that arrive during a transaction share the next one.
    """

    def __init__(
        self, host: str, database: session.Database, clock: Clock
    ) -> None:
        self._host = host
        self._database = database
        self._clock = clock
        self._group_commit = batching.GroupCommit(
            self._record, make_lock=clock.lock)

    def begin(
        self, uuid: str, message: build_casts.BuildMessage
    ) -> bool | None:
        """Start a build; return whether it may have networks, or None.

        None means that the build must not start: another host has its node, or
        its server is not in the expected state. From now on the row says that
        the server may have networks.
        """
        report = self._report(_BuildReport(uuid, message))
        return report.had_networks if report.recorded else None

    def finish(
        self, uuid: str, started_at: datetime.datetime | None = None
    ) -> bool:
        """Set a server to ACTIVE, if its build is still in progress.

        This finishes the action ``create``, with the event of this host.
        """
        return self._report(_BuildReport(uuid, started_at=started_at)).recorded

    def _report(self, report: _BuildReport) -> _BuildReport:
        self._group_commit.do(report)
        if report.error is not None:
            raise report.error
        return report

    def _record(self, reports: Sequence[_BuildReport]) -> None:
        try:
            if (len(reports) == 1 and not reports[0].reads_networks
                    and self._database.is_postgresql):
                recorded = self._record_one(reports[0])
            else:
                recorded = self._record_all(reports)
        except exception.DATABASE_UNAVAILABLE as exc:
            # The outcome of the commit is unknown. To write each report alone
            # could repeat a change, and each would wait for the database.
            for report in reports:
                report.error = exception.copy_of(exc)
            return
        for report in reports:
            report.recorded = report.uuid in recorded

    def _record_one(self, report: _BuildReport) -> set[str]:
        """Record a start or an end in one round trip to PostgreSQL."""
        now = self._clock.now()
        change = report.change(self._host, now)
        with self._database.each_alone() as connection:
            if report.message is not None:
                return instances.transit_all(connection, [change], now)
            return instances.end_build(
                connection, change, now, report.started_at, self._host)

    def _record_all(self, reports: Sequence[_BuildReport]) -> set[str]:
        now = self._clock.now()
        with self._database.writer() as connection:
            for report in reports:
                report.had_networks = (
                    report.reads_networks
                    and instances.has_networks(connection, report.uuid))
            recorded = instances.transit_all(connection, [
                report.change(self._host, now) for report in reports], now)
            instance_history.finish(connection, {
                report.uuid: report.started_at for report in reports
                if report.message is None and report.uuid in recorded
            }, 'create', instance_history.BUILD_EVENT, now, self._host)
        return recorded
