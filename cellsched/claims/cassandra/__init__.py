# SPDX-License-Identifier: Apache-2.0
"""Claims in Cassandra.

Modules, from the server upwards:

* ``requests``: requests to the server and its answers, as values; each is
  about one partition. ``client`` sends them.
* ``session``: repeats requests until there is an answer.
* ``slots`` and ``ledger``: the partition of a provider, its inventory and
  counters, and the rows of its claims.
* ``records`` and ``recovery``: the row of a consumer, and the completion or
  rollback of interrupted operations.
* ``operations``: claim, release and transfer.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from random import Random
from typing import Any
from typing import ClassVar
from typing import Self

from oslo_config import cfg

from cellsched.claims import base
from cellsched.claims.cassandra import ledger
from cellsched.claims.cassandra.operations import BatchClaim
from cellsched.claims.cassandra.operations import ConsumerOperations
from cellsched.claims.cassandra import options
from cellsched.claims.cassandra.recovery import ConsumerRecovery
from cellsched.claims.cassandra import requests
from cellsched.claims.cassandra.session import CassandraSender
from cellsched.claims.cassandra.session import CONTENDED
from cellsched.claims.cassandra.session import Session
from cellsched.claims.cassandra import slots
from cellsched.claims.coordination import ContentionLock
from cellsched.claims import remote
from cellsched.claims import validation
from cellsched.clock import Clock
from cellsched import exception

#: Where conditions on figures and rows of a partition are as they must be.
_VERSION_MIN = (4, 0)

#: Advice on an unreadable row.
_RESTORE = ('restore its value, or delete the row if no later release wrote '
            'it, and audit again')

#: Number of changed providers, and their share of all, up to which they are
#: read one by one.
_SINGLE_READS_MAX, _SINGLE_READS_SHARE = 100, 0.25


class CassandraClaims(base.RequestClaims, base.ClaimStore):
    """Keep claims in Cassandra.

    A provider is a partition with its counters and a row for each claim. One
    conditional batch changes both, for all claims of a call. The row of a
    consumer has its claims, or the intent of the operation in progress. So a
    claim of one provider takes two conditional writes, and a claim of N
    providers takes N + 2, of which N are concurrent.

    The generations of all providers are read to find those that changed.
    ``[claims] connection`` is the URL of the cluster, and ``cellsched-manage
    claims_db sync`` creates the keyspace and its tables. The extra
    ``cassandra`` installs what this store needs.

    :param client: sends requests
    :param retry_timeout_s: seconds for which a call is retried
    :param abandoned_s: seconds after which other clients end an unfinished
        claim or transfer
    :param adds: whether the server supports addition to a column under a
        condition; None to detect it
    :param copies: replication factor of a new keyspace
    :param place: URL of the server without passwords, for error messages
    :param close: closes the connections of the client
    :param locks: of contended providers between processes; None for none
    """

    capabilities = frozenset({
        base.Capability.ATOMIC, base.Capability.DURABLE,
        base.Capability.SHARED, base.Capability.QUERY})
    group: ClassVar[str] = options.GROUP

    def __init__(
        self, client: CassandraSender, clock: Clock,
        random: Random, retry_timeout_s: float = 30.0,
        abandoned_s: float = 3.0, adds: bool | None = None, copies: int = 1,
        place: str = 'cassandra://',
        close: Callable[[], None] = lambda: None,
        locks: ContentionLock | None = None,
    ) -> None:
        self._session = Session(client, clock, random, retry_timeout_s, place)
        self._ledger = ledger.Ledger(
            self._session, adds, locks or ContentionLock(clock))
        self._recovery = ConsumerRecovery(
            self._session, self._ledger, abandoned_s)
        self._claim = BatchClaim(
            self._session, self._ledger, self._recovery)
        self._operations = ConsumerOperations(self._session, self._recovery)
        self._copies = copies
        self._place = place
        self._close = close
        #: Providers whose inventory could not be read last.
        self._unreadable: set[str] = set()

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return options.opts()

    @classmethod
    def from_conf(
        cls, conf: cfg.ConfigOpts, parts: base.ClaimStoreParts
    ) -> Self:
        # The library is an optional extra.
        from cellsched.claims.cassandra import client

        own = conf[cls.group]
        options.check(own)
        address = options.address(conf.claims.connection)
        sender = client.CassandraClient(address, own, parts.clock)
        return cls(
            sender, parts.clock, parts.random, own.retry_timeout,
            own.abandoned_after, options.ADDS[own.arithmetic],
            own.replication_factor, address.shown, sender.close, parts.locks)

    def close(self) -> None:
        self._close()

    def check(self) -> None:
        described = self._session.ask(requests.Describe())
        if remote.release(described.version) < _VERSION_MIN:
            raise exception.ConfigurationInvalid(
                field='[claims] connection',
                problem='the server is Cassandra '
                        f'{described.version:.40}',
                expected='Cassandra '
                         f'{".".join(map(str, _VERSION_MIN))} or later')
        if described.missing:
            raise exception.SchemaOutOfDate(
                schema='claims', url=self._place, version='none',
                expected=', '.join(described.missing),
                command='cellsched-manage claims_db sync')

    def sync(self) -> None:
        self._session.ask(requests.Create(self._copies))

    def claim_each(
        self, requests: Sequence[Sequence[Sequence[base.Claim]]]
    ) -> Sequence[base.AnyOf | exception.CellschedException]:
        found = self._claim.claim_each(requests)
        outcomes: list[base.AnyOf | exception.CellschedException] = []
        for number, batches in enumerate(requests):
            try:
                outcomes.append(found.get(number) or base.claim_in_order(
                    self, batches, claim=self._claim.claim))
            except exception.CellschedException as exc:
                outcomes.append(exc)
        return outcomes

    def release(self, consumers: Iterable[str]) -> None:
        self._operations.release(_keys(consumers))

    def transfer(self, source: str, target: str) -> bool:
        validation.check_transfer(source, target)
        return self._operations.transfer(source, target)

    def claims_of(
        self, consumers: Iterable[str]
    ) -> dict[str, list[base.Claim]]:
        return {
            consumer: state.holding.of(consumer)
            for consumer, state
            in self._recovery.states(_keys(consumers)).items()
            if state.holding is not None}

    def same_backend(self, other: base.ClaimStore) -> bool:
        return isinstance(other, CassandraClaims) and (
            other is self or self._identity() == other._identity())

    def consumers_of(self, provider: str) -> list[str]:
        if not provider:
            return []
        _, rows = self._session.ask(requests.ReadProvider(provider))
        return self._recovery.consumers_of(provider, rows)

    def set_inventory(
        self, provider: str, inventory: Mapping[str, base.Inventory]
    ) -> None:
        validation.check_inventory(provider, inventory)
        for _ in self._session.attempts():
            figures = self._session.ask(requests.ReadFigures(provider))
            change = slots.change(provider, figures, inventory)
            if change is None or self._ledger.try_change(change, figures):
                return
        self._session.unreachable(CONTENDED)

    def set_traits(
        self, provider: str, traits: Iterable[str], root: str
    ) -> None:
        names = frozenset(traits)
        validation.check_traits(provider, names, root)
        for _ in self._session.attempts():
            seen = self._session.ask(requests.ReadTree(provider))
            if seen is not None and (seen.root, {*seen.traits}) == (
                    root, names):
                return
            [written] = self._session.try_all([requests.WriteTree(
                provider, seen and seen.version, requests.Tree(
                    self._session.name(), root, tuple(sorted(names))))])
            if written is True:
                return
        self._session.unreachable(CONTENDED)

    def roots(self, providers: Iterable[str]) -> dict[str, str]:
        names = _keys(providers)
        found = self._session.ask_all(
            [requests.ReadTree(name) for name in names])
        return {name: tree.root for name, tree in zip(names, found)
                if tree is not None}

    def find_providers(
        self, query: base.ProviderQuery, limit: int | None = None
    ) -> list[str]:
        validation.check_query(query, limit)
        # Indexes find the providers with a trait, and those that are not
        # roots. There is none of the free capacity, as the capacity is a part
        # of the inventory's JSON.
        required, forbidden = sorted(query.required), sorted(query.forbidden)
        providers, nested, *having = self._session.ask_all([
            requests.Scan(figures=True), requests.ScanTrees(nested=True),
            *map(requests.ScanTrees, [*required, *forbidden])])
        found = slots.with_room(providers, dict(nested), query.resources)
        for pairs in having[len(required):]:
            found.difference_update(provider for provider, _ in pairs)
        matching = found.intersection(*(
            {root for _, root in pairs} for pairs in having[:len(required)]))
        if matching != found:
            # A root without a row matches any traits.
            known = self._session.ask(requests.ScanTrees())
            matching |= found.difference(provider for provider, _ in known)
        roots = sorted(matching)
        if limit is None or len(roots) <= limit:
            return roots
        return self._session.random.sample(roots, limit)

    def recount(self, provider: str) -> bool:
        return self._recovery.recount(provider)

    def usages(
        self, since: Any = None, providers: Iterable[str] | None = None
    ) -> base.UsageChanges:
        if providers is not None:
            return base.UsageChanges(since, self._usages_of(providers))
        self._recovery.sweep()
        known = since or {}

        def is_changed(provider: str, generation: int) -> bool:
            # An operator who mends a provider does not change its generation.
            return (known.get(provider) != generation
                    or provider in self._unreadable)

        if since is not None:
            token = dict(self._session.ask(requests.Scan()))
            changed = [provider for provider, generation in token.items()
                       if is_changed(provider, generation)]
            if len(changed) <= min(
                    _SINGLE_READS_MAX, _SINGLE_READS_SHARE * len(token)):
                return base.UsageChanges(token, self._usages_of(changed))
        found = self._session.ask(requests.Scan(figures=True))
        return base.UsageChanges(
            {each.provider: each.generation for each in found},
            [self._usage(each) for each in found
             if is_changed(each.provider, each.generation)])

    def _usage(self, figures: requests.Figures) -> base.Usage:
        """Return a usage; without capacity if it cannot be read."""
        provider = figures.provider
        known = slots.Slots.of(figures)
        if known.unreadable:
            self._unreadable.add(provider)
            self._session.report(
                str(slots.unreadable(provider, known.unreadable)))
        elif provider in self._unreadable:
            # Releases meanwhile could not count.
            self._recovery.recount(provider)
            self._unreadable.discard(provider)
            figures = self._session.ask(
                requests.ReadFigures(provider)) or figures
            known = slots.Slots.of(figures)
        return known.usage(figures)

    def _usages_of(self, providers: Iterable[str]) -> list[base.Usage]:
        found = self._session.ask_all([
            requests.ReadFigures(provider, serial=False)
            for provider in _keys(providers)])
        return [self._usage(each) for each in found if each is not None]

    def problems(self) -> list[base.StoreProblem]:
        found = []
        for figures in self._session.ask(requests.Scan(figures=True)):
            known = slots.Slots.of(figures)
            is_unreadable = bool(slots.parse(figures.inventory).unreadable)
            if known.unreadable:
                found.append(base.StoreProblem(
                    f'claims: provider {figures.provider}', known.unreadable,
                    _RESTORE if is_unreadable else '',
                    figures.provider if is_unreadable else ''))
            if figures.consumers != 0:
                found += self._problems_of(figures.provider)
        return list(dict.fromkeys(found))

    def _problems_of(self, provider: str) -> Iterator[base.StoreProblem]:
        _, rows = self._session.ask(requests.ReadProvider(provider))
        for row in rows:
            if slots.resources_of(row) is None:
                yield base.StoreProblem(
                    f'claims: provider {provider}, consumer {row.consumer}',
                    f'the resources {row.resources!r:.80} cannot be read',
                    _RESTORE)
        for record in self._session.read_all(
                row.consumer for row in rows).values():
            if record is not None and record.unreadable:
                yield base.StoreProblem(
                    f'consumers: {record.consumer}', record.unreadable,
                    _RESTORE)

    def mend(self) -> None:
        for figures in self._session.ask(requests.Scan(figures=True)):
            if slots.Slots.of(figures).unreadable:
                self._recovery.recount(figures.provider)

    def _identity(self) -> str:
        described: requests.KeyspaceDescription = self._session.ask(
            requests.Describe())
        return described.identity


def _keys(names: Iterable[str]) -> list[str]:
    """Return the partition keys among names, sorted.

    The empty name is no key. A set of names has another order in each
    process, and the order of requests must not depend on that.
    """
    return sorted({*names} - {''})
