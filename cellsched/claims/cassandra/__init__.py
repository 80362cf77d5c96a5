# SPDX-License-Identifier: Apache-2.0
"""Claims in Cassandra.

Modules, from the server upwards:

* ``requests``: requests to the server and its answers, as values; each is
  about one partition. ``statements`` has them as CQL, ``client`` sends them.
* ``session``: repeats requests until there is an answer.
* ``slots`` and ``ledger``: the partition of a provider, its inventory and
  counters, and the rows of its claims.
* ``records`` and ``recovery``: the row of a consumer, and the completion or
  rollback of interrupted operations.
* ``operations``: claim, release and transfer.
* ``trees``: finds providers by capacity and traits.
"""

from collections.abc import Callable
from collections.abc import Iterable
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
from cellsched.claims.cassandra.operations import Release
from cellsched.claims.cassandra.operations import Transfer
from cellsched.claims.cassandra import options
from cellsched.claims.cassandra.recovery import ConsumerRecovery
from cellsched.claims.cassandra import requests
from cellsched.claims.cassandra.session import CassandraSender
from cellsched.claims.cassandra.session import CONTENDED
from cellsched.claims.cassandra.session import Session
from cellsched.claims.cassandra import slots
from cellsched.claims.cassandra import trees
from cellsched.claims import remote
from cellsched.claims import validation
from cellsched.clock import Clock
from cellsched import exception

#: Where conditions on figures and rows of a partition are as they must be.
_VERSION_MIN = (4, 0)

#: Providers that changed which are read one by one, and not all together.
_FEW = 100


class CassandraClaims(base.ClaimStore):
    """Keep claims in Cassandra.

    A provider is a partition: its figures, and a row for each claim. One
    conditional batch changes both, and what several threads of a process want
    of a provider is one batch. A consumer's row says what it holds, or is
    about to. So a claim of one provider takes two conditional writes, and one
    of N providers N + 2, N of them at a time.

    What changed is told after a look at the generation of each provider. The
    cluster is that of ``[claims] connection``, and ``cellsched-manage
    claims_db sync`` makes the keyspace and its tables. The extra
    ``cassandra`` installs what it needs.

    :param client: sends requests and returns answers, as
        :class:`.asking.CassandraSender` says
    :param patience_s: seconds for which a call tries to find out
    :param abandoned_s: seconds for which a claim or a transfer on its way is
        left alone by those who meet it
    :param adds: whether the server adds to a column under a condition; None
        to ask it
    :param copies: of the data, where the keyspace is made
    :param place: says where the server is, without passwords
    :param close: ends the connections of the client
    """

    capabilities = frozenset({
        base.Capability.ATOMIC, base.Capability.DURABLE,
        base.Capability.SHARED, base.Capability.QUERY})
    group: ClassVar[str] = options.GROUP

    def __init__(
        self, client: CassandraSender, clock: Clock,
        random: Random, patience_s: float = 30.0,
        abandoned_s: float = 3.0, adds: bool | None = None, copies: int = 1,
        place: str = 'cassandra://',
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._session = Session(client, clock, random, patience_s, place)
        self._ledger = ledger.Ledger(self._session, adds)
        self._recovery = ConsumerRecovery(
            self._session, self._ledger, abandoned_s)
        self._claiming = BatchClaim(
            self._session, self._ledger, self._recovery)
        self._releasing = Release(
            self._session, self._ledger, self._recovery)
        self._transferring = Transfer(
            self._session, self._recovery)
        self._trees = trees.ProviderTrees(self._session)
        self._copies = copies
        self._place = place
        self._close = close

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return options.opts()

    @classmethod
    def from_conf(
        cls, conf: cfg.ConfigOpts, parts: base.ClaimStoreParts
    ) -> Self:
        # The library is not there where nobody uses it.
        from cellsched.claims.cassandra import client

        own = conf[cls.group]
        options.check(own)
        address = options.address(conf.claims.connection)
        sender = client.CassandraClient(address, own, parts.clock)
        return cls(
            sender, parts.clock, parts.random, own.patience,
            own.abandoned_after, options.ADDS[own.arithmetic],
            own.replication_factor, address.shown, sender.close)

    def close(self) -> None:
        self._close()

    def check(self) -> None:
        described = self._session.ask(requests.Describe())
        if remote.release(described.version) < _VERSION_MIN:
            raise exception.ConfigurationInvalid(
                field='[claims] connection',
                expected='Cassandra '
                         f'{".".join(map(str, _VERSION_MIN))} or later, not '
                         f'{described.version:.40}')
        if described.missing:
            raise exception.SchemaOutOfDate(
                schema='claims', url=self._place, version='none',
                expected=', '.join(described.missing),
                command='cellsched-manage claims_db sync')
        self._learn(described)

    def sync(self) -> None:
        self._session.ask(requests.Create(self._copies))
        self._learn(self._session.ask(requests.Describe()))

    def claim(self, claims: Sequence[base.Claim]) -> int:
        validation.check_claims(claims)
        self._prepare()
        return self._claiming.claim(claims) if claims else 0

    def release(self, consumers: Iterable[str]) -> None:
        self._prepare()
        self._releasing.release(_kept(consumers))

    def transfer(self, source: str, target: str) -> bool:
        validation.check_transfer(source, target)
        self._prepare()
        return self._transferring.transfer(source, target)

    def claims_of(
        self, consumers: Iterable[str]
    ) -> dict[str, list[base.Claim]]:
        return {
            consumer: state.holding.of(consumer)
            for consumer, state
            in self._recovery.states(_kept(consumers)).items()
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
        self._prepare()
        for _ in self._session.attempts():
            figures = self._session.ask(requests.ReadFigures(provider))
            wanted = (slots.first(provider, inventory) if figures is None
                      else slots.following(
                          figures, inventory, bool(self._ledger.adds)))
            if wanted is None:
                return
            answer = self._session.try_all([wanted])[0]
            if not isinstance(answer, Exception) and answer.applied:
                return
        self._session.unreachable(CONTENDED)

    def set_traits(
        self, provider: str, traits: Iterable[str], root: str
    ) -> None:
        told = frozenset(traits)
        validation.check_traits(provider, told, root)
        self._trees.tell(provider, told, root)

    def roots(self, providers: Iterable[str]) -> dict[str, str]:
        return self._trees.roots(_kept(providers))

    def find_providers(
        self, query: base.ProviderQuery, limit: int | None = None
    ) -> list[str]:
        validation.check_query(query, limit)
        return self._trees.find(query, limit)

    def recount(self, provider: str) -> bool:
        self._prepare()
        return self._recovery.recount(provider)

    def usages(
        self, since: Any = None, providers: Iterable[str] | None = None
    ) -> base.UsageChanges:
        if providers is not None:
            return base.UsageChanges(since, self._usages_of(providers))
        if since is None:
            found = self._session.ask(requests.Scan(figures=True))
            return base.UsageChanges(
                {each.provider: each.generation for each in found},
                [_usage(each) for each in found])
        token = dict(self._session.ask(requests.Scan()))
        changed = [provider for provider, generation in token.items()
                   if since.get(provider) != generation]
        if len(changed) <= _FEW:
            return base.UsageChanges(token, self._usages_of(changed))
        wanted = {*changed}
        return base.UsageChanges(token, [
            _usage(each)
            for each in self._session.ask(requests.Scan(figures=True))
            if each.provider in wanted])

    def _usages_of(self, providers: Iterable[str]) -> list[base.Usage]:
        found = self._session.ask_all([
            requests.ReadFigures(provider)
            for provider in _kept(dict.fromkeys(providers))])
        return [_usage(each) for each in found if each is not None]

    def _prepare(self) -> None:
        """Learn what the server can do, where nobody has asked it before."""
        if self._ledger.adds is None:
            self._learn(self._session.ask(requests.Describe()))

    def _learn(self, described: requests.Described) -> None:
        if self._ledger.adds is None:
            self._ledger.adds = described.adds

    def _identity(self) -> str:
        described: requests.Described = self._session.ask(requests.Describe())
        return described.identity


def _usage(figures: requests.Figures) -> base.Usage:
    return slots.parse(figures.inventory).usage(figures)


def _kept(names: Iterable[str]) -> list[str]:
    """Return names without the empty one, which no partition can have."""
    return [name for name in names if name]
