# SPDX-License-Identifier: Apache-2.0
"""Records of decisions, in a database separate from Nova's databases."""

import logging
import threading
from typing import Any

from oslo_log import log

from cellsched.clock import Clock
from cellsched.db.api import decisions
from cellsched.db import session
from cellsched.observability.conditions import Conditions
from cellsched.scheduler.explanation import decision_record

LOG = log.getLogger(__name__)

#: The condition that the tables do not exist and cannot be created.
_UNRECORDED = 'Decisions cannot be recorded; the scheduler retries'


def open_database(conf: Any) -> session.Database:
    """Return the database of records; it connects at the first use.

    :param conf: Nova's configuration
    :raises cellsched.exception.ConfigurationInvalid: the URL of the database
        is invalid
    """
    return session.Databases(Clock()).get(
        conf.cellsched.records_connection, 'records')


def find(
    database: session.Database, name: str, limit: int | None
) -> list[decisions.DecisionRow]:
    """Return the decisions on a server or request, newest first.

    A missing database or table is not created and counts as empty.

    :param name: uuid of a server, or id of a request
    :raises cellsched.exception.DatabaseUnreachable: no connection
    """
    if not database.exists():
        return []
    with database.reader() as connection:
        if not decisions.has_tables(connection):
            return []
        return decisions.find(connection, name, limit)


class DecisionRecords:
    """Records decisions without blocking the requests.

    :param retention_s: seconds to keep a decision; 0 records none
    """

    def __init__(
        self, database: session.Database, retention_s: float
    ) -> None:
        self._database = database
        self._retention_s = retention_s
        self._recorder = decision_record.Recorder(
            database, Clock(), retention_s)
        #: Queue a decision until the next flush; never blocks.
        self.record = self._recorder.record
        self._has_tables = False
        self._conditions = Conditions(LOG, Clock().monotonic)
        self._stopping = threading.Event()

    @property
    def waiting(self) -> int:
        """The number of decisions that are not written yet."""
        return self._recorder.waiting

    def start(self) -> None:
        """Start the thread that writes decisions."""
        def work() -> None:
            while not self._stopping.wait(decision_record.SPACING_S):
                self.flush()

        if self._retention_s:
            self._stopping.clear()
            threading.Thread(
                target=work, name='decisions', daemon=True).start()

    def stop(self) -> None:
        """Stop the thread, and write the queued decisions."""
        self._stopping.set()
        if self._retention_s and self._make_tables():
            self._recorder.close()

    def flush(self) -> None:
        """Write the queue, and remove expired decisions; never fails."""
        if self._make_tables():
            self._recorder.flush()

    def _make_tables(self) -> bool:
        """Create the tables if necessary; return whether they exist."""
        if self._has_tables:
            return True
        try:
            try:
                self._create_tables()
            except Exception:
                # Another process may have created them at the same time.
                self._create_tables()
        except Exception as exc:
            # The queue keeps the newest decisions.
            self._conditions.occur(_UNRECORDED, exc, logging.ERROR, True)
            return False
        self._conditions.end(_UNRECORDED)
        self._has_tables = True
        return True

    def _create_tables(self) -> None:
        with self._database.writer() as connection:
            decisions.create_tables(connection)
