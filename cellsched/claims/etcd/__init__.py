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
from cellsched.claims.etcd import batches
from cellsched.claims.etcd import calls
from cellsched.claims.etcd import options
from cellsched.claims.etcd import protocol
from cellsched.claims.etcd.providers import ProviderFeed
from cellsched.claims.etcd.providers import ProviderFigures
from cellsched.claims.etcd import records
from cellsched.claims.etcd import transactions
from cellsched.claims import remote
from cellsched.claims import validation
from cellsched.clock import Clock
from cellsched import exception

#: Concurrent claims that the transaction on a contended provider allows for.
_SPECULATIVE_MAX = 3

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
    the member first, which is cheaper than a failed transaction. A batch that
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
    """

    # etcd cannot find keys by their values.
    capabilities = frozenset(base.Capability) - {
        base.Capability.ANY_OF, base.Capability.QUERY}

    group: ClassVar[str] = options.GROUP

    def __init__(
        self, client: protocol.Sender, clock: Clock,
        random: Random, prefix: str = options.PREFIX, url: str = '',
        retry_timeout_s: float = 30.0, batch_timeout_s: float = 5.0,
        ops_max: int = protocol.OPS_MAX,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._url = url
        self._close = close
        self._names = records.Names(prefix)
        self._calls = calls.Calls(
            client, self._names, clock, random, url, retry_timeout_s, ops_max)
        self._batches = batches.Batches(self._calls, batch_timeout_s)
        self._providers = ProviderFigures(self._calls, self._batches)
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
            sender.close)

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
                expected=f'etcd 3.4 or later, not {answer.version}')
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
        validation.check_claims(claims)
        _check_providers(claims, transactions.providers_max(
            self._calls.ops_max))
        scope = transactions.Scope.of(claims)
        if not claims:
            return 0
        if len(scope) > transactions.keys_max(self._calls.ops_max):
            return self._batches.claim(claims)
        view = self._cached_view(scope)
        if view is not None and self._calls.is_busy:
            view.providers = self._calls.reread(view.providers)

        def attempt() -> int:
            nonlocal view
            # 1. Use the cached providers in the first attempt, and after a
            #    conflict the values that the failed transaction returned.
            current, view = view or self._calls.read(scope), None
            new = self._new_claims(claims, current)
            # 2. A refusal by cached values is not final: read, and check
            #    again.
            if new is None:
                current = self._calls.read(scope)
                new = self._new_claims(claims, current)
            if not new:
                return 0
            # 3. Write consumers and providers if nothing has changed since.
            #    The transaction has alternatives for a contended provider,
            #    and reads the whole scope if all of them fail.
            outcome, view = self._calls.change(
                _taking(new, current), scope,
                self._speculative_drafts(new, current))
            # 4. Learn how often the cache is outdated.
            if not (current.is_fresh or self._calls.is_busy):
                self._calls.learn(view is not None or outcome.alternative > 0)
            if view is not None:
                raise calls.Conflict
            if not (current.is_fresh or outcome.alternative):
                self._calls.contended.difference_update(scope.providers)
            return len(new)

        return self._calls.repeat(attempt)

    def _speculative_drafts(
        self, claims: Sequence[base.Claim], view: transactions.View
    ) -> Iterator[transactions.Draft]:
        """Yield drafts for the case of concurrent claims of the same amounts.

        Only for claims of one consumer on contended providers.
        """
        if len(view.consumers) > 1 or view.groups or (
                self._calls.contended.isdisjoint(view.providers)):
            return
        for changed in transactions.speculative_views(
                view, claims, _SPECULATIVE_MAX):
            if batches.refusal(claims, changed) is not None:
                return
            yield _taking(claims, changed)

    def _cached_view(
        self, scope: transactions.Scope
    ) -> transactions.View | None:
        """Return the scope by cached providers; None if one is not cached.

        The consumers are assumed to hold nothing. The transaction checks all
        of it.
        """
        seen = None if scope.groups else self._calls.seen(scope.providers)
        if seen is None:
            return None
        view = transactions.View(is_fresh=False)
        view.providers = seen
        view.consumers = dict.fromkeys(
            scope.consumers, records.StoredConsumer())
        return view

    def _new_claims(
        self, claims: Sequence[base.Claim], view: transactions.View
    ) -> list[base.Claim] | None:
        """Return the claims of a batch that are new.

        :returns: None if they do not fit by cached values
        :raises cellsched.claims.etcd.calls.Conflict: a pending batch holds
            consumers, or capacity that is missing
        """
        view.check()
        if marks := view.marks():
            self._batches.settle(marks)
            raise calls.Conflict
        new = validation.outstanding(claims, view.held())
        error = batches.refusal(new, view)
        if error is None:
            return new
        if not view.is_fresh:
            return None
        if marks := view.all_marks():
            self._batches.settle(marks)
            raise calls.Conflict
        if not self._providers.is_counted() and (
                self._providers.mend_sometimes()):
            raise calls.Conflict
        raise error

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
            known = batches.known(self._calls, scope)
            known.consumers = part
            draft = transactions.Draft(known)
            for name in part:
                draft.give_back(name)
            _, other = self._calls.change(draft, scope)
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
            view = self._settled(
                transactions.Scope(consumers=[source, target]))
            view.check()
            moved = view.consumers[source]
            if not moved.revision:
                # An earlier attempt of this call may have moved the claims.
                return tried is not None and tried == dataclasses.replace(
                    view.consumers[target], revision=tried.revision)
            scope = dataclasses.replace(
                transactions.Scope.held_by(view.present()),
                consumers=[source, target])
            known = batches.known(self._calls, scope)
            known.consumers = view.consumers
            draft = transactions.Draft(known)
            if view.consumers[target].revision:
                draft.give_back(target)
            draft.rename(source, target)
            try:
                _, other = self._calls.change(draft, scope)
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


def _taking(
    claims: Sequence[base.Claim], view: transactions.View
) -> transactions.Draft:
    draft = transactions.Draft(view)
    for name, consumer in transactions.by_consumer(claims).items():
        draft.take(name, consumer)
    return draft


def _check_providers(claims: Sequence[base.Claim], most: int) -> None:
    """Check that one transaction can change all claims of each consumer."""
    counts: dict[str, int] = {}
    for claim in claims:
        count = counts[claim.consumer] = counts.get(claim.consumer, 0) + 1
        if count > most:
            raise exception.InvalidField(
                where=f'claim of {claim.consumer!r:.80}', field='provider',
                expected=f'at most {most} for one consumer')
