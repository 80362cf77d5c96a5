# SPDX-License-Identifier: Apache-2.0
"""Figures of providers, compared with their rows and set right."""

from collections.abc import Sequence
import dataclasses
import json

from cellsched.claims.cassandra import asking
from cellsched.claims.cassandra.ledger import Entry
from cellsched.claims.cassandra.ledger import EntryOutcome
from cellsched.claims.cassandra.ledger import Ledger
from cellsched.claims.cassandra import records
from cellsched.claims.cassandra import requests
from cellsched.claims.cassandra.settling import Settling
from cellsched.claims.cassandra.slots import parse


def recount(
    asks: asking.Asking, ledger: Ledger, provider: str
) -> bool:
    """Set a provider right; return whether anything was wrong.

    Rows that no consumer's row names are deleted: an attempt that was given
    up may have left them.
    """
    wrong = False
    for _ in asks.attempts():
        figures, rows = asks.ask(requests.ReadProvider(provider))
        if figures is None:
            return False
        strays = _strays(asks, rows)
        if strays:
            for row in strays:
                entry = Entry(provider, deleted=[row])
                ledger.do([entry])
                wrong |= entry.outcome is EntryOutcome.DONE
            continue
        right = _counted(figures, rows)
        if right == figures:
            return wrong
        answer = asks.try_all([requests.SetFigures(
            figures, dataclasses.replace(
                right, generation=figures.generation + 1))])[0]
        if not isinstance(answer, Exception) and answer.applied:
            return True
    asks.unreachable('others were always in the way')


def _strays(
    asks: asking.Asking, rows: Sequence[requests.ClaimRow]
) -> list[requests.ClaimRow]:
    found = asks.read_all(row.consumer for row in rows)
    # A row is there only as long as its consumer's row names it, which it did
    # before; so what is read later than the rows decides.
    return [row for row in rows
            if row.attempt not in _attempts(found[row.consumer])]


def _attempts(record: records.Record | None) -> set[str]:
    if record is None:
        return set()
    return {record.attempt,
            *([record.before.attempt] if record.before else [])}


def _counted(
    figures: requests.Figures, rows: Sequence[requests.ClaimRow]
) -> requests.Figures:
    """Return figures that are what rows add up to."""
    slots = parse(figures.inventory)
    used = {slot.number: 0 for slot in slots.classes.values()}
    used |= slots.amounts(json.loads(row.resources) for row in rows)
    return dataclasses.replace(
        figures, consumers=len(rows), open=sum(row.several for row in rows),
        used=tuple(used.get(number, amount)
                   for number, amount in enumerate(figures.used)))


def consumers(
    asks: asking.Asking, settling: Settling, provider: str,
    rows: Sequence[requests.ClaimRow],
) -> list[str]:
    """Return who holds what a provider has rows for.

    Of a transfer that was decided and is not finished, that is its target.
    """
    found = asks.read_all(row.consumer for row in rows)
    names = {row.consumer for row in rows}
    names |= {record.other for record in found.values()
              if record is not None and record.state == records.MOVED}
    standings = settling.standings(names)
    settling.end_abandoned(standings)
    return sorted(
        name for name, standing in standings.items()
        if standing.holding is not None
        and provider in standing.holding.claims)
