# SPDX-License-Identifier: Apache-2.0
"""Calls of a server: attempts, reads, and what was seen last."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
from random import Random
from typing import TypeVar

from cellsched.claims.etcd import protocol
from cellsched.claims.etcd import records
from cellsched.claims.etcd import transactions
from cellsched.claims import remote
from cellsched.clock import Clock
from cellsched import exception

#: Seconds that are waited at most before another attempt. Most losers lose to
#: others that are done in a few milliseconds.
_WAIT_MOST_S = 0.05

#: Who loses lets at most so many others have their turn, each of whom takes as
#: long as the attempt took.
_TURNS_MAX = 8

#: The weight of what was seen last in the share of what was out of date. From
#: a share of so much on, what was seen is not worth a try: a transaction that
#: fails waits for the disk, too, and a read does not.
_NEWEST, _TOO_OLD = 0.1, 0.3

_Outcome = TypeVar('_Outcome')


class Conflict(Exception):
    """Somebody else was faster; it is to be tried again."""


class Calls:
    """Sends what a store asks for.

    :param url: of the servers, for people
    :param patience_s: seconds for which a call is tried
    :param ops_max: operations that a server takes in a transaction
    """

    def __init__(
        self, client: protocol.Sender, names: records.Names,
        clock: Clock, random: Random, url: str,
        patience_s: float, ops_max: int = protocol.OPS_MAX,
    ) -> None:
        self.names = names
        self.clock = clock
        self.random = random
        self.ops_max = ops_max
        self._client = client
        self._url = url
        self._patience_s = patience_s
        #: Providers that others changed when this store tried to.
        self.contended: set[str] = set()
        #: Providers as they were when this store saw them last.
        self._seen: dict[str, records.StoredProvider] = {}
        self._old_share = 0.0

    def repeat(self, attempt: Callable[[], _Outcome]) -> _Outcome:
        """Make attempts until one neither loses nor gets no answer.

        What is attempted must find out what an earlier one has done.

        :raises cellsched.exception.DatabaseUnreachable: none did in time
        """
        reason: Exception | None = None
        losses = 0
        for _ in remote.attempts(
                self.clock, self.random, self._patience_s, _WAIT_MOST_S):
            began = self.clock.monotonic()
            try:
                return attempt()
            except Conflict as exc:
                reason = exc
                losses += 1
                took_s = self.clock.monotonic() - began
                self.clock.sleep(self.random.uniform(
                    0, took_s * min(2 ** losses, _TURNS_MAX)))
            except (remote.NotSent, remote.OutcomeUnknown) as exc:
                reason = exc
        raise exception.DatabaseUnreachable(
            schema='claims', url=self._url,
            reason=f'{str(reason) or "others were faster"}, for '
                   f'{self._patience_s:g} s')

    def send(self, request: protocol.Request) -> protocol.Answer:
        """Return an answer that is no refusal.

        :raises cellsched.exception.DatabaseError: the server refuses it
        """
        answer = self._client.send(request)
        if isinstance(answer, protocol.Refused):
            raise exception.DatabaseError(
                schema='claims', reason=f'etcd refuses a request: '
                                        f'{answer.reason}')
        return answer

    def transact(
        self, transaction: protocol.Transaction
    ) -> protocol.TransactionOutcome:
        """Return the outcome of a transaction, which is sent once."""
        answer = self.send(transaction)
        assert isinstance(answer, protocol.TransactionOutcome)
        return answer

    def get(self, *gets: protocol.Get) -> protocol.TransactionOutcome:
        """Return what is read, all of it at one moment after the call."""
        return self.repeat(
            lambda: self.transact(protocol.Transaction(success=gets)))

    def read(self, scope: transactions.Scope) -> transactions.View:
        """Return what a scope has, of at most so many names."""
        return self._view(scope, self.get(*scope.reads(self.names)))

    def change(
        self, draft: transactions.Draft, scope: transactions.Scope,
        others: Iterable[transactions.Draft] = (),
    ) -> tuple[protocol.TransactionOutcome, transactions.View | None]:
        """Do what is drafted, or return what the scope has instead.

        :param others: drafts of the same for what the scope may be otherwise
        """
        drafts = [draft, *others]
        first, *rest = [
            each.transaction(self.names, scope) for each in drafts]
        outcome = self.transact(dataclasses.replace(first, alternatives=tuple(
            (each.compares, each.success) for each in rest)))
        if not outcome.succeeded:
            self.contended.update(scope.providers)
            return outcome, self._view(scope, outcome)
        for name, provider in drafts[outcome.alternative].written().items():
            self.see(name, provider, outcome.revision)
        return outcome, None

    def see(
        self, name: str, provider: records.StoredProvider,
        revision: int | None = None,
    ) -> None:
        """Remember what a provider was at a revision, or at its own."""
        if revision is not None:
            provider = dataclasses.replace(provider, revision=revision)
        known = self._seen.get(name)
        # Should a later one go lost, a claim needs one request more.
        if known is None or known.revision < provider.revision:
            self._seen[name] = provider

    def forget(self) -> None:
        """Forget what was seen: revisions have begun again."""
        self._seen = {}

    @property
    def is_busy(self) -> bool:
        """True where others have mostly changed what this store saw last."""
        return self._old_share >= _TOO_OLD

    def look_again(
        self, seen: Mapping[str, records.StoredProvider]
    ) -> dict[str, records.StoredProvider]:
        """Return providers as the member has them, which may be behind.

        :param seen: the same as they were seen before
        """
        outcome = self.get(*(
            protocol.Get(self.names.provider(name), is_local=True)
            for name in seen))
        found = dict(seen)
        for name, told in zip(seen, outcome.found):
            if told and told[0].revision > seen[name].revision:
                found[name] = records.StoredProvider.of(told[0])
                self.see(name, found[name])
        self.learn(found != seen)
        return found

    def learn(self, is_old: bool) -> None:
        """Learn whether others had changed what this store saw last."""
        self._old_share += _NEWEST * (is_old - self._old_share)

    def seen(
        self, names: Iterable[str]
    ) -> dict[str, records.StoredProvider] | None:
        """Return what providers were when they were seen last.

        None where one of them never was.
        """
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
        return view
