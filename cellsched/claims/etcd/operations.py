# SPDX-License-Identifier: Apache-2.0
"""Claims, releases and transfers of concurrent calls, in one transaction.

An operation plans its change on a draft, after the operations before it. The
transaction has the condition that all records which the plan has read are
unchanged. It succeeds or conflicts as a whole.
"""

import abc
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
from typing import Any

from cellsched import batching
from cellsched.claims import base
from cellsched.claims.coordination import ContentionLock
from cellsched.claims.etcd import records
from cellsched.claims.etcd import transactions
from cellsched.claims.etcd.transactions import Conflict
from cellsched.claims import remote
from cellsched.claims import validation
from cellsched import exception


class Operation(abc.ABC):
    """A change that depends on some records.

    :ivar keys: the keys of the records
    :ivar assumed: the most likely values of the consumers among them
    :ivar outcome: result, or an error; None while it is not known
    :ivar is_repeated: whether an earlier transaction may have made the change
    """

    keys: Collection[records.Key]
    assumed: Mapping[records.Key, records.StoredConsumer]
    outcome: Any = None
    is_repeated = False

    @abc.abstractmethod
    def plan(self, draft: transactions.Draft) -> Any:
        """Add the change to a draft, and return the outcome.

        :raises Exception: the outcome is this error; the draft is unchanged
        """

    def result(self) -> Any:
        """Return the outcome.

        :raises Exception: the outcome is this error
        """
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Claim(Operation):
    """A claim of the first of several batches that fits.

    An invalid request has its error as the outcome from the start.

    :param batches: alternatives for the same consumers
    """

    def __init__(
        self, store: transactions.Records,
        batches: Sequence[Sequence[base.Claim]],
    ) -> None:
        self._batches = batches
        self._providers_max = store.providers_max
        self.keys: dict[records.Key, None] = {}
        self.assumed: dict[records.Key, records.StoredConsumer] = {}
        self._groups: dict[str, None] = {}
        try:
            self._add_keys(store.batch_max)
        except exception.InvalidField as exc:
            self.outcome = exc

    def _add_keys(self, keys_max: int) -> None:
        validation.check_claims(self._batches[0])
        self._check_providers(self._batches[0])
        for batch in self._batches[1:]:
            for claim in batch:
                validation.check_provider(claim)
        for claim in itertools.chain.from_iterable(self._batches):
            self.keys[records.PROVIDER, claim.provider] = None
            key = records.CONSUMER, claim.consumer
            self.assumed[key] = records.StoredConsumer()
            if claim.group is not None:
                self._groups[claim.group.group] = None
                self.keys[records.GROUP, claim.group.group] = None
        self.keys |= dict.fromkeys(self.assumed)
        if len(self.keys) > keys_max:
            raise exception.InvalidField(
                where='batch', field='claims',
                problem=f'there are {len(self.keys)} consumers, hosts and '
                        'server groups',
                expected=f'at most {keys_max}')

    def plan(self, draft: transactions.Draft) -> base.AnyOf:
        held: dict[str, list[base.Claim]] = {}
        for _, name in self.assumed:
            consumer = draft.consumer(name)
            if consumer.amounts:
                held[name] = consumer.claims(name)
        outcome, new = validation.choose(
            self._batches, held, lambda claims: self._find(claims, draft))
        for name, claims in validation.by_consumer(new).items():
            draft.claim(name, records.StoredConsumer.claiming(claims))
        return outcome

    def _check_providers(self, claims: Sequence[base.Claim]) -> None:
        for consumer, each in validation.by_consumer(claims).items():
            if len(each) > self._providers_max:
                raise exception.InvalidField(
                    where=f'claim of {consumer!r:.80}', field='provider',
                    expected=f'at most {self._providers_max} providers for '
                             'one consumer')

    def _find(
        self, claims: Sequence[base.Claim], draft: transactions.Draft
    ) -> exception.ClaimRefused | None:
        """Return why new claims are refused; None if they fit."""
        self._check_providers(claims)
        inventories, used = {}, {}
        for claim in claims:
            provider = draft.provider(claim.provider)
            inventories[claim.provider] = provider.inventory or {}
            used[claim.provider] = provider.used
        if self._groups:
            groups = {name: draft.group(name) for name in self._groups}
            records.check(groups.values())
            violation = validation.find_violation(claims, [
                (name, consumer, member, host)
                for name, group in groups.items()
                for consumer, (host, member) in group.members.items()])
            if violation is not None:
                return violation
        return validation.find_refusal(claims, inventories, used)


class Release(Operation):
    """A release of all claims of some consumers.

    :param consumers: as they were read. If any has changed, the outcome is a
        conflict, as its claims may belong to another one now
    """

    def __init__(
        self, consumers: Mapping[str, records.StoredConsumer]
    ) -> None:
        self.assumed = {(records.CONSUMER, name): consumer
                        for name, consumer in consumers.items()}
        self.keys = dict.fromkeys(
            key for name, consumer in consumers.items()
            for key in consumer.keys(name))

    def plan(self, draft: transactions.Draft) -> bool:
        for (_, name), expected in self.assumed.items():
            if draft.consumer(name) != expected:
                raise Conflict
        for _, name in self.assumed:
            draft.release(name)
        return True


class Transfer(Release):
    """A transfer of the claims of one consumer to another.

    :param consumers: both, as they were read, in this order
    """

    def plan(self, draft: transactions.Draft) -> bool:
        (_, source_name), (_, target_name) = self.assumed
        source = draft.consumer(source_name)
        target = draft.consumer(target_name)
        moved, replaced = self.assumed.values()
        if self.is_repeated and not source.amounts and (
                dataclasses.replace(target, revision=moved.revision) == moved):
            return True
        if (source, target) != (moved, replaced):
            raise Conflict
        if target.amounts:
            draft.release(target_name)
        draft.transfer(source_name, target_name)
        return True


class OperationQueue:
    """Writes the operations of concurrent calls together.

    One thread at a time writes: two transactions of a process on the same
    providers would conflict. The operations that arrive meanwhile are the next
    transaction.

    :param locks: of contended providers between processes
    """

    def __init__(
        self, store: transactions.Records, locks: ContentionLock
    ) -> None:
        self._store = store
        self._locks = locks
        self._group_commit = batching.GroupCommit(
            self._write, make_lock=store.clock.lock,
            turn_s=store.retry_timeout_s)

    def do(self, operations: Sequence[Operation]) -> None:
        """Set the outcomes of operations; may block.

        :raises cellsched.exception.DatabaseUnreachable: the transactions
            before did not end in time
        """
        try:
            self._group_commit.do(operations)
        except exception.ServiceBusy:
            raise self._store.unreachable(
                'other calls of this process wait for an answer') from None

    def _write(self, calls: Sequence[Sequence[Operation]]) -> None:
        """Write the operations of some calls."""
        while open_ := [each for call in calls for each in call
                        if each.outcome is None]:
            try:
                if len(open_[0].keys) > self._store.keys_max:
                    self._write_large(open_[0])
                else:
                    self._write_some(open_)
            except exception.DatabaseUnreachable as exc:
                # The operations of other calls have no outcome either.
                for each in open_:
                    if each.outcome is None:
                        each.outcome = exception.copy_of(exc)

    def _write_some(self, operations: Sequence[Operation]) -> None:
        """Write as many operations as one transaction may have."""
        # A later, smaller operation does not overtake a large one.
        keys: dict[records.Key, None] = {}
        fitting = []
        for each in operations:
            more = keys | dict.fromkeys(each.keys)
            if len(more) > self._store.keys_max:
                break
            keys = more
            fitting.append(each)
        self._write_together(fitting, keys)

    def _write_together(
        self, operations: Sequence[Operation],
        keys: Collection[records.Key],
    ) -> None:
        providers = [name for kind, name in keys if kind == records.PROVIDER]
        # A failed transaction waits for the disk, a read does not.
        is_outdated = any(map(self._locks.is_contended, providers))
        current: transactions.View | None = None

        def attempt() -> None:
            nonlocal current
            # 1. Use cached providers, and after a conflict the values that the
            #    failed transaction returned. If the outcome of the last
            #    attempt is unknown and it was executed, this one conflicts.
            view = None
            if current is not None or not is_outdated:
                view = self._cached(operations, keys, current)
            view = view or self._store.read(keys)
            # 2. Plan. Refusals by cached values alone are not final.
            draft, outcomes = self._plan(view, operations)
            if not draft.written and not view.is_fresh:
                view = self._store.read(keys)
                draft, outcomes = self._plan(view, operations)
            # 3. Write, unless all is refused. An earlier transaction may still
            #    be executed, if others have released the same consumers. So
            #    change the providers then, on which it depends, too.
            if not draft.written and any(
                    each.is_repeated for each in operations):
                draft.renew_providers()
            if draft.written:
                current = self._change(draft, operations)
                if current is not None:
                    raise Conflict
            for each, outcome in zip(operations, outcomes):
                each.outcome = outcome

        try:
            attempt()
        except (Conflict, remote.NotSent, remote.OutcomeUnknown):
            # A lock takes longer than most writes, so that only a write that
            # was disturbed waits for one.
            with self._locks.held(providers):
                self._store.repeat(attempt)

    def _change(
        self, draft: transactions.Draft, operations: Iterable[Operation]
    ) -> transactions.View | None:
        """Write a draft; return the current records after a conflict."""
        try:
            current = self._store.change(draft)
        except remote.OutcomeUnknown:
            for each in operations:
                each.is_repeated = True
            raise
        if current is not None:
            self._locks.note_conflict([
                key[1] for key, each in current.records.items()
                if key[0] == records.PROVIDER
                and each.revision != draft.read[key].revision])
        return current

    def _plan(
        self, view: transactions.View, operations: Iterable[Operation]
    ) -> tuple[transactions.Draft, list[Any]]:
        draft, outcomes = transactions.Draft(view), []
        for each in operations:
            try:
                outcomes.append(each.plan(draft))
            except (Conflict, exception.CellschedException) as exc:
                outcomes.append(exc)
        return draft, outcomes

    def _cached(
        self, operations: Iterable[Operation], keys: Iterable[records.Key],
        current: transactions.View | None = None,
    ) -> transactions.View | None:
        """Return records by cached providers; None if one is not cached.

        :param current: records that were just read
        """
        seen = self._store.seen(keys)
        if seen is None:
            return None
        view = transactions.View(seen, is_fresh=False)
        for each in operations:
            view.records.update(each.assumed)
        if current is not None:
            view.records.update(current.records)
        return view

    def _write_large(self, operation: Operation) -> None:
        """Write an operation with too many records to compare each of them.

        It holds the store, so that the transactions of other clients conflict.
        Its own transaction has the condition that no provider has changed
        since the records were read, in case the hold was deleted.
        """
        value = f'{self._store.random.getrandbits(64):016x}'.encode()

        def attempt() -> bool:
            self._store.hold(value)
            draft, [planned] = self._plan(
                self._store.read(operation.keys), [operation])
            if draft.written and self._store.change(draft, True):
                raise Conflict
            operation.outcome = planned
            return not draft.written

        try:
            is_held = self._store.repeat(attempt)
        except Exception:
            self._store.end_hold(value)
            raise
        if is_held:
            self._store.end_hold(value)
