# SPDX-License-Identifier: Apache-2.0
"""A model of etcd, as far as the claim store asks for it."""

from collections.abc import Iterator
from typing import Any

from cellsched.claims.etcd import protocol
from cellsched.claims import remote
from cellsched.simulator.servers import base

#: Bytes of a request that are too many, without what gRPC adds.
_BYTES_MAX = 1536 * 1024

#: gRPC's codes of a request that makes no sense, and of missing space.
_INVALID, _EXHAUSTED = 3, 8


class EtcdModel(base.ServerModel):
    """A cluster, which answers one request after the other.

    :param ops_max: operations that it takes in a transaction
    """

    def __init__(self, ops_max: int = protocol.OPS_MAX) -> None:
        #: The version that its members run.
        self.version = '3.4.23'
        self.ops_max = ops_max
        self.cluster = '1'
        self.revision = 1
        #: Up to this revision only the last change of each key is known.
        self.compacted = 0
        #: Whether the alarm NOSPACE is raised: only deletions are accepted.
        self.is_full = False
        self._keys: dict[bytes, protocol.Found] = {}
        self._written: list[protocol.Found] = []

    def answer(self, request: protocol.Request) -> protocol.Answer:
        """Execute a request atomically, and return the answer.

        :raises cellsched.claims.remote.OutcomeUnknown: a watch has no change,
            so that a server would not answer
        """
        if isinstance(request, protocol.Transaction):
            return self._transact(request)
        if isinstance(request, protocol.MemberStatus):
            return protocol.Member(self.version)
        return self._changes(request)

    def cost(self, request: protocol.Request) -> tuple[bool, int]:
        ops = getattr(request, 'success', ())
        if all(isinstance(op, protocol.Get) for op in ops):
            return False, max(len(ops) - 1, 0)
        # Each claim writes the key of its consumer.
        claims = sum(b'/c/' in getattr(op, 'key', b'') for op in ops)
        return True, max(claims - 1, 0)

    def is_conflict(self, request: Any, answer: Any) -> bool:
        return not getattr(answer, 'succeeded', True)

    def compact(self) -> None:
        """Remove all but the current values."""
        self.compacted = self.revision
        self._written = []

    def read(self, key: bytes, end: bytes = b'') -> list[protocol.Found]:
        """Return one key, or the sorted keys of a range."""
        if not end:
            return [self._keys[key]] if key in self._keys else []
        return [self._keys[each] for each in sorted(self._keys)
                if key <= each < end]

    def _transact(
        self, request: protocol.Transaction
    ) -> protocol.TransactionOutcome | protocol.Refusal:
        if _count(request) > self.ops_max:
            return protocol.Refusal(
                _INVALID, 'etcdserver: too many operations in txn request')
        if not _is_unique(request):
            return protocol.Refusal(
                _INVALID, 'etcdserver: duplicate key given in txn request')
        if sum(map(_size, _ops(request))) > _BYTES_MAX:
            return protocol.Refusal(
                _INVALID, 'etcdserver: request is too large')
        if self.is_full and any(
                isinstance(op, protocol.Put) for op in _ops(request)):
            return protocol.Refusal(
                _EXHAUSTED, 'etcdserver: mvcc: database space exceeded')
        return self._execute(request, self.revision + 1)

    def _execute(
        self, request: protocol.Transaction, after: int
    ) -> protocol.TransactionOutcome:
        """Execute a transaction; writes get the revision ``after``."""
        succeeded = all(map(self._holds, request.compares))
        found = []
        for op in request.success if succeeded else request.failure:
            if isinstance(op, protocol.Transaction):
                self._execute(op, after)
            elif isinstance(op, protocol.Get):
                limit = op.limit or None
                found.append(tuple(self.read(op.key, op.end)[:limit]))
            elif isinstance(op, protocol.Put):
                self.revision = after
                self._keys[op.key] = protocol.Found(op.key, op.value, after)
                self._written.append(self._keys[op.key])
            elif self._keys.pop(op.key, None) is not None:
                self.revision = after
        return protocol.TransactionOutcome(
            succeeded, self.cluster, self.revision, tuple(found))

    def _holds(self, compare: protocol.Compare) -> bool:
        found = self._keys.get(compare.key)
        if compare.value is not None:
            return found is not None and found.value == compare.value
        return compare.revision == (found.revision if found else 0)

    def _changes(
        self, request: protocol.Changes
    ) -> protocol.ChangesAnswer | protocol.CompactedAnswer:
        if request.after + 1 < self.compacted:
            return protocol.CompactedAnswer(self.compacted)
        start = len(self._written)
        while start and self._written[start - 1].revision > request.after:
            start -= 1
        written = tuple(
            kv for kv in self._written[start:]
            if request.key <= kv.key < request.end)
        if not written or written[-1].revision < request.until:
            raise remote.OutcomeUnknown('nothing of the kind was written')
        return protocol.ChangesAnswer(written[-1].revision, written)


def _ops(request: protocol.Transaction) -> Iterator[protocol.Op]:
    """Yield the operations of all branches, also of nested transactions."""
    for op in (*request.success, *request.failure):
        if isinstance(op, protocol.Transaction):
            yield from _ops(op)
        else:
            yield op


def _count(request: protocol.Transaction) -> int:
    """Return the number of operations that the server counts.

    A nested transaction counts in addition to those around it.
    """
    return max(map(len, (request.compares, request.success, request.failure))
               ) + max((_count(op) for op in (
                   *request.success, *request.failure)
                   if isinstance(op, protocol.Transaction)), default=0)


def _is_unique(request: protocol.Transaction) -> bool:
    """Return whether no branch can write a key twice; it may delete twice."""
    for ops in request.success, request.failure:
        puts = [key for op in ops for key in _keys(op, protocol.Put)]
        deleted = {key for op in ops for key in _keys(op, protocol.Delete)}
        if len(puts) > len(set(puts)) or not deleted.isdisjoint(
                puts) or not all(_is_unique(op) for op in ops if isinstance(
                    op, protocol.Transaction)):
            return False
    return True


def _keys(
    op: protocol.Op, kind: type[protocol.Put] | type[protocol.Delete]
) -> set[bytes]:
    """Return the keys that an operation may put, or delete."""
    if isinstance(op, protocol.Transaction):
        return {key for each in _ops(op) for key in _keys(each, kind)}
    return {op.key} if isinstance(op, kind) else set()


def _size(op: protocol.Op) -> int:
    if isinstance(op, protocol.Transaction):
        return 0
    return len(op.key) + (
        len(op.value) if isinstance(op, protocol.Put) else 0)
