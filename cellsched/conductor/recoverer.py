# SPDX-License-Identifier: Apache-2.0
"""Taking up builds that were left lying."""

from collections.abc import Callable
from collections.abc import Iterator
from concurrent import futures
import datetime

from oslo_log import log
from oslo_utils import uuidutils

from cellsched.conductor.tasks import build_and_schedule
from cellsched.conductor.tasks import retries
from cellsched import context
from cellsched.db.api import request_leases
from cellsched.db import session

LOG = log.getLogger(__name__)


class Recoverer:
    """Finds build requests that nobody works on, and builds them.

    A message that was lost, or a conductor that died with it, leaves its
    request behind; any conductor may take it up. Several that look at the
    same time find different ones. The lease keeps two of them from doing the
    same work, the fences in the task from doing it twice.

    Requests that were accepted together are taken up together, for they are
    built together or not at all.

    What this conductor tried itself, and is to try again, it does here too.

    :param lease_s: seconds after which what nobody took up is overdue
    :param executor: runs the batches
    :param at_once: how many of them may be run at a time
    :param page: requests to lease at a time; when there were as many, the
        next are looked for at once
    """

    def __init__(
        self, database: session.Database,
        task: build_and_schedule.BuildAndSchedule, lease_s: float,
        executor: futures.Executor, at_once: int = 16,
        page: int = 100,
        new_uuid: Callable[[], str] = uuidutils.generate_uuid,
    ) -> None:
        self._database = database
        self._task = task
        self._lease_s = lease_s
        self._executor = executor
        self._at_once = at_once
        self._page = page
        self._new_uuid = new_uuid
        self._under_way: set[futures.Future[None]] = set()

    def run(self) -> None:
        """Take up what is due.

        Returns when all of it is done or under way, and does not wait for
        the last of it.
        """
        for attempt in self._task.retries.take_due():
            self._begin(attempt)
        for attempt in self._claimed():
            self._begin(attempt)

    def _begin(self, attempt: retries.Attempt) -> None:
        while len(self._under_way) >= self._at_once:
            _, self._under_way = futures.wait(
                self._under_way, return_when=futures.FIRST_COMPLETED)
        self._under_way.add(self._executor.submit(self._try, attempt))

    def _claimed(self) -> Iterator[retries.Attempt]:
        """Yield overdue batches, leased so that no other conductor begins."""
        after = 0
        while True:
            with self._database.reader() as connection:
                due = request_leases.LeaseDeadline(
                    self._database.timestamp(),
                    self._database.now() - datetime.timedelta(
                        seconds=self._lease_s))
                page = request_leases.list_overdue(
                    connection, due, self._page, after)
                batches = request_leases.list_batches(
                    connection, [each.uuid for each in page], due)
            if batches:
                yield from self._claim(batches, due)
            if len(page) < self._page:
                return
            after = page[-1].id

    def _claim(
        self, batches: list[list[str]], due: request_leases.LeaseDeadline
    ) -> Iterator[retries.Attempt]:
        owner = self._new_uuid()
        with self._database.writer() as connection:
            claimed = request_leases.claim(
                connection, batches, owner, due, due.now + self._lease_s)
        for batch in claimed:
            self._task.leases.hold(dict.fromkeys(batch, owner))
        for batch in claimed:
            LOG.warning('Resuming the interrupted builds of instances %s',
                        batch)
            yield retries.Attempt(context.admin(), batch, owner)

    def _try(self, attempt: retries.Attempt) -> None:
        try:
            self._task.attempt(attempt)
        except Exception:
            # The others are not to wait until this is mended.
            LOG.exception('Could not resume the builds of instances %s',
                          attempt.uuids)
