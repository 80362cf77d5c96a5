# SPDX-License-Identifier: Apache-2.0
"""Retries, reads and changes, and a cache of providers."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from random import Random
from typing import Any
from typing import TypeVar

from oslo_log import log

from cellsched.claims.etcd import protocol
from cellsched.claims.etcd import records
from cellsched.claims.etcd import transactions
from cellsched.claims import remote
from cellsched.clock import Clock
from cellsched import exception

LOG = log.getLogger(__name__)

#: Seconds between two messages about the alarm NOSPACE.
_FULL_S = 60.0

#: Longest wait, in seconds, before another attempt. Most conflicts are with
#: transactions that take a few milliseconds.
_WAIT_MOST_S = 0.05

#: Shortest wait, in seconds, that is drawn after a conflict. Its length is
#: otherwise that of the attempt: in this process, writers of a provider take
#: turns, so few others write at the same time, and a wait that grew would let
#: the unlucky wait for ever.
_CONFLICT_S = 0.001

#: The share of a former number of claims that is expected again.
_DECAY = 0.8

#: Weight of the latest claim in the average share of outdated cache entries,
#: and the share from which the cache is not used: a failed transaction waits
#: for the disk, a read does not.
_NEWEST, _TOO_OLD = 0.1, 0.3

#: Calls that one transaction may write together.
_ITEMS_MAX = 32

#: Keys of one read.
PAGE = 1000

_Outcome = TypeVar('_Outcome')


class Conflict(Exception):
    """Another client has changed the same keys; the attempt is repeated."""


class PendingBatch(Conflict):
    """An unfinished batch must end before the attempt is repeated."""


class Full(exception.ClaimStoreFailed):
    """etcd has raised the alarm NOSPACE and accepts deletions only."""


class Calls:
    """Sends requests and retries them.

    :param url: URL of the servers, for error messages
    :param retry_timeout_s: seconds for which a call is retried
    :param ops_max: number of operations that a transaction may have
    """

    def __init__(
        self, client: protocol.Sender, names: records.Names,
        clock: Clock, random: Random, url: str,
        retry_timeout_s: float, ops_max: int = protocol.OPS_MAX,
    ) -> None:
        self.names = names
        self.clock = clock
        self.random = random
        self.ops_max = ops_max
        self._client = client
        self._url = url
        self._retry_timeout_s = retry_timeout_s
        #: The turns of the writers of this process.
        self.queue = remote.ProviderQueue(clock, _ITEMS_MAX)
        #: For providers that other processes change, the number of claims
        #: that may come before the next one of this process.
        self.contended: dict[str, float] = {}
        #: Cached providers, as this store read or wrote them last.
        self._seen: dict[str, records.StoredProvider] = {}
        self._old_share = 0.0
        #: When the alarm NOSPACE is logged again.
        self._full_until = -math.inf
        #: Unreadable keys and their revisions, which are logged once.
        self._reported: set[tuple[str, int]] = set()

    def repeat(self, attempt: Callable[[], _Outcome]) -> _Outcome:
        """Repeat an attempt until it has an outcome, and return that.

        The attempt finds out the outcome of the previous one first.

        :raises cellsched.exception.DatabaseUnreachable: there is no outcome
            in time
        """
        reason: Exception | None = None
        until = self.clock.monotonic() + self._retry_timeout_s
        for _ in remote.attempts(
                self.clock, self.random, self._retry_timeout_s, _WAIT_MOST_S):
            try:
                return self._repeat_conflicts(attempt, until)
            except (Conflict, remote.NotSent, remote.OutcomeUnknown) as exc:
                reason = exc
        raise exception.DatabaseUnreachable(
            schema='claims', url=self._url,
            reason=f'{str(reason) or "other clients change the keys"}, for '
                   f'{self._retry_timeout_s:g} s')

    def _repeat_conflicts(
        self, attempt: Callable[[], _Outcome], until: float
    ) -> _Outcome:
        """Repeat an attempt while other clients change the same keys."""
        while True:
            began = self.clock.monotonic()
            try:
                return attempt()
            except Conflict as exc:
                now = self.clock.monotonic()
                if isinstance(exc, PendingBatch) or now >= until:
                    raise
                self.clock.sleep(self.random.uniform(
                    0, max(now - began, _CONFLICT_S)))

    def send(self, request: protocol.Request) -> protocol.Answer:
        """Return the answer to a request, which is sent once.

        :raises cellsched.claims.etcd.calls.Full: the server has no space
        :raises cellsched.exception.ClaimStoreFailed: the server refuses it
        """
        answer = self._client.send(request)
        if not isinstance(answer, protocol.Refusal):
            return answer
        reason = f'etcd refuses a request: {answer.reason}'
        if protocol.NO_SPACE not in answer.reason:
            raise exception.ClaimStoreFailed(reason=reason)
        now = self.clock.monotonic()
        if now >= self._full_until:
            self._full_until = now + _FULL_S
            LOG.error('etcd at %s is full and has raised the alarm NOSPACE. '
                      'Claims fail, releases succeed. Compact its history, '
                      'defragment its members and disarm the alarm', self._url)
        raise Full(reason=f'{reason} (alarm NOSPACE); compact its history, '
                          'defragment its members and disarm the alarm')

    def transact(
        self, transaction: protocol.Transaction
    ) -> protocol.TransactionOutcome:
        """Return the outcome of a transaction, which is sent once."""
        answer = self.send(transaction)
        assert isinstance(answer, protocol.TransactionOutcome)
        return answer

    def get(self, *gets: protocol.Get) -> protocol.TransactionOutcome:
        """Return the keys that are read, all at one revision."""
        return self.repeat(
            lambda: self.transact(protocol.Transaction(success=gets)))

    def all_of(self, kind: Callable[[str], bytes]) -> Iterator[protocol.Found]:
        """Yield all keys of a kind, read page by page."""
        after: str | bytes = ''
        while True:
            [page] = self.get(self.names.all_of(kind, after, PAGE)).found
            yield from (kv for kv in page if self.names.name(kv.key))
            if len(page) < PAGE:
                return
            after = page[-1].key

    def read(self, scope: transactions.Scope) -> transactions.View:
        """Return the records of a scope, which fits in one transaction."""
        return self._view(scope, self.get(*scope.reads(self.names)))

    def change(
        self, draft: transactions.Draft, scope: transactions.Scope
    ) -> transactions.View | None:
        """Apply a draft if the scope is unchanged.

        :returns: the current scope after a conflict, else None
        """
        [(_, view)] = self.change_all([[(draft, scope)]])
        return view

    def change_all(
        self, parts: Sequence[
            Sequence[tuple[transactions.Draft, transactions.Scope]]],
    ) -> list[tuple[int, transactions.View | None]]:
        """Apply drafts of several parts, each if its scope is unchanged.

        The parts are one transaction, and succeed or fail alone.

        :param parts: for each part a draft and alternatives for other states,
            with their scopes. No two parts change the same record
        :returns: for each part the number of the alternative, 0 for the first
            draft; after a conflict also the current scope of the first draft
        """
        requests = [self._part(each) for each in parts]
        if len(requests) == 1:
            answer = self.transact(requests[0])
            outcomes: Sequence[protocol.TransactionOutcome] = [answer]
        else:
            # A key can be written only once.
            tick = protocol.Put(self.names.tick, b'')
            answer = self.transact(protocol.Transaction(success=(
                *(_without(each, tick) for each in requests), tick)))
            outcomes = answer.parts
        results: list[tuple[int, transactions.View | None]] = []
        for part, outcome in zip(parts, outcomes):
            draft, scope = part[outcome.alternative]
            view = None
            if outcome.succeeded:
                for name, provider in draft.written().items():
                    self.see(name, provider, answer.revision)
            else:
                view = self._view(scope, outcome)
                self._compare(draft.view, view)
            results.append((outcome.alternative, view))
        return results

    def _part(
        self, part: Sequence[tuple[transactions.Draft, transactions.Scope]]
    ) -> protocol.Transaction:
        first, *alternatives = [draft.transaction(self.names, scope)
                                for draft, scope in part]
        return dataclasses.replace(first, alternatives=tuple(
            (each.compares, each.success) for each in alternatives))

    def _compare(
        self, before: transactions.View, after: transactions.View
    ) -> None:
        """Learn which providers other processes have changed."""
        for name, provider in after.providers.items():
            known = before.providers.get(name)
            if known is not None and known.revision != provider.revision:
                self.learn([name], max(provider.changes - known.changes, 1))

    @property
    def is_busy(self) -> bool:
        """True if the cache is outdated for most claims."""
        return self._old_share >= _TOO_OLD

    def reread(
        self, seen: Mapping[str, records.StoredProvider]
    ) -> dict[str, records.StoredProvider]:
        """Return cached providers, updated from the member's local data.

        A read of local data is fast, and may be behind the cluster.
        """
        outcome = self.get(*(
            protocol.Get(self.names.provider(name), is_local=True)
            for name in seen))
        found = dict(seen)
        for name, kvs in zip(seen, outcome.found):
            if kvs and kvs[0].revision > seen[name].revision:
                found[name] = records.StoredProvider.of(kvs[0])
                self.see(name, found[name])
        self.learn_age(found != seen)
        return found

    def learn_age(self, is_old: bool) -> None:
        """Add to the statistics whether a cache entry was outdated."""
        self._old_share += _NEWEST * (is_old - self._old_share)

    def learn(self, names: Iterable[str], number: int) -> None:
        """Learn how many claims came before one of this process."""
        for name in names:
            most = max(number, _DECAY * self.contended.get(name, 0.0))
            if most < 0.5:
                self.contended.pop(name, None)
            else:
                self.contended[name] = most

    def see(
        self, name: str, provider: records.StoredProvider,
        revision: int | None = None,
    ) -> None:
        """Cache a provider, with the revision that a transaction had."""
        if revision is not None:
            provider = dataclasses.replace(provider, revision=revision)
        self.report([provider])
        known = self._seen.get(name)
        # An older entry costs at most one more request.
        if known is None or known.revision < provider.revision:
            self._seen[name] = provider

    def report(self, found: Iterable[Any]) -> None:
        """Log the unreadable ones of some records, each once."""
        for record in found:
            if record.unreadable:
                entry = record.unreadable, record.revision
                if entry not in self._reported:
                    self._reported.add(entry)
                    LOG.error('In the claim store, %s', record.unreadable)

    def forget(self) -> None:
        """Empty the cache: the revisions have started again."""
        self._seen = {}

    def seen(
        self, names: Iterable[str]
    ) -> dict[str, records.StoredProvider] | None:
        """Return cached providers; None if one is not cached."""
        found = {}
        for name in names:
            provider = self._seen.get(name)
            if provider is None:
                return None
            found[name] = provider
        return found

    def _view(
        self, scope: transactions.Scope, outcome: protocol.TransactionOutcome
    ) -> transactions.View:
        view = transactions.View.of(self.names, scope, outcome.found)
        for name, provider in view.providers.items():
            if provider.revision:
                self.see(name, provider)
        for some in view.consumers, view.groups, view.batches:
            self.report(some.values())
        return view


def _without(
    request: protocol.Transaction, op: protocol.Op
) -> protocol.Transaction:
    """Return a transaction without an operation."""
    def rest(ops: Sequence[protocol.Op]) -> tuple[protocol.Op, ...]:
        return tuple(each for each in ops if each != op)

    return dataclasses.replace(
        request, success=rest(request.success), alternatives=tuple(
            (compares, rest(ops)) for compares, ops in request.alternatives))
