# SPDX-License-Identifier: Apache-2.0
"""Consumers' rows that somebody left on the way, brought to an end.

A client may die between any two requests. What it leaves is finished where it
was decided, and undone where it was not, by whoever meets it.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from cellsched.claims.cassandra import asking
from cellsched.claims.cassandra.ledger import Entry
from cellsched.claims.cassandra.ledger import EntryOutcome
from cellsched.claims.cassandra.ledger import Ledger
from cellsched.claims.cassandra.ledger import ROWS_MAX
from cellsched.claims.cassandra import records
from cellsched.claims.cassandra import requests

_Outcome = EntryOutcome
_Record = records.Record
_Holding = records.HeldClaims


@dataclasses.dataclass(frozen=True)
class Standing:
    """The meaning of a consumer's row.

    :param record: None if there is no row
    :param holding: what it holds, if anything
    :param decided: whether that stays so until somebody else changes it
    """

    record: _Record | None = None
    holding: _Holding | None = None
    decided: bool = True


class Settling:
    """Tells what consumers hold, and ends what others began.

    :param abandoned_s: seconds for which what is under way is left alone
        before it is undone
    """

    def __init__(
        self, asks: asking.Asking, ledger: Ledger, abandoned_s: float
    ) -> None:
        self._asks = asks
        self._ledger = ledger
        self._abandoned_s = abandoned_s
        #: Versions of rows on the way, and when they were met first.
        self._met: dict[str, tuple[str, float]] = {}

    # What consumers hold.

    def standings(self, consumers: Iterable[str]) -> dict[str, Standing]:
        """Return what consumers stand for, each at a moment of the call."""
        return self._stand(self._asks.read_all(consumers))

    def standing(self, consumer: str) -> Standing:
        return self.standings([consumer])[consumer]

    def _stand(
        self, found: dict[str, _Record | None]
    ) -> dict[str, Standing]:
        answer, single, linked = {}, [], []
        for consumer, record in found.items():
            if record is None:
                answer[consumer] = Standing()
            elif record.state in (records.HELD, records.MOVING):
                answer[consumer] = Standing(
                    record, record.holding, record.state == records.HELD)
            elif record.state == records.TAKING and not record.lead:
                single.append(record)
            elif record.state == records.TAKING and record.lead == consumer:
                answer[consumer] = Standing(record, None, False)
            elif record.state in (records.TAKING, records.RECEIVING):
                linked.append(record)
            else:
                answer[consumer] = Standing(record)
        answer |= self._with_rows(single)
        answer |= self._linked(linked)
        return answer

    def _with_rows(
        self, found: Sequence[_Record]
    ) -> dict[str, Standing]:
        """Return what those stand for that hold if their provider says so."""
        keys: dict[str, list[tuple[str, str]]] = {}
        for record in found:
            for provider in record.holding.claims:
                keys.setdefault(provider, []).append(
                    (record.consumer, record.attempt))
        asked = [requests.ReadClaims(provider, tuple(part))
                 for provider, wanted in keys.items()
                 for part in _parts(wanted, ROWS_MAX)]
        there = {row.key: row for rows in self._asks.ask_all(asked)
                 for row in rows}
        answer = {}
        for record in found:
            row = there.get((record.consumer, record.attempt))
            holds = row is not None and bool(row.resources)
            answer[record.consumer] = Standing(
                record, record.holding if holds else None, holds)
        return answer

    def _linked(self, found: Sequence[_Record]) -> dict[str, Standing]:
        """Return what those stand for of whom another row decides."""
        deciders = self._asks.read_all(
            record.lead or record.other for record in found)
        answer, again = {}, []
        for record in found:
            decider = deciders[record.lead or record.other]
            fate = (_fate_of_member(record, decider) if record.lead
                    else _fate_of_target(record, decider))
            if fate is None:
                # Its row may be another one by now.
                again.append(record)
            else:
                answer[record.consumer] = fate
        latest = self._asks.read_all(record.consumer for record in again)
        changed = {}
        for record in again:
            now = latest[record.consumer]
            if now is not None and now.version == record.version:
                answer[record.consumer] = Standing(record, record.before)
            else:
                changed[record.consumer] = now
        if changed:
            answer |= self._stand(changed)
        return answer

    # Ends.

    def settled(self, consumer: str, patient: bool = True) -> Standing:
        """Return what a consumer stands for, its row held or not there.

        Waits for those who are on their way with it, then undoes what they
        did.

        :param patient: whether to wait
        :raises cellsched.exception.DatabaseUnreachable: others do not end
        """
        first: _Record | None = None
        began = self._asks.clock.monotonic()
        for _ in self._asks.attempts():
            standing = self.standing(consumer)
            record = standing.record
            if record is None or _is_stable(standing):
                return standing
            if standing.decided:
                self.finish(standing)
                standing = self.standing(consumer)
                if standing.record is None or _is_stable(standing):
                    return standing
                continue
            if first is None or first.version != record.version:
                first, began = record, self._asks.clock.monotonic()
            waited_s = self._asks.clock.monotonic() - began
            if not patient or waited_s >= self._abandoned_s:
                self.cancel(record)
                standing = self.standing(consumer)
                if standing.record is None or _is_stable(standing):
                    return standing
        self._asks.unreachable(
            f'what others do for consumer {consumer} does not end')

    def end_abandoned(self, standings: Mapping[str, Standing]) -> None:
        """End what somebody left on the way, of what a list comes across.

        Nobody else may ever ask for it. It is left alone for as long as
        others who meet it would wait.
        """
        now = self._asks.clock.monotonic()
        met = {}
        for consumer, standing in standings.items():
            record = standing.record
            if record is None or _is_stable(standing):
                continue
            version, since = self._met.get(consumer, (record.version, now))
            if version != record.version:
                since = now
            if now - since < self._abandoned_s:
                met[consumer] = record.version, since
            else:
                self.settled(consumer, patient=False)
        for consumer in standings:
            self._met.pop(consumer, None)
        self._met |= met

    def finish(self, standing: Standing) -> None:
        """Do what is left to do of what is decided."""
        record = standing.record
        assert record is not None
        if record.state in (records.GIVING, records.DROPPING):
            self.undo(record)
        elif record.state == records.MOVED:
            self.finish_move(record)
        elif record.state == records.TAKING:
            if standing.holding is not None:
                self._asks.write(record, held(record))
            else:
                self._drop(record)
        elif record.state == records.RECEIVING:
            if standing.holding is record.before:
                self._asks.write(record, _reverted(record))
            else:
                source = self._asks.read(record.other)
                if source is not None and source.state == records.MOVED:
                    self.finish_move(source)

    def cancel(self, record: _Record) -> None:
        """See to it that what is not decided never is."""
        if record.state == records.MOVING:
            self._asks.write(record, held(record))
        elif record.state == records.RECEIVING:
            source = self._asks.read(record.other)
            if source is not None and source.state == records.MOVING:
                self._asks.write(source, held(source))
        elif record.lead and record.lead != record.consumer:
            lead = self._asks.read(record.lead)
            if lead is not None and lead.attempt == record.attempt:
                if lead.state == records.TAKING:
                    self._drop(lead)
        elif record.lead or not self._fenced(
                record.consumer, record.attempt, [*record.holding.claims]):
            # Where the provider has its row by now, it holds.
            self._drop(record)

    def undo(self, record: _Record) -> None:
        """Give back what a row names that gives back or is dropped."""
        if record.state == records.GIVING:
            self.tell_members(record)
        else:
            for member in self._waiting(record):
                self._drop(member)
        self.give_back(record.consumer, record.holding,
                       fenced=record.state == records.DROPPING)
        self._asks.write(record, None)

    def give_back(
        self, consumer: str, holding: _Holding, fenced: bool
    ) -> None:
        """Have providers not have the rows of a holding.

        :param fenced: whether some may not be there yet
        """
        left = holding.rows(consumer)
        for _ in self._asks.attempts():
            entries = {provider: Entry(provider, deleted=[row])
                       for provider, row in left.items()}
            self._ledger.do([*entries.values()])
            gone = [provider for provider, entry in entries.items()
                    if entry.outcome is _Outcome.GONE]
            late = self._fenced(consumer, holding.attempt, gone) if (
                fenced) else []
            left = {provider: row for provider, row in left.items()
                    if provider in late
                    or entries[provider].outcome is _Outcome.UNKNOWN}
            if not left:
                return
        self._asks.unreachable('')

    def _fenced(
        self, consumer: str, attempt: str, providers: Sequence[str]
    ) -> list[str]:
        """Fence an attempt off; return the providers that it had reached."""
        rows = self._asks.ask_all([
            requests.Fence(provider, consumer, attempt)
            for provider in providers])
        return [provider for provider, row in zip(providers, rows)
                if row is not None and row.resources]

    def _drop(self, record: _Record) -> None:
        dropped = self._asks.write(record, record.replaced(records.DROPPING))
        if dropped is not None:
            self.undo(dropped)

    def tell_members(self, lead: _Record) -> None:
        """Have the others of a batch hold what their lead decided."""
        self._asks.write_all([(record, held(record))
                              for record in self._waiting(lead)])

    def _waiting(self, lead: _Record) -> list[_Record]:
        found = self._asks.read_all(lead.members)
        return [record for record in found.values()
                if record is not None and record.attempt == lead.attempt
                and record.state == records.TAKING]

    # Transfers.

    def finish_move(self, source: _Record) -> None:
        """Have the target of a transfer that is decided be an ordinary one."""
        target = self._asks.read(source.other)
        if target is not None and target.attempt == source.link and (
                target.state == records.RECEIVING):
            self._rename(source, target)
            if target.before is not None:
                self.give_back(target.consumer, target.before, fenced=False)
            if self._asks.write(target, held(target)) is None:
                # Somebody else has done it, or still does.
                target = self._asks.read(source.other)
                if target is not None and (
                        target.attempt == source.link
                        and target.state == records.RECEIVING):
                    return
        self._asks.write(source, None)

    def _rename(self, source: _Record, target: _Record) -> None:
        """Have providers' rows name the target."""
        before = source.holding.rows(source.consumer)
        after = target.holding.rows(target.consumer)
        left = [*before]
        for _ in self._asks.attempts():
            entries = [
                Entry(provider, [after[provider]], [before[provider]])
                for provider in left]
            self._ledger.do(entries)
            # Where a row is gone, it was done before.
            left = [entry.provider for entry in entries
                    if entry.outcome is _Outcome.UNKNOWN]
            if not left:
                return
        self._asks.unreachable('')


def held(record: _Record) -> _Record:
    """Return a row that holds, whatever it was on the way of."""
    return record.replaced(
        records.HELD, lead='', members=(), other='', link='', before=None)


def _reverted(record: _Record) -> _Record | None:
    """Return what the target of a transfer is that is not made."""
    if record.before is None:
        return None
    return held(record.replaced(record.state, holding=record.before))


def _is_stable(standing: Standing) -> bool:
    record = standing.record
    if record is None or not standing.decided or standing.holding is None:
        return False
    return record.state == records.HELD or (
        record.state == records.TAKING and not record.lead)


def _fate_of_member(
    record: _Record, lead: _Record | None
) -> Standing | None:
    """Return what one of a batch stands for; None, if the batch is undone."""
    if lead is None or lead.attempt != record.attempt:
        return None
    if lead.state == records.TAKING:
        return Standing(record, None, False)
    # It stays until the others know what was decided.
    if lead.state in (records.HELD, records.GIVING):
        return Standing(record, record.holding)
    return None


def _fate_of_target(
    record: _Record, source: _Record | None
) -> Standing | None:
    if source is None or source.attempt != record.link or (
            source.link != record.attempt):
        return None
    if source.state == records.MOVED:
        return Standing(record, record.holding)
    if source.state == records.MOVING:
        return Standing(record, record.before, False)
    return None


def _parts(
    items: Sequence[tuple[str, str]], size: int
) -> list[Sequence[tuple[str, str]]]:
    return [items[start:start + size]
            for start in range(0, len(items), size)]
