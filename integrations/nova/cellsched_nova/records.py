# SPDX-License-Identifier: Apache-2.0
"""Records of decisions, in a database that is none of Nova's."""

import threading
from typing import Any

from oslo_log import log

from cellsched.clock import Clock
from cellsched.db.api import decisions
from cellsched.db import session
from cellsched.scheduler.explanation import recorder

LOG = log.getLogger(__name__)


def open_database(conf: Any) -> session.Database:
    """Return the database of records; it is connected to when it is used.

    :param conf: Nova's configuration
    :raises cellsched.exception.ConfigurationInvalid: not a URL of a database
        that can be opened
    """
    return session.Databases(Clock()).get(
        conf.cellsched.records_connection, 'records')


def find(
    database: session.Database, name: str, limit: int | None
) -> list[decisions.DecisionRow]:
    """Return the decisions on a server or a request, the newest first.

    Where nothing was ever recorded there are none, and nothing is made.

    :param name: uuid of a server, or id of a request
    :raises cellsched.exception.DatabaseUnreachable: it does not answer
    """
    if not database.exists():
        return []
    with database.reader() as connection:
        if not decisions.has_tables(connection):
            return []
        return decisions.find(connection, name, limit)


class DecisionRecords:
    """Keeps decisions, apart from who decides.

    :param retention_s: seconds for which they are kept; zero for none
    """

    def __init__(
        self, database: session.Database, retention_s: float,
        clock: Clock | None = None,
    ) -> None:
        self._database = database
        self._retention_s = retention_s
        self._recorder = recorder.Recorder(
            database, clock or Clock(), retention_s)
        #: Remembers a decision until it is written; never blocks.
        self.record = self._recorder.record
        self._has_tables = self._is_failing = False
        self._stopping = threading.Event()

    def start(self) -> None:
        """Have decisions written all the time, in a thread."""
        def work() -> None:
            while not self._stopping.wait(recorder.SPACING_S):
                self.flush()

        if self._retention_s:
            self._stopping.clear()
            threading.Thread(
                target=work, name='decisions', daemon=True).start()

    def stop(self) -> None:
        """Write what still waits, for the last time."""
        self._stopping.set()
        if self._retention_s and self._make_tables():
            self._recorder.close()

    def flush(self) -> None:
        """Write what waits, and forget what is too old; never fails."""
        if self._make_tables():
            self._recorder.flush()

    def _make_tables(self) -> bool:
        """Make the tables if need be; return whether they are there."""
        if self._has_tables:
            return True
        try:
            try:
                self._create_tables()
            except Exception:
                # Another process may have made them at the same time.
                self._create_tables()
        except Exception:
            # They wait, the newest of them.
            if not self._is_failing:
                LOG.exception('Decisions cannot be kept; that is tried again')
            self._is_failing = True
            return False
        self._has_tables, self._is_failing = True, False
        return True

    def _create_tables(self) -> None:
        with self._database.writer() as connection:
            decisions.create_tables(connection)
