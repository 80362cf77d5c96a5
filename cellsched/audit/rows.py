# SPDX-License-Identifier: Apache-2.0
"""Mending rows of servers in their cells.

What is looked at is held meanwhile, and has to be as it was found.
"""

from collections.abc import Iterator
import contextlib
from typing import Any

from cellsched.audit.facts import Facts
from cellsched.audit.facts import Reader
from cellsched.audit import findings
from cellsched.audit import tasks
from cellsched.cells import target
from cellsched.claims import moves
from cellsched.clock import Clock
from cellsched import context
from cellsched.db.api import instance_mappings
from cellsched.db.cell import audit_queries
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import server_moves
from cellsched.db import session
from cellsched import exception


class RowRepairs:
    """Ends what nobody is at work on, and says why.

    :param host: who says so in faults
    """

    def __init__(
        self, reader: Reader, targets: target.Targets,
        clock: Clock, host: str,
    ) -> None:
        self._reader = reader
        self._database = reader.database
        self._targets = targets
        self._clock = clock
        self._host = host
        self._move_claims = (
            None if reader.claims is None
            else moves.MoveClaims(reader.claims, host))

    def delete(self, finding: findings.Finding, facts: Facts) -> None:
        """Mark a row that no agent will; the API database says so first."""
        assert finding.cell_uuid is not None
        row = facts.rows[finding.cell_uuid]
        if row.task_state == 'deleting':
            with self._database.writer() as connection:
                instance_mappings.mark_deleted(
                    connection, [facts.uuid], self._clock.now())
        with self._unchanged(finding, facts) as connection:
            if connection is not None:
                instances.delete(
                    connection, facts.uuid, self._clock.now(), host=row.host)

    def fail(self, finding: findings.Finding, facts: Facts) -> None:
        """Put a build that nobody makes into ERROR; what it holds leaks."""
        with self._unchanged(finding, facts) as connection:
            if connection is not None:
                instances.fail(
                    connection, facts.uuid, exception.TaskAbandoned(
                        uuid=facts.uuid, task='build'), self._host,
                    self._clock.now(), host=None)

    def take_back(
        self, finding: findings.Finding, facts: Facts
    ) -> None:
        """Take back the task of a server that nobody moves."""
        assert finding.cell_uuid is not None
        row = facts.rows[finding.cell_uuid]
        revert = tasks.reverting(row)
        if revert is None:
            return
        now = self._clock.now()
        with self._unchanged(finding, facts) as connection:
            if connection is not None and instances.transit(
                    connection, facts.uuid, revert.transition, now,
                    host=row.host):
                instance_history.record(
                    connection, facts.uuid, exception.TaskAbandoned(
                        uuid=facts.uuid, task=revert.task), self._host, now)

    def give_up(
        self, finding: findings.Finding, facts: Facts
    ) -> None:
        """End a move that its server does not wait for."""
        assert finding.cell_uuid is not None
        row = facts.rows[finding.cell_uuid]
        database = self._cell(finding.cell_uuid)
        with self._unchanged(finding, facts) as connection:
            move = (None if connection is None
                    else server_moves.live(connection, facts.uuid))
        if self._move_claims is None or move is None or row.move is None:
            return
        # Of a move whose server does not wait for it nothing else can come.
        self._move_claims.give_up(
            database, move, exception.TaskAbandoned(
                uuid=facts.uuid, task=move.migration_type),
            [row.move.status])

    def explain(
        self, finding: findings.Finding, facts: Facts
    ) -> None:
        """Record that nobody knows why a server failed."""
        now = self._clock.now()
        with self._unchanged(finding, facts) as connection:
            if connection is None:
                return
            if finding.kind == 'no-reason':
                instance_history.record(
                    connection, facts.uuid,
                    exception.ReasonUnknown(uuid=facts.uuid), self._host, now)
            else:
                instance_history.create_all(
                    connection, {facts.uuid: context.admin()}, 'create',
                    now, message='Error')

    @contextlib.contextmanager
    def _unchanged(
        self, finding: findings.Finding, facts: Facts
    ) -> Iterator[Any]:
        """Give a connection where the row is held and as it was, or None."""
        assert finding.cell_uuid is not None
        with self._cell(finding.cell_uuid).writer() as connection:
            row = audit_queries.lock(connection, facts.uuid)
            same = row == facts.rows[finding.cell_uuid]
            yield connection if same else None

    def _cell(self, uuid: str) -> session.Database:
        return self._targets.database(self._reader.cells()[uuid])
