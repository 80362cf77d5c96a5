# SPDX-License-Identifier: Apache-2.0
"""Who holds a claim is a server or is to be one: S4."""

from collections.abc import Iterator
import enum

from cellsched.audit import facts as facts_
from cellsched.audit import fates
from cellsched.audit import findings
from cellsched.db.cell import surveying
from cellsched import objects

Action = findings.Action


class Due(enum.Enum):
    """What a server is to hold."""

    SOMETHING = enum.auto()
    NOTHING = enum.auto()
    ANYTHING = enum.auto()  #: It is on its way from one to the other.
    UNKNOWN = enum.auto()   #: That depends on what becomes of it.


def check(facts: facts_.Facts) -> Iterator[findings.Finding]:
    """Yield what is wrong with a server's claims."""
    state = due(facts)
    cell = facts.mapping.cell if facts.mapping else None
    if facts.claims and state is Due.NOTHING:
        yield fates.found(
            facts, 'S4', 'claim-leaked',
            f'holds a claim on {facts.claims[0].provider}, and takes nothing',
            cell, Action.RELEASE)
    if move_leaks(facts, state):
        yield fates.found(
            facts, 'S4', 'move-claim-leaked',
            f'holds a claim on {facts.moved[0].provider} to be moved there, '
            'and is not being moved', cell, Action.RELEASE_MOVE)
    row = _row(facts)
    if state is Due.SOMETHING and not facts.claims and not facts.moved:
        yield fates.found(
            facts, 'S4', 'unclaimed', 'takes room, and holds no claim', cell,
            Action.CLAIM if row is not None and row.provider else None,
            'nobody knows where; delete it, unless its build goes on')
    if (row is not None and state is Due.SOMETHING and row.provider
            and row.task_state is None and not row.moving
            and facts.claims and row.provider not in {
                claim.provider for claim in (*facts.claims, *facts.moved)}):
        yield fates.found(
            facts, 'S4', 'claim-elsewhere',
            f'is on {row.provider}, and holds a claim on '
            f'{facts.claims[0].provider}', cell, None,
            'move it to where its claim is, or migrate it, which claims anew')


def due(facts: facts_.Facts) -> Due:
    """Return what a server is to hold in its own name."""
    mapping = facts.mapping
    if mapping is None:
        return Due.UNKNOWN
    if facts.requested:
        return Due.ANYTHING
    others = facts.visible().keys() - {mapping.cell}
    if others or mapping.cell in facts.unheard:
        return Due.UNKNOWN
    if mapping.cell is None:
        return Due.NOTHING if mapping.deleted else Due.UNKNOWN
    if mapping.cell == objects.CELL0_UUID:
        return Due.NOTHING
    row = facts.rows.get(mapping.cell)
    if row is None:
        return Due.NOTHING if mapping.deleted else Due.UNKNOWN
    return due_in_cell(row)


def due_in_cell(row: surveying.Row) -> Due:
    """Return what a server in a cell is to hold."""
    if row.deleted:
        return Due.NOTHING
    if row.task_state == 'deleting':
        return Due.ANYTHING
    if row.vm_state in ('error', 'shelved_offloaded'):
        at_rest = row.host is None and row.task_state is None
        return Due.NOTHING if at_rest and not row.moving else Due.ANYTHING
    if row.host is not None or row.task_state == 'scheduling':
        return Due.SOMETHING
    return Due.ANYTHING


def move_leaks(facts: facts_.Facts, state: Due) -> bool:
    """Whether a server holds a claim for a move that nobody makes."""
    if not facts.moved or state is Due.UNKNOWN or facts.requested:
        return False
    row = _row(facts)
    return row is None or row.deleted or (
        row.task_state is None and not row.moving)


def _row(facts: facts_.Facts) -> surveying.Row | None:
    cell = facts.mapping.cell if facts.mapping else None
    return facts.rows.get(cell) if cell else None
