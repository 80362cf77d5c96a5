# SPDX-License-Identifier: Apache-2.0
"""Batches that are too large for one transaction.

Such a batch is written down as pending, with its consumers. Then it takes
what it wants in parts, which are marked with its id: room is taken at once,
and who holds it is told by nobody yet. That the batch is committed is one
change of one key, and from then on all of it is held. Marks go last.

Each part depends on the batch being pending. So whoever meets one that is not
going on can say that it is aborted, after which nothing more is taken for it,
and give back what was. Anybody can finish one that is committed.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import json

from cellsched.claims import base
from cellsched.claims.etcd.calls import Calls
from cellsched.claims.etcd.calls import Conflict
from cellsched.claims.etcd import protocol
from cellsched.claims.etcd import records
from cellsched.claims.etcd import transactions
from cellsched.claims import validation
from cellsched import exception

#: What is done to a consumer that is marked.
_Step = Callable[[transactions.Draft, str], None]


class Aborted(Exception):
    """The batch cannot go on, and has to begin again under another id."""


class Batches:
    """Takes large batches, and sets right what others left of theirs.

    :param timeout_s: seconds for which a pending batch is waited for
    """

    def __init__(self, calls: Calls, timeout_s: float) -> None:
        self._calls = calls
        self._names = calls.names
        self._timeout_s = timeout_s
        #: When pending batches were met first.
        self._met: dict[str, float] = {}

    # Of one's own.

    def claim(self, claims: Collection[base.Claim]) -> int:
        """Take a batch; see :meth:`.base.ClaimStore.claim`."""
        age = 0

        def attempt() -> int:
            nonlocal age
            new = self._outstanding(claims)
            if not new:
                return 0
            wanted = transactions.by_consumer(new)
            name, batch = self._begin(wanted, age)
            age = batch.age
            try:
                for part in transactions.parts(
                        wanted, self._calls.ops_max):
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

    def _outstanding(
        self, claims: Collection[base.Claim]
    ) -> list[base.Claim]:
        """Return those whose consumers hold nothing yet."""
        held: dict[str, list[base.Claim]] = {}
        consumers = [*dict.fromkeys(claim.consumer for claim in claims)]
        for chunk in transactions.chunks(consumers, self._calls.ops_max):
            view = self._calls.read(transactions.Scope(consumers=chunk))
            if marks := view.marks():
                self.settle(marks)
                raise Conflict
            held.update(view.held())
        return validation.outstanding(claims, held)

    def _begin(
        self, wanted: Collection[str], age: int
    ) -> tuple[str, records.BatchState]:
        """Return the id and the state of a new pending batch."""
        work = json.dumps([*wanted], separators=(',', ':')).encode()
        if len(work) > protocol.BYTES_MAX:
            raise exception.InvalidField(
                where='batch', field='claims',
                expected=f'consumers whose names have at most '
                         f'{protocol.BYTES_MAX} bytes in all')
        # Should no answer come, another attempt takes another id, and this
        # one is a batch that does not go on.
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
        """Take a part for a batch that is pending."""
        scope = transactions.Scope.held_by(part)
        mine = [claim for claim in claims if claim.consumer in part]
        seen = None if scope.groups else self._calls.seen(scope.providers)
        view: transactions.View | None = None
        if seen is not None:
            view = transactions.View(is_fresh=False)
            view.providers = seen
            view.consumers = dict.fromkeys(part, records.StoredConsumer())
        guard = protocol.Compare(self._names.batch(name), batch.revision)

        def attempt() -> None:
            nonlocal view
            told, view = view or self._calls.read(scope), None
            if told.is_fresh and self._is_taken(told, name, batch):
                return
            error = refusal(mine, told)
            if error is not None and not told.is_fresh:
                told = self._calls.read(scope)
                if self._is_taken(told, name, batch):
                    return
                error = refusal(mine, told)
            if error is not None:
                others = told.all_marks() - {name}
                if not others:
                    raise error
                self.settle(others, age=batch.age)
                raise Conflict
            draft = transactions.Draft(told, guard)
            for consumer, it in transactions.by_consumer(mine, name).items():
                draft.take(consumer, it)
            _, view = self._calls.change(draft, scope)
            if view is not None:
                raise Conflict

        self._calls.repeat(attempt)

    @staticmethod
    def _is_taken(
        view: transactions.View, name: str, batch: records.BatchState
    ) -> bool:
        """Return whether a part is taken already.

        :raises Aborted: it cannot be
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

    # Of anybody.

    def settle(
        self, names: Iterable[str], age: int | None = None,
        abort: bool = False,
    ) -> None:
        """Set right what is left of batches, as far as they are over.

        :param age: of the batch that they are in the way of; those that are
            younger are aborted
        :param abort: whether all that are pending are
        """
        for name in names:
            key = self._names.batch(name)
            [found] = self._calls.get(protocol.Get(key)).found
            if not found:
                self._met.pop(name, None)
                continue
            batch = records.BatchState.of(found[0])
            if batch.state == records.PENDING:
                if not (abort or self._is_overdue(name) or (
                        age is not None and age < batch.age)):
                    continue
                batch = self._abort(name, batch)
            if batch.revision:
                self._clear(name, batch)

    def notice(self, batches: Mapping[str, records.BatchState]) -> None:
        """Settle those that have been met before and do not go on."""
        for name in self._met.keys() - batches.keys():
            self._met.pop(name, None)
        overdue = [name for name in batches if self._is_overdue(name)]
        if overdue:
            self.settle(overdue)

    def _is_overdue(self, name: str) -> bool:
        now = self._calls.clock.monotonic()
        return now - self._met.setdefault(name, now) >= self._timeout_s

    def _abort(
        self, name: str, batch: records.BatchState
    ) -> records.BatchState:
        """Return what became of a pending batch; it is not pending now."""
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
        """Remove marks, and what they mark if the batch was aborted."""
        step: _Step = (
            transactions.Draft.unmark if batch.state == records.COMMITTED
            else transactions.Draft.give_back)
        work, key = self._names.work(name), self._names.batch(name)
        [found] = self._calls.get(protocol.Get(work)).found
        if found:
            self._clear_each(name, json.loads(found[0].value), step)
        self._calls.repeat(lambda: self._calls.transact(
            protocol.Transaction(
                (protocol.Compare(key, batch.revision),),
                (protocol.Delete(key), protocol.Delete(work)))))
        self._met.pop(name, None)

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
        _, other = self._calls.change(draft, scope)
        if other is not None:
            raise Conflict

    @staticmethod
    def _state(found: Collection[protocol.Found]) -> str:
        return next((records.BatchState.of(kv).state for kv in found), '')


def known(
    calls: Calls, scope: transactions.Scope
) -> transactions.View:
    """Return providers as they were seen last, and groups as they are.

    They are read where one of them was never seen.
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
) -> exception.CellschedException | None:
    """Return why claims cannot be taken, or None if they can.

    They are all of consumers that hold nothing.
    """
    return (validation.find_violation(claims, view.members())
            or validation.find_refusal(
                claims, view.inventories(),
                {name: provider.used
                 for name, provider in view.providers.items()}))
