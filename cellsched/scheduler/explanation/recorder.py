# SPDX-License-Identifier: Apache-2.0
"""Keeping decisions, so that they can be explained later."""

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
from cellsched.scheduler.explanation import decision_document
from cellsched.scheduler.explanation import decision_record

LOG = log.getLogger(__name__)

#: Seconds between writings to the database.
SPACING_S = 1.0

#: Decisions that wait to be written; of more than that the oldest are
#: forgotten.
WAITING_MAX = 1000

#: Seconds between removals of what is too old, how many rows one transaction
#: removes, and how many transactions there are at a time.
PURGE_SPACING_S = 60.0
PURGE_ROWS = 500
PURGE_ROUNDS = 20

#: The longest request id that is kept.
_REQUEST_ID_MAX = 255


@dataclasses.dataclass(frozen=True)
class _Waiting:
    """A decision as it was made; nobody changes what is referred to."""

    now: datetime.datetime
    decided_at: float
    request_id: str | None
    request: objects.RequestSpec
    uuids: Sequence[str]
    decision: decision_record.Decision


class Recorder:
    """Writes decisions to the API database, apart from who decides.

    What could not be written waits, and is written later.

    :param retention_s: seconds for which decisions are kept; zero for none
    """

    def __init__(
        self, database: session.Database, clock: Clock,
        retention_s: float,
    ) -> None:
        self._database = database
        self._clock = clock
        self._retention_s = retention_s
        self._lock = threading.Lock()
        self._flushing = clock.lock()
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._forgotten = 0
        self._failing = False
        self._purged_at: float | None = None

    def record(
        self, context: RequestContext, request: objects.RequestSpec,
        uuids: Sequence[str], decision: decision_record.Decision,
    ) -> None:
        """Remember a decision until it is written; never blocks.

        Neither the request nor the decision may be changed any more.
        """
        if not self._retention_s:
            return
        made = _Waiting(
            self._clock.now(), self._clock.timestamp(), context.request_id,
            request, tuple(uuids), decision)
        with self._lock:
            self._waiting.append(made)
            self._bound()

    def flush(self) -> None:
        """Write what waits, and forget what is too old; never fails."""
        with self._flushing:
            self._write()
            now = self._clock.monotonic()
            if not self._failing and self._retention_s and (
                    self._purged_at is None
                    or now - self._purged_at >= PURGE_SPACING_S):
                self._purge()
                self._purged_at = now

    def close(self) -> None:
        """Write what still waits, for the last time."""
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
            with self._database.writer() as connection:
                decisions.create(connection, [row for _, row in made],
                                 self._clock.now())
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

    def _put_back(self, batch: Sequence[_Waiting]) -> None:
        with self._lock:
            self._waiting.extendleft(reversed(batch))
            self._bound()

    def _bound(self) -> None:
        """Forget the oldest that are too many; the lock is held."""
        while len(self._waiting) > WAITING_MAX:
            self._waiting.popleft()
            self._forgotten += 1

    def _purge(self) -> None:
        before = self._clock.timestamp() - self._retention_s
        try:
            for _ in range(PURGE_ROUNDS):
                with self._database.writer() as connection:
                    gone = decisions.purge(connection, before, PURGE_ROWS)
                if gone < PURGE_ROWS:
                    break
        except Exception:
            LOG.exception('Old decisions cannot be removed; that is tried '
                          'again in %d seconds', PURGE_SPACING_S)


def _row(made: _Waiting) -> decisions.DecisionRow | None:
    """Return what is to be written, or None if it cannot be."""
    try:
        request_id = _request_id(made.request_id)
        return decisions.DecisionRow(
            request_id, made.decided_at, made.uuids,
            # Databases take their time for each character.
            jsonutils.dumps(decision_document.of(
                made.decision, made.request, made.uuids, request_id,
                made.now), separators=(',', ':')))
    except Exception:
        # It would fail each time, and hold up the others.
        LOG.exception('A decision on %s cannot be kept', made.uuids[:1])
        return None


def _request_id(said: str | None) -> str | None:
    """Return an id that every database can keep; others choose it."""
    if not said:
        return None
    if len(said) <= _REQUEST_ID_MAX and said.isascii() and said.isprintable():
        return said
    return ''.join(each for each in said[:_REQUEST_ID_MAX]
                   if each.isascii() and each.isprintable())
