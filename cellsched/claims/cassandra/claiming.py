# SPDX-License-Identifier: Apache-2.0
"""Batches of claims: intents, rows of providers, and one decision."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import json

from cellsched.claims import base
from cellsched.claims.cassandra import asking
from cellsched.claims.cassandra.ledger import Entry
from cellsched.claims.cassandra.ledger import EntryOutcome
from cellsched.claims.cassandra.ledger import Ledger
from cellsched.claims.cassandra.ledger import ROWS_MAX
from cellsched.claims.cassandra import records
from cellsched.claims.cassandra import requests
from cellsched.claims.cassandra.settling import held
from cellsched.claims.cassandra.settling import Settling
from cellsched.claims.cassandra.slots import parse
from cellsched.claims import validation
from cellsched import exception

#: Attempts that are remembered.
_DECIDED_MAX = 10000

_Outcome = EntryOutcome
_Record = records.Record


class _Busy(Exception):
    """A consumer is in somebody else's hands, or its attempt was undone."""

    def __init__(self, consumer: str = '') -> None:
        super().__init__(consumer)
        self.consumer = consumer


class BatchClaiming:
    """Takes batches.

    First each consumer's row says what it is about to take, which no other
    attempt for it can then. Then each provider is asked once. If that is one
    provider, its answer decides; else the row of the first consumer, the
    batch's lead, is written once more, which decides for all of them.
    """

    def __init__(
        self, asks: asking.Asking, ledger: Ledger,
        settling: Settling,
    ) -> None:
        self._asks = asks
        self._ledger = ledger
        self._settling = settling
        #: Attempts on rows of several providers that were decided.
        self._decided: dict[str, None] = {}

    def claim(self, claims: Sequence[base.Claim]) -> int:
        for _ in self._asks.attempts():
            try:
                return self._try(claims)
            except _Busy as exc:
                if exc.consumer:
                    self._settling.settled(exc.consumer)
        self._asks.unreachable('others were always in the way')

    def _try(self, claims: Sequence[base.Claim]) -> int:
        mine = self._insert(claims)
        new = [claim for claim in claims if claim.consumer in mine]
        if not new:
            return 0
        several = _is_several(claims)
        entries = _entries(mine.values())
        self._ledger.do(entries)
        outcomes = {entry.outcome for entry in entries}
        if _Outcome.UNKNOWN in outcomes and not several:
            outcomes = {self._found_out(entries[0])}
        if outcomes == {_Outcome.DONE} and (
                not several or self._decide([*mine.values()])):
            return len(new)
        self._undo([*mine.values()], entries, several)
        refused = {entry.provider: entry.figures for entry in entries
                   if entry.outcome is _Outcome.REFUSED}
        if refused:
            self._refuse(new, refused)
        raise _Busy()

    # Consumers.

    def _insert(self, claims: Sequence[base.Claim]) -> dict[str, _Record]:
        """Say what consumers take; return the rows of those that are new."""
        wanted = _intents(claims, self._asks.name())
        mine: dict[str, _Record] = {}
        try:
            if _is_several(claims):
                names = list(wanted)
                # The row that decides must be there before the others.
                for number, name in enumerate(names):
                    self._insert_some([wanted[name].replaced(
                        records.TAKING, lead=name,
                        members=tuple(names[number + 1:]))], mine)
                    if name in mine:
                        self._insert_some([wanted[other].replaced(
                            records.TAKING, lead=name)
                            for other in names[number + 1:]], mine)
                        break
            else:
                self._insert_some([*wanted.values()], mine)
        except (_Busy, exception.ClaimConflict):
            self._forget([*mine.values()])
            raise
        return mine

    def _insert_some(
        self, wanted: Sequence[_Record], mine: dict[str, _Record]
    ) -> None:
        found = self._asks.insert_all(wanted)
        others = []
        for intent, record in zip(wanted, found):
            if record is not None and record.attempt == intent.attempt:
                mine[intent.consumer] = record
            else:
                others.append(intent)
        standings = self._settling.standings(
            intent.consumer for intent in others)
        for intent in others:
            standing = standings[intent.consumer]
            if not standing.decided or standing.holding is None:
                raise _Busy(intent.consumer)
            if standing.holding.claims != intent.holding.claims:
                raise exception.ClaimConflict(consumer=intent.consumer)

    def _forget(self, mine: Sequence[_Record]) -> None:
        """Take back intents for which nothing was taken."""
        # The lead goes last, as whoever meets one of the others asks it.
        self._asks.write_all([(record, None) for record in mine
                              if record.lead != record.consumer])
        self._asks.write_all([(record, None) for record in mine
                              if record.lead == record.consumer])

    # Providers.

    def _found_out(self, entry: Entry) -> _Outcome:
        """Return whether a change was done, and see that it never is if not.

        All of its rows are there or none, so one of them tells.
        """
        row = entry.inserted[0]
        found = self._asks.ask(requests.Fence(
            entry.provider, row.consumer, row.attempt))
        return _Outcome.DONE if found == row else _Outcome.GONE

    def _decide(self, mine: Sequence[_Record]) -> bool:
        """Have a batch of several providers be held, unless it was undone."""
        [lead] = [record for record in mine if record.lead == record.consumer]
        if len(mine) == 1:
            return self._asks.write(lead, held(lead)) is not None
        decided = self._asks.write(lead, lead.replaced(
            records.HELD, lead=''))
        if decided is None:
            return False
        self._asks.write_all([(record, held(record))
                              for record in mine if record is not lead])
        self._asks.write(decided, held(decided))
        return True

    def _undo(
        self, mine: Sequence[_Record], entries: Sequence[Entry],
        several: bool,
    ) -> None:
        """Give back what was taken of some providers, and the intents."""
        if several:
            back = [Entry(entry.provider, deleted=entry.inserted)
                    for entry in entries if entry.outcome is _Outcome.DONE]
            self._ledger.do(back)
            left = {row.consumer for entry in back for row in entry.deleted
                    if entry.outcome is not _Outcome.DONE}
            left |= {row.consumer for entry in entries
                     if entry.outcome is _Outcome.UNKNOWN
                     for row in entry.inserted}
            for record in mine:
                if record.consumer in left:
                    self._settling.give_back(
                        record.consumer, record.holding, fenced=True)
        self._forget(mine)

    # Refusals.

    def _refuse(
        self, claims: Sequence[base.Claim],
        refused: Mapping[str, requests.Figures | None],
    ) -> None:
        """Raise the refusal of a batch if it is certain.

        What others took of a provider as one of several may yet be given
        back. Where that would make room, they are waited for.
        """
        figures, blocking = {}, {}
        for provider, known in refused.items():
            rows: list[requests.ClaimRow] = []
            if known is not None and known.open:
                known, rows = self._asks.ask(requests.ReadProvider(provider))
                rows = self._undecided(rows)
            if known is not None:
                figures[provider] = known
                blocking[provider] = rows
        slots = {provider: parse(known.inventory)
                 for provider, known in figures.items()}
        inventories = {
            provider: {name: slot.inventory()
                       for name, slot in each.classes.items()}
            for provider, each in slots.items()}
        mine = [claim for claim in claims if claim.provider in refused]
        taken = {provider: slots[provider].used(known)
                 for provider, known in figures.items()}
        if validation.find_refusal(mine, inventories, taken) is None:
            return
        certain = {provider: _without(used, blocking[provider])
                   for provider, used in taken.items()}
        refusal = validation.find_refusal(mine, inventories, certain)
        if refusal is not None:
            raise refusal
        for provider, rows in blocking.items():
            for row in rows[:1]:
                self._unblock(provider, row)

    def _undecided(
        self, rows: Sequence[requests.ClaimRow]
    ) -> list[requests.ClaimRow]:
        """Return those rows that may go without anybody's release."""
        asked = [row for row in rows
                 if row.several and row.attempt not in self._decided]
        standings = self._settling.standings(row.consumer for row in asked)
        undecided = []
        for row in asked:
            standing = standings[row.consumer]
            record = standing.record
            if record is not None and record.attempt == row.attempt and (
                    record.state == records.MOVED
                    or standing.holding is not None):
                self._decided[row.attempt] = None
            else:
                undecided.append(row)
        while len(self._decided) > _DECIDED_MAX:
            self._decided.pop(next(iter(self._decided)), None)
        return undecided

    def _unblock(self, provider: str, row: requests.ClaimRow) -> None:
        """Have a row decided, or deleted if nobody's row names it."""
        record = self._settling.settled(row.consumer).record
        if record is None or record.attempt != row.attempt:
            # It may have been deleted with that, and is not done then.
            self._ledger.do([Entry(provider, deleted=[row])])


def _entries(mine: Iterable[_Record]) -> list[Entry]:
    """Return what is asked of providers, in requests of a size."""
    by_provider: dict[str, list[requests.ClaimRow]] = {}
    for record in mine:
        for provider, row in record.holding.rows(record.consumer).items():
            by_provider.setdefault(provider, []).append(row)
    return [Entry(provider, rows[start:start + ROWS_MAX])
            for provider, rows in sorted(by_provider.items())
            for start in range(0, len(rows), ROWS_MAX)]


def _without(
    used: Mapping[str, int], rows: Iterable[requests.ClaimRow]
) -> dict[str, int]:
    """Return what is used when some rows are not there."""
    left = dict(used)
    for row in rows:
        for name, amount in json.loads(row.resources).items():
            left[name] = left.get(name, 0) - amount
    return left


def _is_several(claims: Sequence[base.Claim]) -> bool:
    """Return whether a batch needs more than one request of providers."""
    return (len({claim.provider for claim in claims}) > 1
            or len(claims) > ROWS_MAX)


def _intents(
    claims: Sequence[base.Claim], attempt: str
) -> dict[str, _Record]:
    """Return what consumers' rows are to be, in the order of their names."""
    several = _is_several(claims)
    taken: dict[str, dict[str, Mapping[str, int]]] = {}
    first: dict[str, base.Claim] = {}
    for claim in claims:
        taken.setdefault(claim.consumer, {})[claim.provider] = dict(
            claim.resources)
        first.setdefault(claim.consumer, claim)
    return {name: _Record(name, records.TAKING, records.HeldClaims(
        attempt, taken[name], first[name].project_id, first[name].user_id,
        several)) for name in sorted(taken)}
