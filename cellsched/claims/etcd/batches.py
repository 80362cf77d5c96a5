# SPDX-License-Identifier: Apache-2.0
"""Batches that are too large for one transaction.

1. One transaction writes the batch as pending, with its list of consumers.
2. Several transactions write parts of it. Their records are marked with the
   id of the batch. The amounts count as used, but the consumers do not hold
   the claims yet.
3. One change of one key commits the batch: all consumers hold their claims.
4. The marks are removed, and then the batch.

Each part is written on the condition that the batch is still pending. A
client that finds a pending batch without progress sets it to aborted, after
which no more parts are written, and removes the marked records. Any client
can complete a committed batch.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import json

from oslo_log import log

from cellsched.claims import base
from cellsched.claims.etcd.calls import Calls
from cellsched.claims.etcd.calls import Conflict
from cellsched.claims.etcd.calls import PendingBatch
from cellsched.claims.etcd import protocol
from cellsched.claims.etcd import records
from cellsched.claims.etcd import transactions
from cellsched.claims import validation
from cellsched.conditions import Conditions
from cellsched import exception

LOG = log.getLogger(__name__)

#: A change of a marked consumer.
_Step = Callable[[transactions.Draft, str], None]


class Aborted(Exception):
    """The batch was aborted; the claim begins again with another id."""


class Batches:
    """Claims large batches, and resolves interrupted ones.

    :param timeout_s: seconds after which a pending batch is aborted
    """

    def __init__(self, calls: Calls, timeout_s: float) -> None:
        self._calls = calls
        self._names = calls.names
        self._timeout_s = timeout_s
        #: By id, when this process found a pending batch first.
        self._pending_since: dict[str, float] = {}
        self._conditions = Conditions(LOG, calls.clock.monotonic)

    # Batches of this process.

    def claim(self, claims: Collection[base.Claim]) -> int:
        """Claim a batch; see :meth:`.base.ClaimStore.claim`."""
        age = 0

        def attempt() -> int:
            nonlocal age
            new = self._outstanding(claims)
            if not new:
                return 0
            requested = transactions.by_consumer(new)
            name, batch = self._begin(requested, age)
            age = batch.age
            try:
                for part in transactions.parts(requested, self._calls.ops_max):
                    self._take(part, new, name, batch)
                self._commit(name, batch)
            except Aborted:
                self.settle([name], abort=True)
                raise Conflict from None
            except (exception.ClaimRefused, exception.DatabaseError):
                self.settle([name], abort=True)
                raise
            self.settle([name])
            return len(new)

        return self._calls.repeat(attempt)

    def _outstanding(self, claims: Collection[base.Claim]) -> list[base.Claim]:
        """Return the claims of consumers that hold none yet."""
        held: dict[str, list[base.Claim]] = {}
        consumers = [*dict.fromkeys(claim.consumer for claim in claims)]
        for chunk in transactions.chunks(consumers, self._calls.ops_max):
            view = self._calls.read(transactions.Scope(consumers=chunk))
            view.check(transactions.Scope(consumers=chunk))
            if marks := view.marks():
                self.settle(marks)
                raise PendingBatch
            held.update(view.held())
        return validation.outstanding(claims, held)

    def _begin(
        self, requested: Collection[str], age: int
    ) -> tuple[str, records.BatchState]:
        """Return the id and the state of a new pending batch."""
        work = json.dumps([*requested], separators=(',', ':')).encode()
        if len(work) > protocol.BYTES_MAX:
            raise exception.InvalidField(
                where='batch', field='claims',
                problem='the ids of the consumers are too long',
                expected=f'at most {protocol.BYTES_MAX} bytes in total')
        # Without an answer, the next attempt uses another id, and this batch
        # is aborted by its timeout.
        name = f'{self._calls.random.getrandbits(64):016x}'
        key = self._names.batch(name)
        batch = records.BatchState(0, records.PENDING, age)
        outcome = self._calls.transact(protocol.Transaction(
            (protocol.Compare(key, 0),),
            (protocol.Put(key, batch.value()),
             protocol.Put(self._names.work(name), work))))
        if not outcome.succeeded:
            raise Conflict
        return name, records.BatchState(
            outcome.revision, records.PENDING, age or outcome.revision)

    def _take(
        self, part: Mapping[str, records.StoredConsumer],
        claims: Collection[base.Claim], name: str, batch: records.BatchState,
    ) -> None:
        """Write a part of a pending batch."""
        scope = transactions.Scope.held_by(part)
        own = [claim for claim in claims if claim.consumer in part]
        seen = None if scope.groups else self._calls.seen(scope.providers)
        view: transactions.View | None = None
        if seen is not None:
            view = transactions.View(is_fresh=False)
            view.providers = seen
            view.consumers = dict.fromkeys(part, records.StoredConsumer())
        guard = protocol.Compare(self._names.batch(name), batch.revision)

        def attempt() -> None:
            nonlocal view
            current, view = view or self._calls.read(scope), None
            current.check(scope)
            if current.is_fresh and self._is_taken(current, name, batch):
                return
            error = refusal(own, current)
            if error is not None and not current.is_fresh:
                current = self._calls.read(scope)
                if self._is_taken(current, name, batch):
                    return
                error = refusal(own, current)
            if error is not None:
                blocking = current.all_marks(scope) - {name}
                if not blocking:
                    raise error
                self.settle(blocking, age=batch.age)
                raise PendingBatch
            draft = transactions.Draft(current, guard)
            for consumer, it in transactions.by_consumer(own, name).items():
                draft.take(consumer, it)
            view = self._calls.change(draft, scope)
            if view is not None:
                raise Conflict

        self._calls.repeat(attempt)

    @staticmethod
    def _is_taken(
        view: transactions.View, name: str, batch: records.BatchState
    ) -> bool:
        """Return whether a part was written by an earlier attempt.

        :raises Aborted: the batch was aborted
        """
        if view.batches.get(name) != batch:
            raise Aborted
        present = view.present()
        if not present:
            return False
        if view.marks() == {name} and len(present) == len(view.consumers):
            return True
        raise Aborted

    def _commit(self, name: str, batch: records.BatchState) -> None:
        key = self._names.batch(name)

        def attempt() -> None:
            outcome = self._calls.transact(protocol.Transaction(
                (protocol.Compare(key, batch.revision),),
                (protocol.Put(key, records.BatchState(
                    0, records.COMMITTED, batch.age).value()),),
                (protocol.Get(key),)))
            if not outcome.succeeded and (
                    self._state(outcome.found[0]) != records.COMMITTED):
                raise Aborted

        self._calls.repeat(attempt)

    # Batches of any process.

    def settle(
        self, names: Iterable[str], age: int | None = None,
        abort: bool = False,
    ) -> None:
        """Complete committed batches, and remove aborted ones.

        :param age: age of the batch that is waiting; younger pending batches
            are aborted
        :param abort: whether to abort all pending batches
        :raises cellsched.exception.ClaimStoreFailed: a batch cannot be read
        """
        for name in names:
            key = self._names.batch(name)
            [found] = self._calls.get(protocol.Get(key)).found
            if not found:
                self._pending_since.pop(name, None)
                continue
            batch = records.BatchState.of(found[0])
            records.check([batch])
            if batch.state == records.PENDING:
                if not (abort or self._is_overdue(name) or (
                        age is not None and age < batch.age)):
                    continue
                batch = self._abort(name, batch)
            if batch.revision:
                self._clear(name, batch)

    def notice(self, batches: Mapping[str, records.BatchState]) -> None:
        """Resolve the batches that exceed the timeout.

        A failure is logged, as the caller only reads.
        """
        for name in self._pending_since.keys() - batches.keys():
            self._pending_since.pop(name, None)
        for name, batch in batches.items():
            if batch.unreadable or not self._is_overdue(name):
                continue
            try:
                self.settle([name])
            except exception.DatabaseError as exc:
                self._conditions.replace(
                    {f'Batch {name} of claims is not resolved yet': exc})
                return
        self._conditions.replace({})

    def _is_overdue(self, name: str) -> bool:
        now = self._calls.clock.monotonic()
        since = self._pending_since.setdefault(name, now)
        return now - since >= self._timeout_s

    def _abort(
        self, name: str, batch: records.BatchState
    ) -> records.BatchState:
        """Abort a pending batch; return its state, which is not pending."""
        key = self._names.batch(name)
        revision = batch.revision

        def attempt() -> records.BatchState:
            outcome = self._calls.transact(protocol.Transaction(
                (protocol.Compare(key, revision),),
                (protocol.Put(key, records.BatchState(
                    0, records.ABORTED, batch.age).value()),),
                (protocol.Get(key),)))
            if outcome.succeeded:
                return records.BatchState(outcome.revision, records.ABORTED)
            [found] = outcome.found
            return (records.BatchState.of(found[0]) if found
                    else records.BatchState())

        return self._calls.repeat(attempt)

    def _clear(self, name: str, batch: records.BatchState) -> None:
        """Remove the marks of a batch; of an aborted one, the claims too."""
        step: _Step = (
            transactions.Draft.unmark if batch.state == records.COMMITTED
            else transactions.Draft.give_back)
        work, key = self._names.work(name), self._names.batch(name)
        [found] = self._calls.get(protocol.Get(work)).found
        consumers = records.work_of(found)
        if consumers is None:
            # The list of its consumers is lost; the marks show them.
            consumers = [self._names.name(kv.key) for kv
                         in self._calls.all_of(self._names.consumer)
                         if records.StoredConsumer.of(kv).batch == name]
        self._clear_each(name, consumers, step)
        self._calls.repeat(lambda: self._calls.transact(
            protocol.Transaction(
                (protocol.Compare(key, batch.revision),),
                (protocol.Delete(key), protocol.Delete(work)))))
        self._pending_since.pop(name, None)

    def _clear_each(
        self, name: str, consumers: list[str], step: _Step
    ) -> None:
        for chunk in transactions.chunks(consumers, self._calls.ops_max):
            scope = transactions.Scope(consumers=chunk)

            def attempt(scope: transactions.Scope = scope) -> None:
                view = self._calls.read(scope)
                marked = {each: it for each, it in view.present().items()
                          if it.batch == name}
                for part in transactions.parts(marked, self._calls.ops_max):
                    self._clear_part(part, step)

            self._calls.repeat(attempt)

    def _clear_part(
        self, part: Mapping[str, records.StoredConsumer], step: _Step
    ) -> None:
        scope = transactions.Scope.held_by(part)
        view = known(self._calls, scope)
        view.consumers = dict(part)
        draft = transactions.Draft(view)
        for consumer in part:
            step(draft, consumer)
        other = self._calls.change(draft, scope)
        if other is not None:
            raise Conflict

    @staticmethod
    def _state(found: Collection[protocol.Found]) -> str:
        return next((records.BatchState.of(kv).state for kv in found), '')


def known(calls: Calls, scope: transactions.Scope) -> transactions.View:
    """Return cached providers and current groups.

    Everything is read if a provider is not cached.
    """
    scope = transactions.Scope(scope.providers, (), scope.groups)
    seen = None if scope.groups else calls.seen(scope.providers)
    if seen is None:
        return calls.read(scope)
    view = transactions.View(is_fresh=False)
    view.providers = seen
    return view


def refusal(
    claims: Collection[base.Claim], view: transactions.View
) -> exception.ClaimRefused | None:
    """Return why claims cannot be made, or None if they can.

    :param claims: claims of consumers that hold none
    """
    named = {claim.provider: view.providers[claim.provider]
             for claim in claims}
    return (validation.find_violation(claims, view.members())
            or validation.find_refusal(
                claims, {name: provider.inventory or {}
                         for name, provider in named.items()},
                {name: provider.used for name, provider in named.items()}))
