# SPDX-License-Identifier: Apache-2.0
"""One server has one fate, and its mapping says where: S2 and S3."""

from collections.abc import Iterator

from cellsched.audit.facts import Facts
from cellsched.audit import findings
from cellsched.audit import sizes
from cellsched.db.cell import audit_queries
from cellsched import objects

Action = findings.Action

_CELL0 = objects.CELL0_UUID

_TWO_RUN = ('find out on the hosts which of them is used, stop the other one '
            'there, and delete its row')


def check(facts: Facts) -> Iterator[findings.Finding]:
    """Yield what is wrong with a server's fate.

    Nothing is said of what a cell that did not answer may know. Builds that
    have a request are on their way, and their conductors see to them.
    """
    mapping = facts.mapping
    if mapping is None:
        yield from _unmapped(facts)
    elif mapping.deleted:
        yield from _deleted(facts)
    elif facts.requested:
        yield from _requested(facts)
    elif mapping.cell is None:
        yield from _undecided(facts)
    elif mapping.cell not in facts.unheard:
        yield from _decided(facts, mapping.cell)


def found(
    facts: Facts, kind: str, text: str,
    cell: str | None = None, action: Action | None = None, advice: str = '',
) -> findings.Finding:
    """Return a finding about a server."""
    return findings.Finding(
        kind, facts.uuid, text,
        '' if cell is None else facts.names.get(cell, cell), cell, action,
        advice)


def _unmapped(facts: Facts) -> Iterator[findings.Finding]:
    if facts.requested:
        yield found(facts, 'request-unmapped',
                    'has a build request and no mapping', None, Action.MAP)
    for cell, row in facts.rows.items():
        if not row.deleted:
            yield found(
                facts, 'row-unmapped',
                'is in a cell and the API database does not know it', cell,
                Action.MAP)


def _deleted(facts: Facts) -> Iterator[findings.Finding]:
    if facts.requested:
        yield found(facts, 'request-of-deleted',
                    'was deleted by its user and has a build request', None,
                    Action.FORGET)
    for cell, row in facts.rows.items():
        if row.deleted or row.task_state == 'deleting':
            # What is left to its agent goes when that is up.
            continue
        yield found(
            facts, 'deleted-visible',
            'was deleted by its user, and its cell shows it', cell,
            None if row.host else Action.DELETE,
            'it may run on its host; delete it once more')


def _requested(facts: Facts) -> Iterator[findings.Finding]:
    assert facts.mapping is not None
    if facts.broken is not None:
        begun = facts.visible() or (
            facts.mapping.cell not in (None, _CELL0))
        yield found(
            facts, 'request-unreadable',
            f'cannot be built: its {facts.broken.what} '
            f'{facts.broken.problem}', None,
            None if begun else Action.BURY_REQUEST,
            'its build was begun before; a conductor above the cells takes '
            'that back and buries it')
    for cell, row in facts.visible().items():
        if not row.ran:
            continue
        if cell == facts.mapping.cell:
            yield found(
                facts, 'request-left',
                'is on a host and has a build request, so that it would be '
                'built once more', cell, Action.FORGET)
        elif facts.mapping.cell is not None:
            yield found(
                facts, 'row-elsewhere',
                'is on a host of a cell and is mapped to another one, where '
                'it is being built', cell, None, _TWO_RUN)


def _undecided(facts: Facts) -> Iterator[findings.Finding]:
    rows = facts.visible()
    ran = [cell for cell, row in rows.items() if row.ran]
    if len(rows) + facts.buried() > 1:
        yield from _several(facts, rows, ran[0] if len(ran) == 1 else None)
    if len(ran) == 1 or not rows and facts.buried():
        cell = ran[0] if ran else _CELL0
        yield found(facts, 'undecided',
                    'is in a cell, and is mapped to none', cell,
                    Action.DECIDE)
    elif len(rows) == 1 and not facts.buried():
        yield found(
            facts, 'undecided',
            'is in a cell, is mapped to none, and nobody builds it',
            next(iter(rows)), Action.PURGE)
    elif not rows and not facts.unheard:
        yield found(
            facts, 'no-fate',
            'was accepted, and is in no cell and nobody builds it', None,
            Action.BURY)


def _decided(facts: Facts, cell: str) -> Iterator[findings.Finding]:
    row = facts.rows.get(cell)
    rows = facts.visible()
    if row is not None:
        yield from _unasked(facts, cell, row)
        yield from _several(facts, rows, cell)
        return
    for each, other in rows.items():
        yield found(
            facts, 'row-elsewhere',
            'is in a cell and is mapped to another one, which does not have '
            'it', each, Action.REMAP if belongs(facts, each) else None,
            'map it to the cell that it is in' if other.ran else
            'find out what became of it in the cell that it is mapped to')
    if cell == _CELL0 and not rows:
        yield found(facts, 'row-lost',
                    'is mapped to cell0, which does not have it', cell,
                    Action.BURY)
    elif not rows:
        yield found(
            facts, 'row-lost',
            'is mapped to a cell, which does not have it', cell, None,
            'restore the database of the cell; if the server is gone for '
            'good, delete it')


def belongs(facts: Facts, cell: str) -> bool:
    """Return whether all but its mapping say that a server is in a cell.

    It is on a host, which is mapped to that cell, and holds what it takes
    there; no other cell shows it, and all have answered.
    """
    row = facts.visible()[cell]
    here, elsewhere = facts.held(row)
    return (
        row.host is not None
        and facts.host_cells.get(row.host) == cell
        and [*facts.visible()] == [cell] and not facts.buried()
        and not facts.unheard and not facts.moved
        and row.task_state is None and not row.moving
        and any(claim.provider not in facts.shared for claim in here)
        and not elsewhere)


def _unasked(
    facts: Facts, cell: str, row: audit_queries.ServerRow
) -> Iterator[findings.Finding]:
    """Yield that nobody knows what was asked for, where that is needed."""
    if (facts.size is not None and facts.size.problem and not row.deleted
            and cell != _CELL0):
        yield found(
            facts, 'spec-missing' if facts.size is sizes.MISSING
            else 'spec-unreadable',
            f'cannot be moved: its request specification '
            f'{facts.size.problem}', cell, None,
            'it runs as it is; restore the row of request_specs, or build '
            'another server in its place')


def _several(
    facts: Facts, rows: dict[str, audit_queries.ServerRow],
    right: str | None
) -> Iterator[findings.Finding]:
    """Yield the rows that a server has beside the right one.

    :param right: the cell where it belongs, if that is clear
    """
    for cell, row in rows.items():
        if cell == right:
            continue
        with_cell0 = facts.buried() or right == _CELL0
        yield found(
            facts, 'cell-and-cell0' if with_cell0 else 'two-cells',
            'is in this cell, and in '
            + ('cell0' if with_cell0 else 'another one') + ' too', cell,
            None if row.ran or right is None else Action.PURGE, _TWO_RUN)
    if facts.buried() and right != _CELL0:
        yield found(
            facts, 'cell-and-cell0',
            'is in cell0, and in another cell too', _CELL0,
            Action.PURGE if right is not None else None, _TWO_RUN)
