# SPDX-License-Identifier: Apache-2.0
"""Claims in etcd.

Modules, from the server upwards:

* ``protocol``: requests and answers, as values; ``client`` sends them through
  etcd's library; ``options`` are those of the client.
* ``records``: the keys of the store and their values.
* ``transactions``: makes one etcd transaction of records and changes.
* ``calls``: retries, and a cache of the providers that were read last.
* ``batches``: batches that are too large for one transaction.
* ``providers``: inventories, counters and changes of providers.
* ``requests``: claims of several calls in one transaction.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from random import Random
from typing import Any
from typing import ClassVar
from typing import Self

from oslo_config import cfg

from cellsched.claims import base
from cellsched.claims.coordination import ProviderLocks
from cellsched.claims.etcd import batches
from cellsched.claims.etcd import calls
from cellsched.claims.etcd import options
from cellsched.claims.etcd import protocol
from cellsched.claims.etcd.providers import ProviderFeed
from cellsched.claims.etcd.providers import ProviderFigures
from cellsched.claims.etcd import records
from cellsched.claims.etcd import requests
from cellsched.claims.etcd import transactions
from cellsched.claims import remote
from cellsched.claims import validation
from cellsched.clock import Clock
from cellsched import exception

#: The oldest release of etcd whose gateway has the paths in use.
_RELEASE_MIN = (3, 4)


class EtcdClaims(base.ClaimStore):
    """Keep claims in etcd.

    ``[claims] connection`` says where:
    ``etcd://HOST:PORT,HOST:PORT/PREFIX``, with some or all members of one
    cluster, or ``etcds://`` for TLS. ``cellsched-manage claims_db sync``
    prepares the prefix. The extra ``etcd`` installs what this store needs.

    A claim is one transaction, on the condition that the providers are
    unchanged since this process read them. After a conflict the answer has
    their current values. If most claims conflict, the providers are read from
    the member first, which is cheaper than a failed transaction. Claims that
    wait for the same providers are one transaction. A batch that
    is too large for a transaction is claimed in parts and committed by one
    key; its amounts count as used from the first part on.

    :param client: sends requests; see :mod:`.claims.etcd.protocol`
    :param prefix: prefix of all keys
    :param url: URL of the members, for error messages
    :param retry_timeout_s: seconds for which a call is retried
    :param batch_timeout_s: seconds after which other clients roll back a
        pending batch of several transactions
    :param ops_max: number of operations that a transaction may have
    :param close: closes the connections of the client
    :param locks: of contended providers between processes; None for none
    """

    # etcd cannot find keys by their values.
    capabilities = frozenset(base.Capability) - {base.Capability.QUERY}

    group: ClassVar[str] = options.GROUP

    def __init__(
        self, client: protocol.Sender, clock: Clock,
        random: Random, prefix: str = options.PREFIX, url: str = '',
        retry_timeout_s: float = 30.0, batch_timeout_s: float = 5.0,
        ops_max: int = protocol.OPS_MAX,
        close: Callable[[], None] = lambda: None,
        locks: ProviderLocks | None = None,
    ) -> None:
        self._url = url
        self._close = close
        self._names = records.Names(prefix)
        self._calls = calls.Calls(
            client, self._names, clock, random, url, retry_timeout_s, ops_max)
        self._batches = batches.Batches(self._calls, batch_timeout_s)
        self._providers = ProviderFigures(self._calls, self._batches)
        self._claimer = requests.Claimer(
            self._calls, self._batches, self._providers,
            locks or ProviderLocks(clock))
        self._feed = ProviderFeed(self._calls, self._providers)

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return options.opts()

    @classmethod
    def from_conf(
        cls, conf: cfg.ConfigOpts, parts: base.ClaimStoreParts
    ) -> Self:
        # The library is an optional extra.
        from cellsched.claims.etcd import client

        place = options.place(conf.claims.connection)
        sender = client.EtcdClient.from_conf(conf, place)
        return cls(
            sender, parts.clock, parts.random, place.prefix, str(place),
            conf.etcd.retry_timeout, conf.etcd.batch_timeout,
            conf.etcd.max_txn_ops,
            sender.close, parts.locks)

    def close(self) -> None:
        self._close()

    # The server.

    def check(self) -> None:
        answer = self._calls.repeat(
            lambda: self._calls.send(protocol.MemberStatus()))
        assert isinstance(answer, protocol.Member)
        if remote.release(answer.version) < _RELEASE_MIN:
            raise exception.ConfigurationInvalid(
                field='[claims] connection',
                problem=f'the server is etcd {answer.version}',
                expected='etcd 3.4 or later')
        found = self._format()
        if found.get('version') != records.VERSION:
            raise exception.SchemaOutOfDate(
                schema='claims', url=self._url,
                version=found.get('version'), expected=records.VERSION,
                command='cellsched-manage claims_db sync')

    def sync(self) -> None:
        value = records.encoded({
            'version': records.VERSION,
            'id': f'{self._calls.random.getrandbits(128):032x}'})
        self._calls.repeat(lambda: self._calls.transact(protocol.Transaction(
            (protocol.Compare(self._names.format, 0),),
            (protocol.Put(self._names.format, value),
             protocol.Put(self._names.counted, records.COUNTED)))))

    def same_backend(self, other: base.ClaimStore) -> bool:
        if not isinstance(other, EtcdClaims):
            return False
        return other is self or (
            bool(self._format()) and self._format() == other._format())

    def _format(self) -> dict[str, Any]:
        [found] = self._calls.get(protocol.Get(self._names.format)).found
        try:
            return records.decoded(found[0].value) if found else {}
        except ValueError as exc:
            raise exception.ClaimStoreFailed(
                reason=f'key {records.shown(self._names.format)} cannot be '
                       f'read: {exc}') from None

    # Claims.

    def claim(self, claims: Sequence[base.Claim]) -> int:
        self._check(claims)
        if not claims:
            return 0
        request = requests.Request([claims])
        if self._is_large([request]):
            return self._batches.claim(claims)
        [outcome] = self._claimer.claim([request])
        if isinstance(outcome, base.AnyOf) and outcome.chosen is not None:
            return outcome.new
        raise outcome.refusals[0] if isinstance(
            outcome, base.AnyOf) else outcome

    def claim_any(
        self, batches: Sequence[Sequence[base.Claim]]
    ) -> base.AnyOf:
        for batch in batches:
            self._check(batch)
        request = requests.Request(batches)
        if not all(batches) or self._is_large([request]):
            return super().claim_any(batches)
        [outcome] = self._claimer.claim([request])
        if isinstance(outcome, base.AnyOf):
            return outcome
        raise outcome

    def claim_each(
        self, each: Sequence[Sequence[Sequence[base.Claim]]]
    ) -> Sequence[base.AnyOf | exception.CellschedException]:
        """Claim the first batch that fits of each of several requests.

        :param each: requests as for :meth:`claim_any`, with other consumers
        :returns: by request the result, or the error that it raises
        """
        outcomes: dict[int, requests.Outcome] = {}
        together: dict[int, requests.Request] = {}
        for number, alternatives in enumerate(each):
            request = requests.Request(alternatives)
            if request.scope.groups or self._is_large([request]) or (
                    not all(alternatives)):
                outcomes[number] = self._outcome_of(alternatives)
                continue
            try:
                for batch in alternatives:
                    self._check(batch)
            except exception.InvalidField as exc:
                outcomes[number] = exc
                continue
            if self._is_large([*together.values(), request]):
                outcomes.update(self._together(together))
                together = {}
            together[number] = request
        outcomes.update(self._together(together))
        return [outcomes[number] for number in range(len(each))]

    def _together(
        self, together: Mapping[int, requests.Request]
    ) -> Iterator[tuple[int, requests.Outcome]]:
        if together:
            yield from zip(
                together, self._claimer.claim([*together.values()]))

    def _outcome_of(
        self, batches: Sequence[Sequence[base.Claim]]
    ) -> requests.Outcome:
        try:
            return self.claim_any(batches)
        except (exception.ClaimConflict, exception.ClaimStoreFailed,
                exception.InvalidField) as exc:
            return exc

    def _check(self, claims: Sequence[base.Claim]) -> None:
        validation.check_claims(claims)
        _check_providers(claims, transactions.providers_max(
            self._calls.ops_max))

    def _is_large(self, together: Sequence[requests.Request]) -> bool:
        """Return whether one transaction is not enough."""
        scope = transactions.Scope.union(each.scope for each in together)
        return len(scope) > transactions.keys_max(self._calls.ops_max)

    def release(self, consumers: Iterable[str]) -> None:
        names = [*dict.fromkeys(consumers)]
        unreadable: list[records.StoredConsumer] = []
        for chunk in transactions.chunks(names, self._calls.ops_max):
            try:
                view = self._calls.repeat(lambda: self._release(chunk))
            except calls.Full:
                view = self._calls.repeat(lambda: self._delete(chunk))
            unreadable += view.consumers.values()
        records.check(unreadable)

    def _release(self, names: Sequence[str]) -> transactions.View:
        """Release consumers; return those that were there."""
        view = self._settled(transactions.Scope(consumers=names))
        for part in transactions.parts(view.readable(), self._calls.ops_max):
            scope = transactions.Scope.held_by(part)
            with self._calls.queue.turn(scope.providers):
                known = batches.known(self._calls, scope)
                known.consumers = part
                draft = transactions.Draft(known)
                for name in part:
                    draft.give_back(name)
                other = self._calls.change(draft, scope)
            if other is not None:
                raise calls.Conflict
        self._batches.notice(view.batches)
        return view

    def _delete(self, names: Sequence[str]) -> transactions.View:
        """Release consumers by deletions alone; return those that were there.

        A full server accepts nothing else. The counters are corrected once it
        has space again.
        """
        view = self._calls.read(transactions.Scope(consumers=names))
        keys = {self._names.consumer(name): consumer.revision
                for name, consumer in view.readable().items()}
        if keys:
            outcome = self._calls.transact(protocol.Transaction(
                tuple(protocol.Compare(*each) for each in keys.items()),
                (*map(protocol.Delete, keys),
                 protocol.Delete(self._names.counted))))
            if not outcome.succeeded:
                raise calls.Conflict
        return view

    def transfer(self, source: str, target: str) -> bool:
        validation.check_transfer(source, target)
        tried: records.StoredConsumer | None = None

        def attempt() -> bool:
            nonlocal tried
            both = transactions.Scope(consumers=[source, target])
            view = self._settled(both)
            view.check(both)
            moved = view.consumers[source]
            if not moved.revision:
                # An earlier attempt of this call may have moved the claims.
                return tried is not None and tried == dataclasses.replace(
                    view.consumers[target], revision=tried.revision)
            scope = dataclasses.replace(
                transactions.Scope.held_by(view.present()),
                consumers=[source, target])
            with self._calls.queue.turn(scope.providers):
                known = batches.known(self._calls, scope)
                known.consumers = view.consumers
                draft = transactions.Draft(known)
                if view.consumers[target].revision:
                    draft.give_back(target)
                draft.rename(source, target)
                try:
                    other = self._calls.change(draft, scope)
                except remote.OutcomeUnknown:
                    tried = moved
                    raise
            if other is not None:
                raise calls.Conflict
            return True

        return self._calls.repeat(attempt)

    def _settled(self, scope: transactions.Scope) -> transactions.View:
        """Return the consumers, after the rollback of pending batches."""
        view = self._calls.read(scope)
        marks = {mark for mark in view.marks()
                 if not view.batches[mark].unreadable}
        if marks:
            self._batches.settle(marks, abort=True)
            raise calls.Conflict
        return view

    def claims_of(
        self, consumers: Iterable[str]
    ) -> dict[str, list[base.Claim]]:
        held: dict[str, list[base.Claim]] = {}
        for view in self._views(consumers):
            held.update(view.held())
        return held

    def memberships(
        self, consumers: Iterable[str]
    ) -> dict[str, base.Membership]:
        joined: dict[str, base.Membership] = {}
        for view in self._views(consumers):
            joined.update(view.memberships())
        return joined

    def rename_host(self, former: str, name: str) -> None:
        start: str | bytes = ''
        while True:
            [page] = self._calls.get(self._names.all_of(
                self._names.group, start, calls.PAGE)).found
            for kv in page:
                group = self._names.name(kv.key)
                names = records.StoredGroup.of(kv).on(former)
                # One key of each transaction is the group's.
                for part in transactions.chunks(
                        names, self._calls.ops_max - 1):
                    self._calls.repeat(lambda: self._rename(
                        group, part, former, name))
            if len(page) < calls.PAGE:
                return
            start = page[-1].key

    def _rename(
        self, group: str, consumers: Sequence[str], former: str, name: str
    ) -> None:
        """Replace the host of some members of a group."""
        scope = transactions.Scope((), consumers, [group])
        view = self._settled(scope)
        view.check(scope)
        draft = transactions.Draft(view)
        for consumer in view.groups[group].on(former):
            if consumer in consumers:
                draft.rename_host(consumer, name)
        if draft.consumers and self._calls.change(draft, scope) is not None:
            raise calls.Conflict

    def _views(self, consumers: Iterable[str]) -> Iterator[transactions.View]:
        for chunk in transactions.chunks(
                [*dict.fromkeys(consumers)], self._calls.ops_max):
            view = self._calls.read(transactions.Scope(consumers=chunk))
            self._batches.notice(view.batches)
            yield view

    def consumers(self, after: str = '', limit: int = 1000) -> list[str]:
        validation.check_limit(limit)
        found: list[str] = []
        start: str | bytes = after
        while len(found) < limit:
            size = min(limit - len(found), calls.PAGE)
            page, states = self._calls.get(
                self._names.all_of(self._names.consumer, start, size),
                self._names.all_of(self._names.batch)).found
            view = transactions.View()
            view.consumers = {
                self._names.name(kv.key): records.StoredConsumer.of(kv)
                for kv in page}
            view.batches = transactions.batches(self._names, states)
            self._batches.notice(view.batches)
            found += view.held()
            if len(page) < size:
                break
            start = page[-1].key
        return found

    # Providers.

    def set_inventory(
        self, provider: str, inventory: Mapping[str, base.Inventory]
    ) -> None:
        validation.check_inventory(provider, inventory)
        self._providers.set_inventory(provider, inventory)

    def inventories(
        self, providers: Iterable[str] | None = None
    ) -> dict[str, dict[str, base.Inventory]]:
        return {name: dict(provider.inventory)
                for name, provider in self._providers.read(providers)
                if provider.inventory is not None}

    def usages(
        self, since: Any = None, providers: Iterable[str] | None = None
    ) -> base.UsageChanges:
        if providers is None:
            return self._feed.changes(since)
        return base.UsageChanges(since, [
            provider.usage(name)
            for name, provider in self._providers.read(providers)])

    def recount(self, provider: str) -> bool:
        return self._providers.recount(provider)

    def problems(self) -> list[base.StoreProblem]:
        return self._providers.problems()

    def mend(self) -> None:
        self._providers.mend()


def _check_providers(claims: Sequence[base.Claim], most: int) -> None:
    """Check that one transaction can change all claims of each consumer."""
    counts: dict[str, int] = {}
    for claim in claims:
        count = counts[claim.consumer] = counts.get(claim.consumer, 0) + 1
        if count > most:
            raise exception.InvalidField(
                where=f'claim of {claim.consumer!r:.80}', field='provider',
                expected=f'at most {most} providers for one consumer')
