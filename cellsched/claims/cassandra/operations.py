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

#: Attempts to refuse a batch before its intents are written.
_EARLY_MAX = 3

#: Decided attempts that a process remembers.
_DECIDED_MAX = 10000

_Outcome = EntryOutcome
_Record = records.Record


class _Busy(Exception):
    """Another operation on a consumer is in progress, or ended this one."""

    def __init__(self, consumer: str = '') -> None:
        super().__init__(consumer)
        self.consumer = consumer


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
        for refusals in self._find_full([([claims], 0)]):
            for refusal in refusals.values():
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
        outcomes: dict[int, base.AnyOf] = {}
        refusals: list[dict[int, exception.ClaimRefused]] = [
            {} for _ in requests]
        due = dict.fromkeys(range(len(requests)), 0)

        def refuse(number: int, refused: Mapping[
                int, exception.ClaimRefused]) -> None:
            """Continue with the next batch of a request, or end it."""
            refusals[number] |= refused
            for place in range(due.pop(number), len(requests[number])):
                if place not in refusals[number]:
                    due[number] = place
                    return
            outcomes[number] = base.AnyOf(None, 0, refusals[number])

        while due:
            # 1. Pass over the batches of providers that are full.
            for number, full in zip([*due], self._find_full([
                    (requests[number], first)
                    for number, first in due.items()])):
                refuse(number, full)
            # 2. Try to claim the others.
            due = {number: place for number, place in due.items()
                   if _is_plain(requests[number][place])}
            for (number, place), outcome in zip([*due.items()], self._try_each(
                    [requests[number][place]
                     for number, place in due.items()])):
                if isinstance(outcome, exception.ClaimRefused):
                    refuse(number, {place: outcome})
                    continue
                if isinstance(outcome, int):
                    outcomes[number] = base.AnyOf(place, outcome, {
                        before: refusal for before, refusal
                        in refusals[number].items() if before < place})
                del due[number]
        return outcomes

    def _find_full(
        self, requests: Sequence[tuple[Sequence[Sequence[base.Claim]], int]]
    ) -> list[dict[int, exception.ClaimRefused]]:
        """Return the refusals of batches whose provider is full.

        That takes two reads, instead of intents that are deleted again. If
        the provider of the first batch of a request is not known to be full,
        nothing is read; a contended one with alternatives is read before.

        :param requests: alternatives for the same consumers, and the position
            of the first batch to look at
        :returns: by position; batches of several providers are left out
        """
        refusals: list[dict[int, exception.ClaimRefused]] = [
            {} for _ in requests]
        # The known counters are most likely outdated.
        self._ledger.read_contended([
            batches[first][0].provider for batches, first in requests
            if len(batches) > 1 and batches[first]])
        for _ in range(_EARLY_MAX):
            probably_full = {
                (number, place): full
                for number, (batches, first) in enumerate(requests)
                if first in refusals[number]
                or self._known_full(batches[first])
                for place in range(first, len(batches))
                if place not in refusals[number]
                and (full := self._known_full(batches[place]))}
            if not probably_full:
                break
            # 1. Consumers that hold claims, or may, are not refused here.
            names = {number: [
                claim.consumer for claim in requests[number][0][0]]
                for number, _ in probably_full}
            holding = self._session.read_all(
                name for consumers in names.values() for name in consumers)
            # 2. Equal counters, which include a generation, show that the
            #    provider was full when the consumers held nothing.
            figures = self._ledger.read(
                known.provider for known, _ in probably_full.values())
            for (number, place), (known, refusal) in probably_full.items():
                if any(holding[name] for name in names[number]):
                    refusals[number] = {}
                elif figures[known.provider] == known:
                    refusals[number][place] = refusal
        return refusals

    def _known_full(
        self, claims: Sequence[base.Claim]
    ) -> tuple[requests.Figures, exception.ClaimRefused] | None:
        """Return the last known counters of a full provider; None if not."""
        if not claims or _is_several(claims):
            return None
        known = self._ledger.known(claims[0].provider)
        if known is None or known.open or not _is_plain(claims):
            return None
        refusal = _refusal(claims, {known.provider: known}, {})
        return None if refusal is None else (known, refusal)

    def _try(self, claims: Sequence[base.Claim]) -> int:
        if not _is_several(claims):
            [outcome] = self._try_each([claims])
            if isinstance(outcome, Exception):
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

    def _try_each(
        self, batches: Sequence[Sequence[base.Claim]]
    ) -> list[int | Exception]:
        """Try to claim batches of one provider each.

        :returns: of each, the number of new claims, or the error. That of a
            batch to try again is :class:`_Busy`
        """
        # 1. Insert the intents of the consumers that hold nothing.
        intents = [_intents(claims, self._session.name())
                   for claims in batches]
        inserted: dict[str, _Record] = {}
        errors = self._insert_some(
            [intent for batch in intents for intent in batch.values()],
            inserted)
        written = [[inserted[name] for name in batch if name in inserted]
                   for batch in intents]
        outcomes: list[int | Exception] = [
            next((errors[name] for name in batch if name in errors),
                 len(records)) for batch, records in zip(intents, written)]
        # 2. Write the rows of the providers, all of them at a time. That
        #    decides.
        entries = {number: _entries(records)[0]
                   for number, records in enumerate(written)
                   if records and not isinstance(outcomes[number], Exception)}
        if entries:
            self._ledger.do([*entries.values()])
        for number, entry in entries.items():
            outcome = entry.outcome
            if outcome is _Outcome.UNKNOWN:
                outcome = self._outcome_of(entry)
            if outcome is not _Outcome.DONE:
                outcomes[number] = _Busy()
        # 3. Otherwise delete the intents, and find the refusals.
        self._delete([record for number, records in enumerate(written)
                      if isinstance(outcomes[number], Exception)
                      for record in records])
        for number, entry in entries.items():
            if entry.outcome is _Outcome.REFUSED:
                outcomes[number] = self._final_refusal(
                    [claim for claim in batches[number]
                     if claim.consumer in inserted],
                    {entry.provider: entry.figures}) or _Busy()
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
        inserted: dict[str, _Record] = {}
        names = list(intents)
        # Members refer to the lead's row, so it is inserted first. The lead
        # is the first consumer that holds nothing.
        for number, name in enumerate(names):
            errors = self._insert_some([intents[name].replaced(
                records.TAKING, lead=name,
                members=tuple(names[number + 1:]))], inserted)
            if name in inserted:
                errors = self._insert_some([
                    intents[member].replaced(records.TAKING, lead=name)
                    for member in names[number + 1:]], inserted)
            for error in errors.values():
                self._delete([*inserted.values()])
                raise error
            if inserted:
                break
        return inserted

    def _insert_some(
        self, intents: Sequence[_Record], inserted: dict[str, _Record]
    ) -> dict[str, Exception]:
        """Insert intents; return the errors of the others by consumer.

        :param inserted: gets the intents that are inserted
        """
        found = self._session.write_all([(None, each) for each in intents])
        existing = []
        for intent, record in zip(intents, found):
            if record is None:
                existing.append(intent)
            else:
                inserted[intent.consumer] = record
        states = self._recovery.states(
            intent.consumer for intent in existing)
        errors: dict[str, Exception] = {}
        for intent in existing:
            name, state = intent.consumer, states[intent.consumer]
            if not state.decided or state.holding is None:
                errors[name] = _Busy(name)
            elif state.holding.claims != intent.holding.claims:
                errors[name] = exception.ClaimConflict(consumer=name)
        return errors

    def _delete(self, intents: Sequence[_Record]) -> None:
        """Delete intents for which no provider has a row."""
        # The lead goes last, as the members' rows refer to it.
        self._session.write_all([
            (record, None) for record in intents
            if record.lead != record.consumer])
        self._session.write_all([
            (record, None) for record in intents
            if record.lead == record.consumer])

    # Providers.

    def _outcome_of(self, entry: Entry) -> _Outcome:
        """Return whether a change was made; afterwards it cannot be made.

        All rows of an entry are written in one step, so one tells for all.
        """
        row = entry.inserted[0]
        found = self._session.ask(requests.Fence(
            entry.provider, row.consumer, row.attempt))
        return _Outcome.DONE if found == row else _Outcome.GONE

    def _decide(self, intents: Sequence[_Record]) -> bool:
        """Set a batch of several providers to HELD.

        :returns: False if another client rolled the batch back
        """
        [lead] = [record for record in intents
                  if record.lead == record.consumer]
        if len(intents) == 1:
            return self._session.write(lead, held(lead)) is not None
        # The lead keeps its list of members until they are HELD, too.
        decided = self._session.write(lead, lead.replaced(
            records.HELD, lead=''))
        if decided is None:
            return False
        self._session.write_all([
            (record, held(record)) for record in intents
            if record is not lead])
        self._session.write(decided, held(decided))
        return True

    def _undo(
        self, intents: Sequence[_Record], entries: Sequence[Entry]
    ) -> None:
        """Delete the rows of an attempt at all providers, and the intents."""
        deletions = [Entry(entry.provider, deleted=entry.inserted)
                     for entry in entries if entry.outcome is _Outcome.DONE]
        self._ledger.do(deletions)
        uncertain = {
            row.consumer for entry in deletions for row in entry.deleted
            if entry.outcome is not _Outcome.DONE}
        uncertain |= {row.consumer for entry in entries
                      if entry.outcome is _Outcome.UNKNOWN
                      for row in entry.inserted}
        for record in intents:
            if record.consumer in uncertain:
                self._recovery.delete_claims(
                    record.consumer, record.holding, fences=True)
        self._delete(intents)

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
        # 2. The batch fits by now.
        if _refusal(concerned, figures, {}) is None:
            return None
        # 3. It does not fit even if all undecided claims are rolled back.
        refusal = _refusal(concerned, figures, undecided)
        if refusal is None:
            # 4. Resolve one undecided claim of each provider.
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


class Release:
    """Releases consumers, each independently of the others."""

    def __init__(
        self, session: Session, ledger: Ledger, recovery: ConsumerRecovery
    ) -> None:
        self._session = session
        self._ledger = ledger
        self._recovery = recovery

    def release(self, consumers: Iterable[str]) -> None:
        """Release consumers; see :meth:`.base.ClaimStore.release`."""
        names = list(consumers)
        with self._session.announced(names):
            for _ in self._session.attempts():
                if self._release_all(names):
                    return
            self._session.unreachable(CONTENDED)

    def _release_all(self, consumers: Sequence[str]) -> bool:
        """Release consumers; return False if one may hold claims again.

        A transfer may have moved claims to a consumer that was released first.
        """
        # 1. Mark the rows of all consumers that no operation is working on.
        found = self._session.read_all(consumers)
        plain = [record for record in found.values()
                 if record is not None and _is_unlinked(record)]
        written = self._session.write_all([
            (record, _marked(record)) for record in plain])
        marked = [record for record in written if record is not None]
        # 2. Delete their claims, in one request of each provider.
        released = self._delete_claims(marked)
        # 3. Delete the rows.
        self._session.write_all([(record, None) for record in released])
        # 4. Release the remaining consumers one by one. Rows that cannot be
        #    read keep no other consumer.
        done = {record.consumer for record in released}
        remaining = [consumer for consumer, record in found.items()
                     if record is not None and consumer not in done]
        error: exception.ClaimStoreFailed | None = None
        for consumer in remaining:
            try:
                self._release(consumer)
            except exception.ClaimStoreFailed as exc:
                error = exc
        if error is not None:
            raise error
        # 5. Look again if another operation was working on one of them.
        return not remaining or len(consumers) == 1 or not any(
            self._session.read_all(consumers).values())

    def _delete_claims(
        self, marked: Sequence[_Record]
    ) -> list[_Record]:
        """Return the records without claims at any provider."""
        by_provider: dict[str, list[requests.ClaimRow]] = {}
        for record in marked:
            for provider, row in record.holding.rows(record.consumer).items():
                by_provider.setdefault(provider, []).append(row)
        entries = [
            Entry(provider, deleted=rows[start:start + ROWS_MAX])
            for provider, rows in sorted(by_provider.items())
            for start in range(0, len(rows), ROWS_MAX)]
        if entries:
            self._ledger.do(entries)
        incomplete = {
            row.consumer for entry in entries for row in entry.deleted
            if entry.outcome is not _Outcome.DONE}
        return [record for record in marked
                if record.consumer not in incomplete]

    def _release(self, consumer: str) -> None:
        """Release one consumer after ending the operation in progress."""
        for _ in self._session.attempts():
            record = self._recovery.resolve(consumer, wait=False).record
            if record is None:
                return
            marked = self._session.write(record, _marked(record))
            if marked is not None:
                self._recovery.undo(marked)
                return
        self._session.unreachable(CONTENDED)


class Transfer:
    """Transfers the claims of one consumer to another.

    The rows of both consumers refer to each other before the source's row is
    written once more and decides for both.
    """

    def __init__(
        self, session: Session, recovery: ConsumerRecovery
    ) -> None:
        self._session = session
        self._recovery = recovery

    def transfer(self, source: str, target: str) -> bool:
        """Transfer claims; see :meth:`.base.ClaimStore.transfer`."""
        with self._session.announced([source, target]):
            for _ in self._session.attempts():
                record = self._recovery.resolve(source).record
                if record is None:
                    return False
                before = self._recovery.resolve(target).record
                if self._try(record, target, before):
                    return True
            self._session.unreachable(CONTENDED)

    def _try(
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


def _is_unlinked(record: _Record) -> bool:
    """Return whether a consumer's row refers to no other consumer."""
    return not record.members and not record.lead and (
        record.state in (records.HELD, records.TAKING))


def _marked(record: _Record) -> _Record:
    """Return a row with which the release of a consumer begins."""
    return record.replaced(
        records.GIVING if record.state == records.HELD
        else records.DROPPING)
