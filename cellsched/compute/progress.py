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
from cellsched.db.cell import networks
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
class _News:
    """The start or the end of a build, and the result of recording it.

    :param message: message of a starting build
    """

    uuid: str
    message: build_casts.BuildMessage | None = None
    #: When an ended build began on this host.
    started_at: datetime.datetime | None = None
    #: Whether the build was as expected, and now is as it was to be.
    went: bool = False
    had_networks: bool = False
    error: Exception | None = None

    @property
    def asks_networks(self) -> bool:
        # Nobody gives networks before the first try.
        return self.message is not None and self.message.tried != 1

    def change(self, host: str, now: datetime.datetime) -> instances.Change:
        """Return the change of the server's state."""
        if self.message is None:
            return instances.Change(
                self.uuid, 'finish',
                {'power_state': RUNNING, 'launched_at': now}, {'host': host})
        expected: dict[str, Any] = {'host': None}
        if self.message.tried:
            # A message of an earlier try may come again, when the build is
            # on its way to another host and what it claims is there.
            expected['build_attempts'] = self.message.tried
        # A name can be that of another host or node by now. The claim is on
        # the node with the uuid.
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
            self._say, make_lock=clock.lock)

    def begin(
        self, uuid: str, message: build_casts.BuildMessage
    ) -> bool | None:
        """Start a build; return whether it may have networks, or None.

        None means that the build must not start: another host has its node, or
        its server is not in the expected state. From now on the row says that
        the server may have networks.
        """
        news = self._exchange(_News(uuid, message))
        return news.had_networks if news.went else None

    def finish(
        self, uuid: str, started_at: datetime.datetime | None = None
    ) -> bool:
        """Set a server to ACTIVE, if its build is still in progress.

        This finishes the action ``create``, with the event of this host.
        """
        return self._exchange(_News(uuid, started_at=started_at)).went

    def _exchange(self, news: _News) -> _News:
        self._group_commit.do(news)
        if news.error is not None:
            raise news.error
        return news

    def _say(self, all_news: Sequence[_News]) -> None:
        try:
            if (len(all_news) == 1 and not all_news[0].asks_networks
                    and self._database.is_postgresql):
                went = self._say_at_once(all_news[0])
            else:
                went = self._say_together(all_news)
        except exception.DATABASE_UNAVAILABLE as exc:
            # Nobody knows whether that was committed, so that to say it of
            # each again could be taken for what is late; and each would wait
            # as long.
            for news in all_news:
                news.error = exception.copy_of(exc)
            return
        for news in all_news:
            news.went = news.uuid in went

    def _say_at_once(self, news: _News) -> set[str]:
        """Record a start or an end in one round trip to PostgreSQL."""
        now = self._clock.now()
        change = news.change(self._host, now)
        with self._database.each_alone() as connection:
            if news.message is not None:
                return instances.transit_all(connection, [change], now)
            return instances.end_build(
                connection, change, now, news.started_at, self._host)

    def _say_together(self, all_news: Sequence[_News]) -> set[str]:
        now = self._clock.now()
        with self._database.writer() as connection:
            for news in all_news:
                news.had_networks = (
                    news.asks_networks
                    and networks.is_allocated(connection, news.uuid))
            went = instances.transit_all(connection, [
                news.change(self._host, now) for news in all_news], now)
            instance_history.finish(connection, {
                news.uuid: news.started_at for news in all_news
                if news.message is None and news.uuid in went
            }, 'create', instance_history.BUILD_EVENT, now, self._host)
        return went
