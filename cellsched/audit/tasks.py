# SPDX-License-Identifier: Apache-2.0
"""Somebody is at work on what has not ended: L1."""

from collections.abc import Iterator
from typing import NamedTuple

from cellsched.audit.facts import Facts
from cellsched.audit import fates
from cellsched.audit import findings
from cellsched.db.cell import audit_queries
from cellsched.db.cell import server_moves
from cellsched.db.cell import states
from cellsched import objects

Action = findings.Action


def check(facts: Facts) -> Iterator[findings.Finding]:
    """Yield what of a server in a cell nobody is at work on.

    A build goes on as long as its cell keeps what its host was told; any
    other task, as long as there is a move of the server. Both are written
    and removed together with the server's state.
    """
    cell = facts.mapping.cell if facts.mapping else None
    row = facts.rows.get(cell) if cell else None
    if row is None or row.deleted or facts.requested or (
            cell == objects.CELL0_UUID):
        return
    if row.task_state == 'deleting':
        if not row.served:
            yield fates.found(
                facts, 'deleting-stranded', 'is being deleted, and '
                + ('its host is not there' if row.host else 'is on no host'),
                cell, Action.DELETE)
    elif is_stranded(row):
        assert row.move is not None
        yield fates.found(
            facts, 'move-stranded',
            f'has a move ({row.move.kind}, {row.move.status}), and '
            + ('is in ERROR' if row.vm_state == 'error'
               else 'does not wait for it'), cell, Action.GIVE_UP)
    elif row.vm_state in (None, states.WAITING.vm_state):
        if not row.cast:
            yield _build(facts, cell, row)
    elif row.task_state is not None and row.move is None:
        yield fates.found(
            facts, 'task-stranded',
            f'has the task {row.task_state}, and is not being moved', cell,
            Action.TAKE_BACK if reverting(row) else None,
            'find out who gave it this task, which nobody here does')


def is_stranded(row: audit_queries.ServerRow) -> bool:
    """Return whether a row has a move that its task does not wait for."""
    if row.move is None or row.move.status not in server_moves.UNMOVED:
        return False
    kind = server_moves.KINDS.get(row.move.kind)
    return kind is not None and row.task_state not in {
        states.TRANSITIONS[name].after.task_state
        for name in (kind.ask, kind.begin) if name is not None}


class Revert(NamedTuple):
    """The revert of a task: a transition, and the users' name of the task."""

    transition: str
    task: str


def reverting(row: audit_queries.ServerRow) -> Revert | None:
    """Return what takes a server's task back, if anything does."""
    return _REVERTS.get(states.State(row.vm_state or '', row.task_state))


#: By states; what may be a rebuild or an evacuation is called a rebuild.
_REVERTS = {
    state: Revert(kind.revert, name)
    for name, kind in server_moves.KINDS.items()
    for state in states.TRANSITIONS[kind.revert].before or ()}


def _build(
    facts: Facts, cell: str | None, row: audit_queries.ServerRow
) -> findings.Finding:
    failable = row.host is None and states.State(
        row.vm_state or '', row.task_state) in states.OF_BUILD
    return fates.found(
        facts, 'build-stranded',
        'is to be built, and no host has been told', cell,
        Action.FAIL if failable else None,
        'its agent ends it when it is up; if its host is gone for good, '
        'delete it')
