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
            row = deciding[record.lead or record.other]
            state = (_state_of_member(record, row) if record.lead
                     else _state_of_target(record, row))
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
        first: _Record | None = None
        began = self._session.clock.monotonic()
        for _ in self._session.attempts():
            state = self.state(consumer)
            record = state.record
            if record is None or _is_stable(state):
                return state
            if state.blocked_by is not None:
                state.blocked_by.check()
            # An operation that is not decided has abandoned_s to end, counted
            # from the first read of this version of the row.
            if first is None or first.version != record.version:
                first, began = record, self._session.clock.monotonic()
            waited_s = self._session.clock.monotonic() - began
            if state.decided:
                self.finish(state)
            elif not wait or waited_s >= self._abandoned_s:
                self.cancel(record)
            else:
                continue
            state = self.state(consumer)
            if state.record is None or _is_stable(state):
                return state
        self._session.unreachable(
            f'the operations on consumer {consumer} do not end')

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
        now = self._session.clock.monotonic()
        unfinished = {}
        for consumer, state in states.items():
            record = state.record
            if record is None or state.blocked_by or _is_stable(state):
                continue
            version, since = self._unfinished.get(
                consumer, (record.version, now))
            if version != record.version:
                since = now
            if now - since < times * self._abandoned_s:
                unfinished[consumer] = record.version, since
            else:
                self.resolve(consumer, wait=False)
        for consumer in states:
            self._unfinished.pop(consumer, None)
        self._unfinished |= unfinished

    def finish(self, state: ConsumerState) -> None:
        """Complete an operation that is decided."""
        record = state.record
        assert record is not None
        if record.state in (records.GIVING, records.DROPPING):
            self.undo(record)
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
        if record.state == records.MOVING:
            self._session.write(record, held(record))
        elif record.state == records.RECEIVING:
            source = self._session.read(record.other)
            if source is not None and source.state == records.MOVING:
                self._session.write(source, held(source))
        elif record.lead and record.lead != record.consumer:
            lead = self._session.read(record.lead)
            if lead is not None and lead.attempt == record.attempt:
                if lead.state == records.TAKING:
                    self._drop(lead)
        elif record.lead:
            self._drop(record)
        else:
            # A claim of one provider stays if the provider has its row.
            arrived = self._fence_off(
                record.consumer, record.attempt, [*record.holding.claims])
            if not arrived:
                self._drop(record)

    def undo(self, record: _Record) -> None:
        """Delete the claims of a row in state GIVING or DROPPING."""
        if record.state == records.GIVING:
            self.confirm_members(record)
        else:
            for member in self._waiting_members(record):
                self._drop(member)
        self.delete_claims(record.consumer, record.holding,
                           fences=record.state == records.DROPPING)
        self._session.write(record, None)

    def delete_claims(
        self, consumer: str, holding: _Holding, fences: bool
    ) -> None:
        """Delete the rows of a holding at its providers.

        :param fences: whether to fence the attempt off at providers without
            its row, where a request of the attempt may arrive later
        """
        remaining = holding.rows(consumer)
        for _ in self._session.attempts():
            entries = {provider: Entry(provider, deleted=[row])
                       for provider, row in remaining.items()}
            self._ledger.do([*entries.values()])
            gone = [provider for provider, entry in entries.items()
                    if entry.outcome is EntryOutcome.GONE]
            late = self._fence_off(consumer, holding.attempt, gone) if (
                fences) else []
            remaining = {
                provider: row for provider, row in remaining.items()
                if provider in late
                or entries[provider].outcome is EntryOutcome.UNKNOWN}
            if not remaining:
                return
        self._session.unreachable('')

    def _fence_off(
        self, consumer: str, attempt: str, providers: Sequence[str]
    ) -> list[str]:
        """Fence an attempt off at providers that do not have its row.

        :returns: the providers that have it
        """
        rows = self._session.ask_all([
            requests.Fence(provider, consumer, attempt)
            for provider in providers])
        return [provider for provider, row in zip(providers, rows)
                if row is not None and row.resources]

    def _drop(self, record: _Record) -> None:
        dropped = self._session.write(
            record, record.replaced(records.DROPPING))
        if dropped is not None:
            self.undo(dropped)

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
            # 1. Rename the source's rows at the providers.
            self._rename(source, target)
            # 2. Delete the claims that the target had before.
            if target.before is not None:
                self.delete_claims(
                    target.consumer, target.before, fences=False)
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

    def _rename(self, source: _Record, target: _Record) -> None:
        """Replace the source's rows at the providers with the target's."""
        before = source.holding.rows(source.consumer)
        after = target.holding.rows(target.consumer)
        remaining = [*before]
        for _ in self._session.attempts():
            entries = [
                Entry(provider, [after[provider]], [before[provider]])
                for provider in remaining]
            self._ledger.do(entries)
            # GONE: an earlier attempt renamed the row.
            remaining = [entry.provider for entry in entries
                         if entry.outcome is EntryOutcome.UNKNOWN]
            if not remaining:
                return
        self._session.unreachable('')

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
                for row in strays:
                    entry = Entry(provider, deleted=[row])
                    self._ledger.do([entry])
                    wrong |= entry.outcome is EntryOutcome.DONE
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


def _is_stable(state: ConsumerState) -> bool:
    record = state.record
    if record is None or not state.decided or state.holding is None:
        return False
    return record.state == records.HELD or (
        record.state == records.TAKING and not record.lead)


def _state_of_member(
    record: _Record, lead: _Record | None
) -> ConsumerState | None:
    """Return the state of a batch's member; None if it was rolled back."""
    if lead is not None and lead.unreadable:
        return ConsumerState(record, None, False, lead)
    if lead is None or lead.attempt != record.attempt:
        return None
    if lead.state == records.TAKING:
        return ConsumerState(record, None, False)
    # The lead's row names its members until all of them are HELD. A member
    # that it does not name was inserted by a late repetition.
    if lead.state in (records.HELD, records.GIVING) and (
            record.consumer in lead.members):
        return ConsumerState(record, record.holding)
    return None


def _state_of_target(
    record: _Record, source: _Record | None
) -> ConsumerState | None:
    """Return the state of a transfer's target; None if it was rolled back."""
    if source is not None and source.unreadable:
        return ConsumerState(record, record.before, False, source)
    if source is None or source.attempt != record.link or (
            source.link != record.attempt):
        return None
    if source.state == records.MOVED:
        return ConsumerState(record, record.holding)
    if source.state == records.MOVING:
        return ConsumerState(record, record.before, False)
    return None


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
