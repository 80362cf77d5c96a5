# SPDX-License-Identifier: Apache-2.0
"""Recovery of interrupted consumer operations.

A client may stop between any two requests. Each client that finds the row of
an unfinished operation completes the operation if it was decided, and rolls
it back if not. :mod:`.records` lists the states of a consumer's row;
:mod:`.operations` says which requests of each operation decide it.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math

from oslo_log import log

from cellsched.claims.cassandra.ledger import Entry
from cellsched.claims.cassandra.ledger import EntryOutcome
from cellsched.claims.cassandra.ledger import Ledger
from cellsched.claims.cassandra.ledger import ROWS_MAX
from cellsched.claims.cassandra import records
from cellsched.claims.cassandra import requests
from cellsched.claims.cassandra.session import Session
from cellsched.claims.cassandra.slots import parse
from cellsched.claims.cassandra.slots import resources_of
from cellsched import exception
from cellsched.observability.conditions import Conditions

LOG = log.getLogger(__name__)

#: The condition that operations stay.
_UNENDED = 'Operations of clients that stopped are not ended yet'

#: Seconds between two searches for operations of clients that stopped, and
#: the number of buckets that one of them reads.
_SWEEP_S = 1.0
_BUCKETS = 10

_Record = records.Record
_Holding = records.HeldClaims
#: A provider and its row of a claim.
_Row = tuple[str, requests.ClaimRow]


@dataclasses.dataclass(frozen=True)
class ConsumerState:
    """The meaning of a consumer's row.

    :param record: the row; None if the consumer has none
    :param holding: the claims of the consumer, or None
    :param decided: False while the operation in progress can still complete
        or be rolled back
    :param blocked_by: the unreadable row that decides, or None; nothing is
        done about the consumer while it is unreadable
    """

    record: _Record | None = None
    holding: _Holding | None = None
    decided: bool = True
    blocked_by: _Record | None = None

    @property
    def is_stable(self) -> bool:
        """True without an operation in progress."""
        record = self.record
        return record is None or (
            self.decided and self.holding is not None and (
                record.state == records.HELD
                or record.state == records.TAKING and not record.lead))


class ConsumerRecovery:
    """Reads the state of consumers and ends interrupted operations.

    :param abandoned_s: seconds to wait for an operation in progress before
        it is rolled back
    """

    def __init__(
        self, session: Session, ledger: Ledger, abandoned_s: float
    ) -> None:
        self._session = session
        self._ledger = ledger
        self._abandoned_s = abandoned_s
        self._conditions = Conditions(LOG, session.clock.monotonic)
        #: By consumer: the version of an unfinished row, and when this
        #: process read that version first.
        self._unfinished: dict[str, tuple[str, float]] = {}
        self._sweep_at = -math.inf
        #: The consumers of operations that the last sweep found.
        self._noted: set[str] = set()

    # State.

    def states(self, consumers: Iterable[str]) -> dict[str, ConsumerState]:
        """Return the state of each consumer at some moment of the call."""
        return self._states_of(self._session.read_all(consumers))

    def state(self, consumer: str) -> ConsumerState:
        return self.states([consumer])[consumer]

    def _states_of(
        self, found: dict[str, _Record | None]
    ) -> dict[str, ConsumerState]:
        # The row alone decides in most states. A claim of one provider is
        # decided by the provider's row; a member of a batch and the target
        # of a transfer are decided by another consumer's row.
        answer: dict[str, ConsumerState] = {}
        single, linked = [], []
        for consumer, record in found.items():
            if record is None:
                answer[consumer] = ConsumerState()
            elif record.unreadable:
                answer[consumer] = ConsumerState(record, None, False, record)
            elif record.state in (records.HELD, records.MOVING):
                answer[consumer] = ConsumerState(
                    record, record.holding, record.state == records.HELD)
            elif record.state == records.TAKING and not record.lead:
                single.append(record)
            elif record.state == records.TAKING and record.lead == consumer:
                answer[consumer] = ConsumerState(record, None, False)
            elif record.state in (records.TAKING, records.RECEIVING):
                linked.append(record)
            else:
                answer[consumer] = ConsumerState(record)
        answer |= self._decided_by_providers(single)
        answer |= self._decided_by_consumers(linked)
        return answer

    def _decided_by_providers(
        self, found: Sequence[_Record]
    ) -> dict[str, ConsumerState]:
        """Return the states of claims that a provider's row decides."""
        keys: dict[str, list[tuple[str, str]]] = {}
        for record in found:
            for provider in record.holding.claims:
                keys.setdefault(provider, []).append(
                    (record.consumer, record.attempt))
        reads = [
            requests.ReadClaims(provider, tuple(pairs[start:start + ROWS_MAX]))
            for provider, pairs in keys.items()
            for start in range(0, len(pairs), ROWS_MAX)]
        rows = {row.key: row for answer in self._session.ask_all(reads)
                for row in answer}
        answer = {}
        for record in found:
            row = rows.get((record.consumer, record.attempt))
            holds = row is not None and bool(row.resources)
            answer[record.consumer] = ConsumerState(
                record, record.holding if holds else None, holds)
        return answer

    def _decided_by_consumers(
        self, found: Sequence[_Record]
    ) -> dict[str, ConsumerState]:
        """Return the states of consumers that another row decides."""
        deciding = self._session.read_all(
            record.lead or record.other for record in found)
        answer, reread = {}, []
        for record in found:
            state = _linked_state(
                record, deciding[record.lead or record.other])
            if state is None:
                reread.append(record)
            else:
                answer[record.consumer] = state
        # The deciding row belongs to another operation. Either this one was
        # rolled back, or the consumer's own row has changed since it was
        # read.
        latest = self._session.read_all(record.consumer for record in reread)
        changed = {}
        for record in reread:
            now = latest[record.consumer]
            if now is not None and now.version == record.version:
                answer[record.consumer] = ConsumerState(record, record.before)
            else:
                changed[record.consumer] = now
        if changed:
            answer |= self._states_of(changed)
        return answer

    # Completion and rollback.

    def resolve(self, consumer: str, wait: bool = True) -> ConsumerState:
        """Return a consumer's state without an operation in progress.

        The row then holds claims, or does not exist.

        :param wait: whether to give the operation in progress time to end
            before it is rolled back
        :raises cellsched.exception.ClaimStoreFailed: a row is unreadable
        :raises cellsched.exception.DatabaseUnreachable: new operations of
            the consumer follow each other without a pause
        """
        for _ in self._session.attempts():
            state = self.state(consumer)
            if not state.is_stable:
                record = state.record
                assert record is not None
                if state.blocked_by is not None:
                    state.blocked_by.check()
                if state.decided:
                    self.finish(state)
                elif not wait or self._age_s(record) >= self._abandoned_s:
                    self.cancel(record)
                else:
                    continue
                state = self.state(consumer)
            if state.is_stable:
                self._unfinished.pop(consumer, None)
                return state
        self._session.unreachable(
            f'the operations on consumer {consumer} do not end')

    def _age_s(self, record: _Record) -> float:
        """Return for how long this process has known a version of a row."""
        now = self._session.clock.monotonic()
        version, since = self._unfinished.get(record.consumer, ('', now))
        if version != record.version:
            since = now
        self._unfinished[record.consumer] = record.version, since
        return now - since

    def sweep(self) -> None:
        """End noted operations of clients that stopped, in some seconds.

        At most one call a second does so. An operation is given twice
        ``abandoned_s``, as no other client waits for it. Most have ended when
        the next call looks, so the rows of new ones are not read.
        """
        clock = self._session.clock
        now = clock.monotonic()
        if now < self._sweep_at:
            return
        self._sweep_at = now + _SWEEP_S
        last = int(clock.timestamp() // requests.BUCKET_S) + 1
        answers = self._session.try_all([
            requests.ReadAnnounced(bucket)
            for bucket in range(last - _BUCKETS, last + 1)])
        noted = {name for answer in answers
                 if not isinstance(answer, Exception) for name in answer}
        lasting, self._noted = noted & self._noted, noted
        try:
            self.resolve_abandoned(
                self.states(sorted(lasting | self._unfinished.keys())), 2)
            self._conditions.end(_UNENDED)
        except exception.DatabaseError as exc:
            self._conditions.occur(_UNENDED, exc)

    def resolve_abandoned(
        self, states: Mapping[str, ConsumerState], times: float = 1
    ) -> None:
        """End unfinished operations that a listing of consumers finds.

        The first call that finds an operation only remembers it; a later call
        ends it, once it is some times ``abandoned_s`` old.
        """
        for consumer, state in states.items():
            if state.is_stable or state.blocked_by or state.record is None:
                self._unfinished.pop(consumer, None)
            elif self._age_s(state.record) >= times * self._abandoned_s:
                # A newer operation of the consumer is not ended.
                if state.decided:
                    self.finish(state)
                else:
                    self.cancel(state.record)

    def finish(self, state: ConsumerState) -> None:
        """Complete an operation that is decided."""
        record = state.record
        assert record is not None
        if record.state in (records.GIVING, records.DROPPING):
            self.undo([record])
        elif record.state == records.MOVED:
            self.finish_move(record)
        elif record.state == records.TAKING:
            if state.holding is not None:
                self._session.write(record, held(record))
            else:
                self._drop(record)
        elif record.state == records.RECEIVING:
            if state.holding is record.before:
                self._session.write(record, _reverted(record))
            else:
                source = self._session.read(record.other)
                if source is not None and source.state == records.MOVED:
                    self.finish_move(source)

    def cancel(self, record: _Record) -> None:
        """Roll back an operation, unless it is decided meanwhile."""
        if record.state in (records.MOVING, records.RECEIVING):
            source = record if record.state == records.MOVING else (
                self._session.read(record.other))
            if source is not None and source.state == records.MOVING and (
                    source is record or source.link == record.attempt):
                self._session.write(source, held(source))
        elif record.lead:
            lead = record if record.lead == record.consumer else (
                self._session.read(record.lead))
            if lead is not None and lead.state == records.TAKING and (
                    lead.attempt == record.attempt):
                self._drop(lead)
        # A claim of one provider stays if the provider has its row.
        elif not self.fence_off(_rows([record])):
            self._drop(record)

    def undo(self, found: Sequence[_Record]) -> None:
        """Delete the claims of rows in state GIVING or DROPPING."""
        given = [each for each in found if each.state == records.GIVING]
        dropped = [each for each in found if each.state == records.DROPPING]
        for record in given:
            self.confirm_members(record)
        for record in dropped:
            for member in self._waiting_members(record):
                self._drop(member)
        self.delete_claims(_rows(given))
        self.delete_claims(_rows(dropped), fences=True)
        self._session.write_all([(record, None) for record in found])

    def delete_claims(
        self, remaining: Sequence[_Row], fences: bool = False
    ) -> None:
        """Delete rows of claims at their providers.

        :param fences: whether to fence attempts off at providers without
            their row, where a request of the attempt may arrive later
        """
        while remaining:
            entries = [Entry(provider, deleted=[row])
                       for provider, row in remaining]
            self._ledger.do(entries)
            gone = [each for each, entry in zip(remaining, entries)
                    if entry.outcome is EntryOutcome.GONE]
            remaining = self.fence_off(gone) if fences else []

    def fence_off(self, rows: Sequence[_Row]) -> list[_Row]:
        """Fence attempts off at providers that do not have their rows.

        :returns: the rows that exist
        """
        answers = self._session.ask_all([
            requests.Fence(provider, row.consumer, row.attempt)
            for provider, row in rows])
        return [each for each, found in zip(rows, answers)
                if found is not None and found.resources]

    def _drop(self, record: _Record) -> None:
        dropped = self._session.write(
            record, record.replaced(records.DROPPING))
        if dropped is not None:
            self.undo([dropped])

    def confirm_members(self, lead: _Record) -> None:
        """Set the other consumers of a decided batch to HELD."""
        self._session.write_all([
            (record, held(record)) for record in self._waiting_members(lead)])

    def _waiting_members(self, lead: _Record) -> list[_Record]:
        found = self._session.read_all(lead.members)
        return [record for record in found.values()
                if record is not None and record.attempt == lead.attempt
                and record.state == records.TAKING]

    # Transfers.

    def finish_move(self, source: _Record) -> None:
        """Complete a transfer that is decided, from the row of its source."""
        target = self._session.read(source.other)
        if target is not None:
            target.check()
        if target is not None and target.attempt == source.link and (
                target.state == records.RECEIVING):
            # 1. Replace the source's rows at the providers. They are gone if
            #    an earlier attempt did so.
            after = target.holding.rows(target.consumer)
            self._ledger.do([
                Entry(provider, [after[provider]], [row])
                for provider, row in _rows([source])])
            # 2. Delete the claims that the target had before.
            if target.before is not None:
                self.delete_claims([
                    *target.before.rows(target.consumer).items()])
            # 3. The target now holds the claims.
            if self._session.write(target, held(target)) is None:
                # Another client writes the same row. While it is still
                # RECEIVING, the source's row is needed.
                target = self._session.read(source.other)
                if target is not None and (
                        target.attempt == source.link
                        and target.state == records.RECEIVING):
                    return
        # 4. The source's row goes last.
        self._session.write(source, None)

    # Providers.

    def consumers_of(
        self, provider: str, rows: Sequence[requests.ClaimRow]
    ) -> list[str]:
        """Return the consumers that hold claims of a provider.

        :param rows: the provider's rows
        """
        found = self._session.read_all(row.consumer for row in rows)
        names = {row.consumer for row in rows}
        # The target of a transfer that is decided holds the source's rows.
        names |= {record.other for record in found.values()
                  if record is not None and record.state == records.MOVED}
        states = self.states(sorted(names))
        self.resolve_abandoned(states)
        return sorted(
            name for name, state in states.items()
            if state.holding is not None
            and provider in state.holding.claims)

    def recount(self, provider: str) -> bool:
        """Correct a provider's counters; return whether any was wrong.

        Rows of rolled back attempts, which no consumer's row names, are
        deleted first.
        """
        wrong = False
        for _ in self._session.attempts():
            figures, rows = self._session.ask(requests.ReadProvider(provider))
            if figures is None:
                return False
            if any(resources_of(row) is None for row in rows) or (
                    parse(figures.inventory).unreadable):
                return False
            strays = self._strays(rows)
            if strays:
                entries = [Entry(provider, deleted=[row]) for row in strays]
                self._ledger.do(entries)
                wrong |= any(entry.outcome is EntryOutcome.DONE
                             for entry in entries)
                continue
            right = _counted(figures, rows)
            if right == figures:
                return wrong
            put = {name: value for name, value in right.columns().items()
                   if value is not None and name != 'inventory'}
            put['generation'] += 1
            if self._ledger.try_change(requests.ChangeProvider(
                    provider, {'generation': figures.generation}, put),
                    figures):
                return True
        self._session.unreachable('other clients change the provider')

    def _strays(
        self, rows: Sequence[requests.ClaimRow]
    ) -> list[requests.ClaimRow]:
        """Return the rows that their consumers' rows do not name."""
        # A consumer's row names an attempt before the provider has a row of
        # it, and until that row is deleted. So consumers are read after the
        # provider.
        found = self._session.read_all(row.consumer for row in rows)
        unreadable = {name for name, record in found.items()
                      if record is not None and record.unreadable}
        return [row for row in rows
                if row.consumer not in unreadable
                and row.attempt not in _attempts(found[row.consumer])]


def held(record: _Record) -> _Record:
    """Return the row of a consumer whose operation is complete."""
    return record.replaced(
        records.HELD, lead='', members=(), other='', link='', before=None)


def _reverted(record: _Record) -> _Record | None:
    """Return the row of a target whose transfer was rolled back."""
    if record.before is None:
        return None
    return held(record.replaced(record.state, holding=record.before))


def _rows(found: Iterable[_Record]) -> list[_Row]:
    """Return the rows of consumers' claims."""
    return [each for record in found
            for each in record.holding.rows(record.consumer).items()]


def _linked_state(
    record: _Record, row: _Record | None
) -> ConsumerState | None:
    """Return the state of a batch's member or of a transfer's target.

    :param row: the row of the lead or of the source, which decides
    :returns: None if the operation was rolled back
    """
    if row is not None and row.unreadable:
        return ConsumerState(record, record.before, False, row)
    if row is None or row.attempt != (record.link or record.attempt) or (
            record.link and row.link != record.attempt):
        return None
    if row.state == (records.TAKING if record.lead else records.MOVING):
        return ConsumerState(record, record.before, False)
    # The lead's row names its members until all of them are HELD. A member
    # that it does not name was inserted by a late repetition.
    is_decided = (
        row.state in (records.HELD, records.GIVING)
        and record.consumer in row.members
    ) if record.lead else row.state == records.MOVED
    return ConsumerState(record, record.holding) if is_decided else None


def _attempts(record: _Record | None) -> set[str]:
    """Return the attempts that a consumer's row names."""
    if record is None:
        return set()
    return {record.attempt,
            *([record.before.attempt] if record.before else [])}


def _counted(
    figures: requests.Figures, rows: Sequence[requests.ClaimRow]
) -> requests.Figures:
    """Return the counters that follow from the rows of a provider."""
    slots = parse(figures.inventory)
    used = {slot.number: 0 for slot in slots.classes.values()}
    used |= slots.amounts(resources_of(row) or {} for row in rows)
    return dataclasses.replace(
        figures, consumers=len(rows), open=sum(row.several for row in rows),
        used=tuple(used.get(number, amount)
                   for number, amount in enumerate(figures.used)))
