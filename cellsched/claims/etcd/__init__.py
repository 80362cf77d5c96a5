# SPDX-License-Identifier: Apache-2.0
"""Claims in etcd.

Modules, from the server upwards:

* ``protocol``: requests and answers, as values; ``client`` sends them through
  etcd's library; ``options`` are those of the client.
* ``records``: the keys of the store and their values.
* ``transactions``: makes one etcd transaction of records and changes, repeats
  it, and caches the providers that were read last.
* ``operations``: claims, releases and transfers of concurrent calls, in one
  transaction.
* ``providers``: inventories, counters and changes of providers.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import itertools
from random import Random
from typing import Any
from typing import ClassVar
from typing import Self

from oslo_config import cfg

from cellsched.claims import base
from cellsched.claims.coordination import ContentionLock
from cellsched.claims.etcd import operations
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

#: The oldest release of etcd whose gateway has the paths in use.
_RELEASE_MIN = (3, 4)


class EtcdClaims(base.RequestClaims, base.ClaimStore):
    """Keep claims in etcd.

    ``[claims] connection`` says where:
    ``etcd://HOST:PORT,HOST:PORT/PREFIX``, with some or all members of one
    cluster, or ``etcds://`` for TLS. ``cellsched-manage claims_db sync``
    prepares the prefix. The extra ``etcd`` installs what this store needs.

    A claim is one transaction, on the condition that the providers are
    unchanged since this process read them. After a conflict the answer has
    their current values. A provider with a conflict a short time ago is read
    first, which is cheaper than a failed transaction. Concurrent claims of a
    process are one transaction. A batch with too many providers
    for conditions on each of them holds the store for a moment.

    :param client: sends requests; see :mod:`.claims.etcd.protocol`
    :param prefix: prefix of all keys
    :param url: URL of the members, for error messages
    :param retry_timeout_s: seconds for which a call is retried
    :param batch_timeout_s: seconds for which a large batch may hold the store
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
        locks: ContentionLock | None = None,
    ) -> None:
        self._url = url
        self._close = close
        self._names = records.Names(prefix)
        self._store = transactions.Records(
            client, self._names, clock, random, url, retry_timeout_s,
            batch_timeout_s, ops_max)
        self._queue = operations.OperationQueue(
            self._store, locks or ContentionLock(clock))
        self._providers = ProviderFigures(self._store)
        self._feed = ProviderFeed(self._store, self._providers)

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
            sender, parts.clock, parts.random, place.prefix,
            conf.claims.connection, conf.etcd.retry_timeout,
            conf.etcd.batch_timeout, conf.etcd.max_txn_ops, sender.close,
            parts.locks)

    def close(self) -> None:
        self._close()

    # The server.

    def check(self) -> None:
        answer = self._store.repeat(
            lambda: self._store.send(protocol.MemberStatus()))
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
            'id': f'{self._store.random.getrandbits(128):032x}'})
        self._store.repeat(lambda: self._store.transact(protocol.Transaction(
            (protocol.Compare(self._names.format, 0),),
            (protocol.Put(self._names.format, value),
             protocol.Put(self._names.counted, records.COUNTED)))))

    def same_backend(self, other: base.ClaimStore) -> bool:
        if not isinstance(other, EtcdClaims):
            return False
        return other is self or (
            bool(self._format()) and self._format() == other._format())

    def _format(self) -> dict[str, Any]:
        [found] = self._store.get(protocol.Get(self._names.format)).found
        try:
            return records.decoded(found[0].value) if found else {}
        except ValueError as exc:
            raise exception.ClaimStoreFailed(
                reason=f'key {records.shown(self._names.format)} cannot be '
                       f'read: {exc}') from None

    # Claims.

    def claim_each(
        self, requests: Sequence[Sequence[Sequence[base.Claim]]]
    ) -> Sequence[base.AnyOf | exception.CellschedException]:
        while True:
            claims = [operations.Claim(self._store, batches)
                      for batches in requests]
            self._queue.do([each for each in claims if each.outcome is None])
            outcomes = [each.outcome for each in claims]
            for outcome in outcomes:
                if isinstance(outcome, exception.DatabaseUnreachable):
                    raise outcome
            if all(getattr(each, 'chosen', 0) is not None
                   for each in outcomes) or self._providers.is_counted() or (
                       not self._providers.mend_sometimes()):
                return outcomes
            # The counters were wrong. Claims that were made are found.

    def release(self, consumers: Iterable[str]) -> None:
        names = [*dict.fromkeys(consumers)]
        unreadable: list[records.StoredConsumer] = []
        for keys in transactions.chunks(
                _consumers(names), self._store.keys_max):
            try:
                view = self._store.repeat(lambda: self._release(keys))
            except transactions.Full:
                view = self._store.repeat(lambda: self._delete(keys))
            unreadable += view.records.values()
        records.check(unreadable)

    def _release(self, keys: Sequence[records.Key]) -> transactions.View:
        """Release consumers; return those that were there."""
        view = self._store.read(keys)
        releases = [operations.Release({name: consumer})
                    for name, consumer in view.consumers().items()]
        if releases:
            self._queue.do(releases)
        for each in releases:
            each.result()
        return view

    def _delete(self, keys: Sequence[records.Key]) -> transactions.View:
        """Release consumers by deletions alone; return those that were there.

        A full server accepts nothing else. The counters are corrected once it
        has space again.
        """
        view = self._store.read(keys)
        present = {self._names.key(records.CONSUMER, name): consumer.revision
                   for name, consumer in view.consumers().items()}
        if present:
            outcome = self._store.transact(protocol.Transaction(
                tuple(protocol.Compare(*each) for each in present.items()),
                (*map(protocol.Delete, present),
                 protocol.Delete(self._names.counted))))
            if not outcome.succeeded:
                raise transactions.Conflict
        return view

    def transfer(self, source: str, target: str) -> bool:
        validation.check_transfer(source, target)

        def attempt() -> bool:
            found = self._store.read(_consumers([source, target])).records
            records.check(found.values())
            if not found[records.CONSUMER, source].amounts:
                return False
            moved = operations.Transfer({
                name: consumer for (_, name), consumer in found.items()})
            self._queue.do([moved])
            return bool(moved.result())

        return self._store.repeat(attempt)

    def claims_of(
        self, consumers: Iterable[str]
    ) -> dict[str, list[base.Claim]]:
        found = self._store.read(_consumers(consumers)).consumers()
        return {name: each.claims(name) for name, each in found.items()}

    def memberships(
        self, consumers: Iterable[str]
    ) -> dict[str, base.Membership]:
        found = self._store.read(_consumers(consumers)).consumers()
        return {name: base.joined(*each.joins)
                for name, each in found.items() if each.joins}

    def rename_host(self, former: str, name: str) -> None:
        for kv in self._store.all_of(records.GROUP):
            group = self._names.name(kv.key)
            names = records.StoredGroup.of(kv).on(former)
            # One key of each transaction is the group's.
            for part in transactions.chunks(names, self._store.keys_max - 1):
                self._store.repeat(lambda: self._rename(
                    group, part, former, name))

    def _rename(
        self, group: str, consumers: Sequence[str], former: str, name: str
    ) -> None:
        """Replace the host of some members of a group."""
        draft = transactions.Draft(self._store.read(
            [(records.GROUP, group), *_consumers(consumers)]))
        stored = draft.group(group)
        records.check([stored])
        for consumer in stored.on(former):
            if consumer in consumers:
                draft.rename_host(consumer, name)
        if draft.written and self._store.change(draft) is not None:
            raise transactions.Conflict

    def consumers(self, after: str = '', limit: int = 1000) -> list[str]:
        validation.check_limit(limit)
        names = (self._names.name(kv.key) for kv in self._store.all_of(
            records.CONSUMER, after, min(limit, transactions.PAGE))
            if not records.StoredConsumer.of(kv).unreadable)
        return [*itertools.islice(names, limit)]

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


def _consumers(names: Iterable[str]) -> list[records.Key]:
    return [(records.CONSUMER, name) for name in dict.fromkeys(names)]
