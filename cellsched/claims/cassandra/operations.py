# SPDX-License-Identifier: Apache-2.0
"""Claim, release and transfer in Cassandra.

Cassandra changes one partition in one step, and each provider and each
consumer is a partition. So an operation writes its intent to the consumer's
row first, then the providers' rows, and one conditional write decides it:

claim of one provider
    the write of the provider's rows
claim of several providers
    the write of the lead's row, TAKING to HELD; the lead is the first
    consumer of the batch
release
    the write of the consumer's row, HELD to GIVING
transfer
    the write of the source's row, MOVING to MOVED

:mod:`.recovery` ends the operations of clients that stopped.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from cellsched.claims import base
from cellsched.claims.cassandra.ledger import Entry
from cellsched.claims.cassandra.ledger import EntryOutcome
from cellsched.claims.cassandra.ledger import Ledger
from cellsched.claims.cassandra.ledger import ROWS_MAX
from cellsched.claims.cassandra import records
from cellsched.claims.cassandra.recovery import ConsumerRecovery
from cellsched.claims.cassandra.recovery import held
from cellsched.claims.cassandra import requests
from cellsched.claims.cassandra.session import CONTENDED
from cellsched.claims.cassandra.session import Session
from cellsched.claims.cassandra.slots import resources_of
from cellsched.claims.cassandra.slots import Slots
from cellsched.claims import validation
from cellsched import exception

#: Decided attempts that a process remembers.
_DECIDED_MAX = 10000

_Outcome = EntryOutcome
_Record = records.Record


class _Busy(Exception):
    """Another operation on a consumer is in progress, or ended this one."""

    def __init__(self, consumer: str = '') -> None:
        super().__init__(consumer)
        self.consumer = consumer


@dataclasses.dataclass(eq=False)
class _Attempt:
    """An attempt to claim the first of several batches that fits.

    :ivar refusals: by position
    :ivar intents: those of the batch that was tried, by consumer. After a
        refusal, they keep other claims out until the next batch is tried
    :ivar new: number of new claims; None if none was claimed
    """

    batches: Sequence[Sequence[base.Claim]]
    refusals: dict[int, exception.ClaimRefused] = dataclasses.field(
        default_factory=dict)
    intents: Mapping[str, _Record] = dataclasses.field(default_factory=dict)
    new: int | None = None

    @property
    def place(self) -> int | None:
        """The position of the first batch that is not refused, or None."""
        return next(iter(self.remaining()), None)

    @property
    def batch(self) -> Sequence[base.Claim]:
        return next(iter(self.remaining().values()), ())

    def remaining(self) -> dict[int, Sequence[base.Claim]]:
        """Return the batches that are not refused, by position."""
        return {place: batch for place, batch in enumerate(self.batches)
                if place not in self.refusals}

    def outcome(self) -> base.AnyOf:
        return base.AnyOf(self.place, self.new or 0, {
            place: refusal for place, refusal in self.refusals.items()
            if self.place is None or place < self.place})


class BatchClaim:
    """Claims batches.

    The intents in the consumers' rows keep other claims of these consumers
    out. Then each provider gets one request. The answer of a single provider
    decides the batch; with several providers, the lead's row is written once
    more and decides for all members.
    """

    def __init__(
        self, session: Session, ledger: Ledger, recovery: ConsumerRecovery
    ) -> None:
        self._session = session
        self._ledger = ledger
        self._recovery = recovery
        #: Decided attempts with rows at several providers.
        self._decided: dict[str, None] = {}

    def claim(self, claims: Sequence[base.Claim]) -> int:
        """Claim a batch; see :meth:`.base.ClaimStore.claim`."""
        validation.check_claims(claims)
        # Remains of a claim of one provider use no capacity.
        names = [claim.consumer for claim in claims
                 ] if _is_several(claims) else []
        attempt = _Attempt([claims])
        self._pass_over([attempt])
        for refusal in attempt.refusals.values():
            raise refusal
        with self._session.announced(names):
            for _ in self._session.attempts():
                try:
                    return self._try(claims)
                except _Busy as exc:
                    if exc.consumer:
                        self._recovery.resolve(exc.consumer)
            self._session.unreachable(CONTENDED)

    def claim_each(
        self, requests: Sequence[Sequence[Sequence[base.Claim]]]
    ) -> dict[int, base.AnyOf]:
        """Claim the first batch that fits of each request, all at a time.

        :returns: the outcomes by position. Requests with several providers
            are left out, and those whose consumers hold claims, or have an
            operation in progress
        """
        attempts = [_Attempt(batches) for batches in requests]
        due = attempts
        while due:
            # 1. Pass over the batches of providers that are full.
            self._pass_over(due)
            # 2. Try to claim the others.
            tried = [each for each in due if _is_plain(each.batch)]
            due = []
            for each, outcome in zip(tried, self._try_each(tried)):
                if isinstance(outcome, exception.ClaimRefused):
                    assert each.place is not None
                    each.refusals[each.place] = outcome
                    due.append(each)
                elif isinstance(outcome, int):
                    each.new = outcome
        self._delete([record for each in attempts if each.new is None
                      for record in each.intents.values()])
        return {number: each.outcome() for number, each in enumerate(attempts)
                if each.new is not None or each.place is None}

    def _pass_over(self, attempts: Sequence[_Attempt]) -> None:
        """Refuse batches of attempts whose provider is full.

        That takes reads, instead of intents that are deleted again. Without
        intents, nothing is read if the provider of the first batch is not
        known to be full. Batches of several providers are left out.
        """
        full = [
            (each, place, known, batch) for each in attempts
            if each.intents or self._known_full(each.batch)
            for place, batch in each.remaining().items() if _is_plain(batch)
            for known in [self._known_full(batch)] if known or each.intents]
        # 1. Consumers that hold claims, or may, are not refused here. They
        #    hold none if they have intents of the attempt.
        holding = self._session.read_all(
            (claim.consumer for each, *_, batch in full if not each.intents
             for claim in batch), serial=False)
        # 2. Equal counters, which include a generation, show that the
        #    provider was full when the consumers held nothing.
        figures = self._ledger.read(batch[0].provider for *_, batch in full)
        for each, place, known, batch in full:
            found = figures[batch[0].provider]
            if each.intents or found == known and not any(
                    holding[claim.consumer] for claim in batch):
                refusal = _full(batch, found)
                if refusal is not None:
                    each.refusals[place] = refusal

    def _known_full(
        self, claims: Sequence[base.Claim]
    ) -> requests.Figures | None:
        """Return the last known counters of a full provider; None if not."""
        known = self._ledger.known(claims[0].provider) if claims else None
        return None if _full(claims, known) is None else known

    def _try(self, claims: Sequence[base.Claim]) -> int:
        if not _is_several(claims):
            attempt = _Attempt([claims])
            [outcome] = self._try_each([attempt])
            if isinstance(outcome, Exception):
                self._delete([*attempt.intents.values()])
                raise outcome
            return outcome
        # 1. Insert the intents of the consumers that hold nothing.
        intents = self._insert(claims)
        new = [claim for claim in claims if claim.consumer in intents]
        if not new:
            return 0
        # 2. Write the rows of the providers, all of them at a time.
        entries = _entries(intents.values())
        self._ledger.do(entries)
        # 3. Decide the batch.
        if {entry.outcome for entry in entries} == {_Outcome.DONE} and (
                self._decide([*intents.values()])):
            return len(new)
        # 4. Otherwise roll back, and raise the refusal if it is final.
        self._undo([*intents.values()], entries)
        refused = {entry.provider: entry.figures for entry in entries
                   if entry.outcome is _Outcome.REFUSED}
        refusal = self._final_refusal(new, refused) if refused else None
        raise refusal or _Busy()

    def _try_each(self, attempts: Sequence[_Attempt]) -> list[int | Exception]:
        """Try to claim the batches of attempts, each of one provider.

        :returns: of each, the number of new claims, or the error. That of a
            batch to try again is :class:`_Busy`. The intents remain
        """
        # 1. Write the intents of the consumers that hold nothing.
        intents = [_intents(each.batch, self._session.name())
                   for each in attempts]
        written, errors = self._write_intents([
            (each.intents.get(name), intent)
            for each, batch in zip(attempts, intents)
            for name, intent in batch.items()])
        outcomes: list[int | Exception] = []
        for each, batch in zip(attempts, intents):
            each.intents = {
                name: written[name] for name in batch if name in written}
            outcomes.append(next(
                (errors[name] for name in batch if name in errors),
                len(each.intents)))
        # 2. Write the rows of the providers, all of them at a time. That
        #    decides.
        entries = {number: _entries(each.intents.values())[0]
                   for number, each in enumerate(attempts) if each.intents
                   and not isinstance(outcomes[number], Exception)}
        self._ledger.do([*entries.values()])
        for number, entry in entries.items():
            each = attempts[number]
            if entry.outcome is _Outcome.REFUSED:
                outcomes[number] = self._final_refusal(
                    [claim for claim in each.batch
                     if claim.consumer in each.intents],
                    {entry.provider: entry.figures}) or _Busy()
            # All rows of an entry are written in one step, so the first one
            # shows whether they exist. If not, they cannot be written later.
            elif entry.outcome is not _Outcome.DONE and not (
                    entry.outcome is _Outcome.UNKNOWN
                    and self._recovery.fence_off(
                        [(entry.provider, entry.inserted[0])])):
                outcomes[number] = _Busy()
        return outcomes

    # Consumers.

    def _insert(self, claims: Sequence[base.Claim]) -> dict[str, _Record]:
        """Insert the intents of a batch of several providers.

        :returns: the intents of consumers without claims

        :raises _Busy: another operation on a consumer is in progress
        :raises cellsched.exception.ClaimConflict: a consumer holds other
            claims
        """
        intents = _intents(claims, self._session.name())
        names = list(intents)
        # Members refer to the lead's row, so it is inserted first. The lead
        # is the first consumer that holds nothing.
        for number, name in enumerate(names):
            inserted, errors = self._write_intents([(
                None, intents[name].replaced(
                    records.TAKING, lead=name,
                    members=tuple(names[number + 1:])))])
            if inserted:
                members, errors = self._write_intents([
                    (None, intents[member].replaced(
                        records.TAKING, lead=name))
                    for member in names[number + 1:]])
                inserted |= members
            for error in errors.values():
                self._delete([*inserted.values()])
                raise error
            if inserted:
                return inserted
        return {}

    def _write_intents(
        self, pairs: Sequence[tuple[_Record | None, _Record]]
    ) -> tuple[dict[str, _Record], dict[str, Exception]]:
        """Write intents of consumers that hold nothing.

        :param pairs: the earlier intent, or None, and the new one
        :returns: the written ones, and the errors of others, by consumer. A
            consumer that holds the same claims is in neither
        """
        written = {record.consumer: record
                   for record in self._session.write_all(pairs)
                   if record is not None}
        existing = [intent for _, intent in pairs
                    if intent.consumer not in written]
        states = self._recovery.states(
            intent.consumer for intent in existing)
        errors: dict[str, Exception] = {}
        for intent in existing:
            name, state = intent.consumer, states[intent.consumer]
            if not state.decided or state.holding is None:
                errors[name] = _Busy(name)
            elif state.holding.claims != intent.holding.claims:
                errors[name] = exception.ClaimConflict(consumer=name)
        return written, errors

    def _delete(self, intents: Sequence[_Record]) -> None:
        """Delete intents for which no provider has a row."""
        # The lead goes last, as the members' rows refer to it.
        self._session.write_all([
            (record, None) for record in intents
            if record.lead != record.consumer])
        self._session.write_all([
            (record, None) for record in intents
            if record.lead == record.consumer])

    def _decide(self, intents: Sequence[_Record]) -> bool:
        """Set a batch of several providers to HELD.

        :returns: False if another client rolled the batch back
        """
        [lead] = [record for record in intents
                  if record.lead == record.consumer]
        # The lead keeps its list of members until they are HELD, too.
        decided = self._session.write(lead, lead.replaced(
            records.HELD, lead=''))
        if decided is None:
            return False
        if decided.members:
            self._session.write_all([
                (record, held(record)) for record in intents
                if record is not lead])
            self._session.write(decided, held(decided))
        return True

    def _undo(
        self, intents: Sequence[_Record], entries: Sequence[Entry]
    ) -> None:
        """Delete the rows of an attempt at all providers, and the intents.

        Another client that has changed the lead's row rolls the batch back
        itself, or has changed it after the decision, whose answer was lost.
        """
        [lead] = [record for record in intents
                  if record.lead == record.consumer]
        dropping = self._session.write(
            lead, lead.replaced(records.DROPPING))
        if dropping is None:
            return
        self._recovery.delete_claims([
            (entry.provider, row) for entry in entries
            if entry.outcome in (_Outcome.DONE, _Outcome.UNKNOWN)
            for row in entry.inserted], fences=True)
        self._delete([dropping, *(
            record for record in intents if record is not lead)])

    # Refusals.

    def _final_refusal(
        self, claims: Sequence[base.Claim],
        refused: Mapping[str, requests.Figures | None],
    ) -> exception.ClaimRefused | None:
        """Return the refusal of a batch; None if it is to be tried again.

        Claims of undecided batches may still be rolled back. If that would
        free enough capacity, those batches are resolved.

        :param refused: the counters of the providers that refused it; None
            for an unknown provider
        """
        # 1. Read the counters again where undecided claims may be included.
        figures, undecided = {}, {}
        for provider, known in refused.items():
            rows: list[requests.ClaimRow] = []
            if known is not None and known.open:
                known, rows = self._session.ask(
                    requests.ReadProvider(provider))
                rows = self._undecided(rows)
            if known is not None:
                figures[provider] = known
                undecided[provider] = rows
        concerned = [claim for claim in claims if claim.provider in refused]
        # 2. Refuse it if it does not fit even if these are rolled back.
        refusal = _refusal(concerned, figures, undecided)
        if refusal is None and _refusal(concerned, figures, {}) is not None:
            # 3. Resolve one undecided claim of each provider.
            for provider, rows in undecided.items():
                for row in rows[:1]:
                    self._resolve(provider, row)
        return refusal

    def _undecided(
        self, rows: Sequence[requests.ClaimRow]
    ) -> list[requests.ClaimRow]:
        """Return the rows that a rollback of their batch would delete."""
        candidates = [row for row in rows
                      if row.several and row.attempt not in self._decided]
        states = self._recovery.states(row.consumer for row in candidates)
        undecided = []
        for row in candidates:
            state = states[row.consumer]
            record = state.record
            if record is not None and record.attempt == row.attempt and (
                    record.state == records.MOVED
                    or state.holding is not None):
                self._decided[row.attempt] = None
            else:
                undecided.append(row)
        while len(self._decided) > _DECIDED_MAX:
            self._decided.pop(next(iter(self._decided)), None)
        return undecided

    def _resolve(self, provider: str, row: requests.ClaimRow) -> None:
        """Resolve a row's batch; delete the row if no consumer names it."""
        record = self._recovery.resolve(row.consumer).record
        if record is None or record.attempt != row.attempt:
            # If the rollback deleted the row, this changes nothing.
            self._ledger.do([Entry(provider, deleted=[row])])


class ConsumerOperations:
    """Releases consumers, and transfers claims from one to another.

    In a transfer, the rows of both consumers refer to each other before the
    source's row is written once more and decides for both.
    """

    def __init__(
        self, session: Session, recovery: ConsumerRecovery
    ) -> None:
        self._session = session
        self._recovery = recovery

    def release(self, consumers: Iterable[str]) -> None:
        """Release consumers, each independently of the others."""
        names = list(consumers)
        error: exception.ClaimStoreFailed | None = None
        with self._session.announced(names):
            for _ in self._session.attempts():
                # 1. Mark the rows that no operation is working on, delete
                #    their claims, and then the rows.
                remaining = self._release_settled(names)
                # 2. End the operations on the other consumers. A transfer may
                #    have moved claims to one that was released, so all are
                #    read again. Rows that cannot be read keep no other
                #    consumer.
                for name in remaining:
                    try:
                        self._recovery.resolve(name, wait=False)
                    except exception.ClaimStoreFailed as exc:
                        error = exc
                        names.remove(name)
                if not remaining:
                    break
            else:
                self._session.unreachable(CONTENDED)
            if error is not None:
                raise error

    def _release_settled(self, consumers: Iterable[str]) -> list[str]:
        """Release consumers; return those with an operation in progress."""
        found = [record for record
                 in self._session.read_all(consumers).values()
                 if record is not None]
        written = self._session.write_all([
            (record, record.replaced(
                records.GIVING if record.state == records.HELD
                else records.DROPPING))
            for record in found if record.state == records.HELD
            or record.state == records.TAKING and not record.lead])
        marked = [record for record in written if record is not None]
        self._recovery.undo(marked)
        done = {record.consumer for record in marked}
        return [record.consumer for record in found
                if record.consumer not in done]

    def transfer(self, source: str, target: str) -> bool:
        """Transfer claims; see :meth:`.base.ClaimStore.transfer`."""
        with self._session.announced([source, target]):
            for _ in self._session.attempts():
                record = self._recovery.resolve(source).record
                if record is None:
                    return False
                before = self._recovery.resolve(target).record
                if self._move(record, target, before):
                    return True
            self._session.unreachable(CONTENDED)

    def _move(
        self, source: _Record, target: str, before: _Record | None
    ) -> bool:
        # 1. A lead's members read its row, so they are confirmed first.
        if source.members:
            self._recovery.confirm_members(source)
        # 2. The source's row names the target.
        link = self._session.name()
        moving = self._session.write(source, held(source).replaced(
            records.MOVING, other=target, link=link))
        if moving is None:
            return False
        # 3. The target's row names the source.
        receiving = _Record(
            target, records.RECEIVING,
            dataclasses.replace(
                source.holding, attempt=link, several=False),
            other=source.consumer, link=source.attempt,
            before=before.holding if before else None)
        if before is not None and before.members:
            self._recovery.confirm_members(before)
        if self._session.write(before, receiving) is None:
            self._session.write(moving, held(moving))
            return False
        # 4. The decision. If another client has cancelled the transfer, the
        #    target's row is reverted when it is read next.
        moved = self._session.write(moving, moving.replaced(records.MOVED))
        if moved is None:
            return False
        # 5. Rename the providers' rows.
        self._recovery.finish_move(moved)
        return True


def _entries(intents: Iterable[_Record]) -> list[Entry]:
    """Return the changes of providers that claim what intents say."""
    by_provider: dict[str, list[requests.ClaimRow]] = {}
    for record in intents:
        for provider, row in record.holding.rows(record.consumer).items():
            by_provider.setdefault(provider, []).append(row)
    return [Entry(provider, rows[start:start + ROWS_MAX])
            for provider, rows in sorted(by_provider.items())
            for start in range(0, len(rows), ROWS_MAX)]


def _refusal(
    claims: Sequence[base.Claim], figures: Mapping[str, requests.Figures],
    undecided: Mapping[str, Sequence[requests.ClaimRow]],
) -> exception.ClaimRefused | None:
    """Return why a batch does not fit, or None if it does.

    :param figures: the counters of the known providers
    :param undecided: rows whose amounts do not count
    """
    slots = {provider: Slots.of(known) for provider, known in figures.items()}
    return validation.find_refusal(claims, {
        provider: {name: slot.inventory()
                   for name, slot in each.classes.items()}
        for provider, each in slots.items()}, {
        provider: _without(slots[provider].used(known),
                           undecided.get(provider, ()))
        for provider, known in figures.items()})


def _full(
    claims: Sequence[base.Claim], figures: requests.Figures | None
) -> exception.ClaimRefused | None:
    """Return the refusal of a batch of one full provider; None if not."""
    if figures is None or figures.open or not _is_plain(claims):
        return None
    return _refusal(claims, {figures.provider: figures}, {})


def _without(
    used: Mapping[str, int], rows: Iterable[requests.ClaimRow]
) -> dict[str, int]:
    """Return the used amounts less the amounts of some rows."""
    remaining = dict(used)
    for row in rows:
        for name, amount in (resources_of(row) or {}).items():
            remaining[name] = remaining.get(name, 0) - amount
    return remaining


def _is_several(claims: Sequence[base.Claim]) -> bool:
    """Return whether a batch takes more than one request to providers."""
    return (len({claim.provider for claim in claims}) > 1
            or len(claims) > ROWS_MAX)


def _is_plain(claims: Sequence[base.Claim]) -> bool:
    """Return whether a batch is valid and has one provider."""
    try:
        validation.check_claims(claims)
    except exception.InvalidField:
        return False
    return bool(claims) and not _is_several(claims)


def _intents(
    claims: Sequence[base.Claim], attempt: str
) -> dict[str, _Record]:
    """Return the intents of a batch by consumer, sorted by uuid."""
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
