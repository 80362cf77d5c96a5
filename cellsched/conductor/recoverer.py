# SPDX-License-Identifier: Apache-2.0
"""Taking up builds that were left lying."""

import datetime

from oslo_log import log

from cellsched import clock as clock_
from cellsched.conductor.tasks import build_and_schedule
from cellsched import context as context_
from cellsched.db.api import build_requests
from cellsched.db import session

LOG = log.getLogger(__name__)


class Recoverer:
    """Finds build requests that nobody works on, and builds them.

    A message that was lost, or a conductor that died with it, leaves its
    request behind; any conductor may take it up. The lease keeps two of them
    from doing the same work, the fences in the task from doing it twice.

    Requests that were accepted together are taken up together, for they are
    built together or not at all.

    :param overdue_max: requests to look at each time
    """

    def __init__(
        self, database: session.Database,
        task: build_and_schedule.BuildAndSchedule, clock: clock_.Clock,
        lease_s: float, overdue_max: int = 100,
    ) -> None:
        self._database = database
        self._task = task
        self._clock = clock
        self._lease_s = lease_s
        self._overdue_max = overdue_max

    def run(self) -> None:
        """Take up what is overdue, one batch at a time."""
        now = self._clock.steady()
        never_taken_up = datetime.datetime.fromtimestamp(
            now - self._lease_s, datetime.UTC).replace(tzinfo=None)
        with self._database.reader() as connection:
            overdue = build_requests.list_overdue(
                connection, now, never_taken_up,
                self._overdue_max)
        seen: set[str] = set()
        for uuid in overdue:
            if uuid not in seen:
                seen.update(self._take_up(uuid))

    def _take_up(self, uuid: str) -> list[str]:
        """Build the batch of an instance; return the instances in it."""
        batch = [uuid]
        try:
            with self._database.reader() as connection:
                batch = build_requests.list_batch(connection, uuid)
            LOG.warning('Taking up the builds of %s, which were left lying',
                        batch)
            self._task.run(context_.admin(), batch)
        except Exception:
            # The others are not to wait until this is mended.
            LOG.exception('The builds of %s cannot be taken up', batch)
        return batch
