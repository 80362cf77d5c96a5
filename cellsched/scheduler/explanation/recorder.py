# SPDX-License-Identifier: Apache-2.0
"""Storage of decisions, so that they can be explained later."""

import collections
from collections.abc import Sequence
import dataclasses
import datetime
import threading

from oslo_log import log
from oslo_serialization import jsonutils

from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.api import decisions
from cellsched.db import session
from cellsched import objects
from cellsched.scheduler.explanation import decision_record

LOG = log.getLogger(__name__)

#: Seconds between writes to the database.
SPACING_S = 1.0

#: The most decisions that wait for a write; beyond it the oldest are dropped.
WAITING_MAX = 1000

#: Purging: seconds between runs, rows of one transaction, and transactions of
#: one run.
PURGE_SPACING_S = 60.0
PURGE_ROWS = 500
PURGE_ROUNDS = 20

#: The longest request id that is stored.
_REQUEST_ID_MAX = 255


@dataclasses.dataclass(frozen=True)
class _WaitingDecision:
    """A decision that waits for its write; its objects must not change."""

    now: datetime.datetime
    decided_at: float
    request_id: str | None
    request: objects.RequestSpec
    uuids: Sequence[str]
    decision: decision_record.Decision


@dataclasses.dataclass(eq=False)
class Recorder:
    """Writes decisions to the API database in the background.

    A decision that could not be written is retried.

    :param retention_s: seconds to keep decisions; zero stores none
    """

    database: session.Database
    clock: Clock
    retention_s: float

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._flushing = self.clock.lock()
        self._waiting = collections.deque[_WaitingDecision]()
        self._forgotten = 0
        self._failing = False
        self._purged_at: float | None = None

    def record(
        self, context: RequestContext, request: objects.RequestSpec,
        uuids: Sequence[str], decision: decision_record.Decision,
    ) -> None:
        """Queue a decision for the next write; never blocks.

        The request and the decision must not be changed afterwards.
        """
        if not self.retention_s:
            return
        made = _WaitingDecision(
            self.clock.now(), self.clock.timestamp(), context.request_id,
            request, tuple(uuids), decision)
        with self._lock:
            self._waiting.append(made)
            self._bound()

    @property
    def waiting(self) -> int:
        """The number of decisions that wait for a write."""
        return len(self._waiting)

    def flush(self) -> None:
        """Write waiting decisions and purge old ones; never raises."""
        with self._flushing:
            self._write()
            now = self.clock.monotonic()
            if not self._failing and self.retention_s and (
                    self._purged_at is None
                    or now - self._purged_at >= PURGE_SPACING_S):
                self._purge()
                self._purged_at = now

    def close(self) -> None:
        """Write the waiting decisions a last time."""
        with self._flushing:
            self._write()
        if self._waiting:
            LOG.error('%d decisions could not be written and are lost',
                      len(self._waiting))

    def _write(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting, collections.deque()
        if not batch:
            return
        made = [(each, row) for each in batch
                if (row := _row(each)) is not None]
        try:
            with self.database.writer() as connection:
                decisions.create(connection, [row for _, row in made],
                                 self.clock.now())
        except Exception:
            self._put_back([each for each, _ in made])
            if not self._failing:
                LOG.exception('Decisions cannot be written; they wait')
            self._failing = True
            return
        with self._lock:
            forgotten, self._forgotten = self._forgotten, 0
        if self._failing:
            LOG.info('Decisions are written again')
        if forgotten:
            LOG.warning('%d decisions were forgotten before they could be '
                        'written', forgotten)
        self._failing = False

    def _put_back(self, batch: Sequence[_WaitingDecision]) -> None:
        with self._lock:
            self._waiting.extendleft(reversed(batch))
            self._bound()

    def _bound(self) -> None:
        """Drop the oldest decisions beyond the limit; the lock is held."""
        while len(self._waiting) > WAITING_MAX:
            self._waiting.popleft()
            self._forgotten += 1

    def _purge(self) -> None:
        before = self.clock.timestamp() - self.retention_s
        try:
            for _ in range(PURGE_ROUNDS):
                with self.database.writer() as connection:
                    gone = decisions.purge(connection, before, PURGE_ROWS)
                if gone < PURGE_ROWS:
                    break
        except Exception:
            LOG.exception('Old decisions cannot be removed; that is tried '
                          'again in %d seconds', PURGE_SPACING_S)


def _row(made: _WaitingDecision) -> decisions.DecisionRow | None:
    """Return the row of a decision, or None if it cannot be stored."""
    try:
        request_id = _request_id(made.request_id)
        return decisions.DecisionRow(
            request_id, made.decided_at, made.uuids,
            # Limit the size: databases are slow with long values.
            jsonutils.dumps(decision_record.document_of(
                made.decision, made.request, made.uuids, request_id,
                made.now), separators=(',', ':')))
    except Exception:
        # A retry would fail again and block the remaining decisions.
        LOG.exception('A decision on %s cannot be kept', made.uuids[:1])
        return None


def _request_id(value: str | None) -> str | None:
    """Return a request id that every database can store, from the caller's."""
    if not value:
        return None
    if (len(value) <= _REQUEST_ID_MAX and value.isascii()
            and value.isprintable()):
        return value
    return ''.join(each for each in value[:_REQUEST_ID_MAX]
                   if each.isascii() and each.isprintable())
