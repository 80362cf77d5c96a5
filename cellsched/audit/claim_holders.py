# SPDX-License-Identifier: Apache-2.0
"""Consumers of claims are servers, or are to be: S4."""

from collections.abc import Iterator
from collections.abc import Mapping
import enum

from cellsched.audit.facts import Facts
from cellsched.audit import fates
from cellsched.audit import findings
from cellsched.audit import sizes
from cellsched.db.cell import audit_queries
from cellsched.db.cell import states
from cellsched import objects

Action = findings.Action


class Due(enum.Enum):
    """The claims that a server is to hold."""

    SOMETHING = enum.auto()
    NOTHING = enum.auto()
    ANYTHING = enum.auto()  #: It is on its way from one to the other.
    UNKNOWN = enum.auto()   #: That depends on what becomes of it.


def check(facts: Facts) -> Iterator[findings.Finding]:
    """Yield what is wrong with a server's claims."""
    state = due(facts)
    cell = facts.mapping.cell if facts.mapping else None
    if facts.claims and state is Due.NOTHING:
        yield fates.found(
            facts, 'claim-leaked',
            f'holds a claim on {facts.claims[0].provider}, and takes nothing',
            cell, Action.RELEASE)
    if move_leaks(facts, state):
        yield fates.found(
            facts, 'move-claim-leaked',
            f'holds a claim on {facts.moved[0].provider} to be moved there, '
            'and is not being moved', cell, Action.RELEASE_MOVE)
    size = facts.size
    if state is not Due.SOMETHING or size is not None and (
            size.total == {}):
        return
    row = _row(facts)
    assert row is not None
    if not facts.claims and not facts.moved:
        grouped = row.provider and size is not None and size.grouped
        yield fates.found(
            facts, 'unclaimed', 'takes room, and holds no claim', cell,
            Action.CLAIM if row.provider and not grouped else None,
            _anew(size)[1] if grouped else
            'nobody knows where; delete it, unless its build goes on')
    elif at_rest(facts, row):
        yield from _at_rest(facts, cell, row)


def at_rest(facts: Facts, row: audit_queries.ServerRow) -> bool:
    """Return whether a server is on a node and is to hold what it takes."""
    return (row.provider is not None and row.task_state is None
            and not row.moving and not facts.moved
            and row.vm_state not in (None, states.WAITING.vm_state))


def _at_rest(
    facts: Facts, cell: str | None, row: audit_queries.ServerRow
) -> Iterator[findings.Finding]:
    assert row.provider is not None
    size = facts.size
    here, elsewhere = facts.held(row)
    held = sizes.add_up(claim.resources for claim in here)
    others = ', '.join(sorted(claim.provider for claim in elsewhere))
    action, advice = _anew(facts.size)
    right = size is not None and size.total == held
    if not right and all(claim.provider in facts.shared for claim in here):
        yield fates.found(
            facts, 'claim-elsewhere',
            f'is on {row.provider}, and holds '
            + (f'a claim on {others}' if others else 'no claim there'),
            cell, action, advice)
    elif elsewhere:
        # Where that is right, it keeps what it holds here.
        yield fates.found(
            facts, 'claim-second',
            f'is on {row.provider}, and holds a claim on {others} too', cell,
            Action.RECLAIM if right else action, advice)
    elif size is not None and size.total is not None and not right:
        yield fates.found(
            facts, 'claim-amount',
            f'takes {_amounts(size.total)}, and holds a claim of '
            + _amounts(held), cell, action, advice)


def _anew(size: sizes.ServerSize | None) -> tuple[Action | None, str]:
    """Return the repair of claiming anew, or why there is none."""
    if size is not None and size.grouped:
        return None, ('its groups of resources are of providers that only a '
                      'scheduler chooses; migrate it')
    return (Action.RECLAIM if size is None or size.resources else None,
            'nobody knows what it takes, as its request specification is lost')


def _amounts(resources: Mapping[str, int]) -> str:
    return ', '.join(f'{amount} {resource}'
                     for resource, amount in sorted(resources.items()))


def due(facts: Facts) -> Due:
    """Return what a server is to hold in its own name."""
    mapping = facts.mapping
    if mapping is None:
        return Due.UNKNOWN
    if facts.requested:
        return Due.ANYTHING
    others = facts.visible().keys() - {mapping.cell}
    if others or mapping.cell in facts.unheard:
        return Due.UNKNOWN
    if mapping.cell == objects.CELL0_UUID:
        return Due.NOTHING
    row = _row(facts)
    if row is None:
        return Due.NOTHING if mapping.deleted else Due.UNKNOWN
    return due_in_cell(row)


def due_in_cell(row: audit_queries.ServerRow) -> Due:
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


def move_leaks(facts: Facts, state: Due) -> bool:
    """Return whether a server holds a claim for a move that nobody makes."""
    if not facts.moved or state is Due.UNKNOWN or facts.requested:
        return False
    row = _row(facts)
    return row is None or row.deleted or (
        row.task_state is None and not row.moving)


def _row(facts: Facts) -> audit_queries.ServerRow | None:
    cell = facts.mapping.cell if facts.mapping else None
    return facts.rows.get(cell) if cell else None
