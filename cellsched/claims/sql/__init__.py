# SPDX-License-Identifier: Apache-2.0
"""Claims in a SQL database.

* ``schema``: the tables; ``migrations`` has their history.
* ``queries``: reads, and the traits of providers.
* ``providers``: writes of inventories and counters.
* ``postgresql`` and ``mariadb``: writes of claims, of one round trip each, so
  that a client that stops keeps no row locked.
* ``transactions``: the same on SQLite and MySQL, each call in one transaction.
* ``fragments``: the demand of a batch, and parts of statements.
* ``group_members``: memberships in server groups with a hard policy.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import types
from typing import Any
from typing import Self
from typing import TypeVar

from oslo_config import cfg
from oslo_log import log
import sqlalchemy as sa

from cellsched.claims import base
from cellsched.claims.sql import fragments
from cellsched.claims.sql import group_members
from cellsched.claims.sql import mariadb
from cellsched.claims.sql import postgresql
from cellsched.claims.sql import providers
from cellsched.claims.sql import queries
from cellsched.claims.sql import schema
from cellsched.claims.sql import transactions
from cellsched.claims import validation
from cellsched.db import feed
from cellsched.db import guarded_statements
from cellsched.db import mysql
from cellsched.db import session
from cellsched.db import tokens
from cellsched import exception

LOG = log.getLogger(__name__)

#: Transactions of one call before it fails. Each conflict means that another
#: transaction succeeded.
_ATTEMPTS_MAX = 100

#: Attempts of a write that waits for a lock, and of a claim, which can have
#: another host. A session that keeps a lock ends before the last attempt of a
#: write.
_BUSY_MAX, _BUSY_CLAIMS_MAX = 6, 2

#: Attempts of a call whose connections are lost. Others of the same pool may
#: lead to the same server, until the first one that fails discards them.
_LOST_MAX = 3

#: Errors after which a transaction can be retried; nothing was changed.
_CONFLICTS = (
    exception.ConstraintViolated, exception.TransactionLost,
    guarded_statements.StatementRefused, transactions.InsufficientCapacity)

_Outcome = TypeVar('_Outcome')


def database(
    conf: cfg.ConfigOpts, databases: session.Databases
) -> session.Database:
    """Return the database of claims that a deployment configures.

    The URL is ``[claims] connection``, or else that of the API database. The
    time to wait for a lock is ``[claims] lock_timeout``, except on SQLite. The
    other options are those of the API database if the process has one, and of
    the cell's database otherwise.

    :raises cellsched.exception.ConfigurationInvalid: there is no URL
    """
    url = conf.claims.connection or conf.api_database.connection
    if not url:
        raise exception.ConfigurationInvalid(
            field='[claims] connection',
            problem='it is not set',
            expected='a SQLAlchemy URL, here or in [api_database] connection')
    group = 'api_database' if conf.api_database.connection else 'database'
    options = session.engine_options(conf, group)
    if not url.startswith('sqlite'):
        options['lock_timeout'] = conf.claims.lock_timeout
    # Most of the time of a claim is that of its plan.
    options['plan_cache_mode'] = 'auto'
    return databases.get(url, 'claims', options)


class SQLClaims(base.RequestClaims, base.ClaimStore):
    """Keep claims in SQLite, PostgreSQL, MariaDB or MySQL.

    The UPDATE that claims capacity also checks it. A batch of any size is one
    transaction. On PostgreSQL and MariaDB each write is one round trip: a
    process that stops, or is cut off, keeps no row locked.

    A feed of :mod:`cellsched.db.feed` reports changed providers.

    The database is that of ``[claims] connection``, or else of
    ``[api_database] connection``; ``cellsched-manage claims_db sync`` creates
    its tables.
    """

    capabilities = frozenset(base.Capability)

    def __init__(self, database: session.Database) -> None:
        self._database = database

    @classmethod
    def from_conf(
        cls, conf: cfg.ConfigOpts, parts: base.ClaimStoreParts
    ) -> Self:
        return cls(database(conf, parts.databases))

    def check(self) -> None:
        schema.SCHEMA.check(self._database)

    def sync(self) -> None:
        schema.SCHEMA.sync(self._database)

    def claim_each(
        self, requests: Sequence[Sequence[Sequence[base.Claim]]]
    ) -> list[base.AnyOf | exception.CellschedException]:
        pending = [_Request(batches) for batches in requests]
        # 1. Claim the first batches together, as if all of them fit.
        plan: _Plan = {
            each: (base.AnyOf(0, len(each.batches[0])), each.batches[0])
            for each in pending if each.outcome is None}
        failures = _Failures(_BUSY_CLAIMS_MAX)
        for number in range(_ATTEMPTS_MAX):
            try:
                outcomes = self._carry_out(plan, is_first=not number)
                if outcomes is not None:
                    break
            except exception.DatabaseBusy as exc:
                if not self._pass_over(plan):
                    failures.add(exc)
            except exception.ConnectionLost as exc:
                failures.add(exc)
            except (*_CONFLICTS, exception.GroupPolicyViolated):
                pass
            # 2. Nothing is claimed, or the answer is lost. Read the state,
            # and claim together the batches that fit by now.
            plan = self._plan(plan)
        else:
            raise _too_many_conflicts()
        return [each.outcome or outcomes[each][0] for each in pending]

    def _carry_out(self, plan: '_Plan', is_first: bool) -> '_Plan | None':
        """Claim the planned batches in one transaction.

        The first attempt for a single request waits for no row if all its
        batches are like the first one: it claims the first one with room.

        :returns: the outcomes; None if that attempt finds no room
        """
        module = self._one_round_trip
        if is_first and len(plan) == 1 and module is not None:
            [request] = plan
            if _are_alike(request.batches):
                place = module.claim_first(
                    self._database, [each for each, in request.batches])
                return None if place is None else {
                    request: (base.AnyOf(place, 1), ())}
        claims = [claim for _, new in plan.values() for claim in new]
        if claims:
            self._write('claim', claims)
        return plan

    def _pass_over(self, requests: Iterable['_Request']) -> bool:
        """Refuse batches with locked providers; return whether there are any.

        The call waits for locked rows once, and not for each batch.
        """
        locked = self._locked(requests)
        for request in requests:
            for place, batch in request.unlocked():
                if not locked.isdisjoint(claim.provider for claim in batch):
                    request.busy[place] = exception.ClaimBusy(
                        schema='claims', providers=sorted(locked),
                        reason=f'the rows of {len(locked)} providers are '
                               'locked')
        return bool(locked)

    def _locked(self, requests: Iterable['_Request']) -> set[str]:
        """Return the providers of requests that a transaction has locked."""
        module = self._one_round_trip
        if module is None:
            return set()
        found: set[str] = module.locked(self._database, {
            claim.provider for request in requests
            for _, batch in request.unlocked() for claim in batch})
        return found

    def _plan(self, requests: Iterable['_Request']) -> '_Plan':
        """Return the outcomes of requests if their new claims are made.

        Each one gets its first batch that fits beside those of the requests
        before it. An attempt whose answer is lost may have claimed, and
        another scheduler may have claimed for the same consumers: a request
        that needs no claim, or has an error, has its outcome then.
        """
        every = [claim for request in requests
                 for batch in request.batches for claim in batch]

        def state(connection: sa.Connection) -> Any:
            return (
                queries.claims_of(
                    connection, {claim.consumer for claim in every}),
                queries.inventories(
                    connection, {claim.provider for claim in every}),
                group_members.members(connection, every))

        def find(
            claims: Sequence[base.Claim]
        ) -> exception.ClaimRefused | None:
            return (
                validation.find_violation([*joined, *claims], members)
                or validation.find_refusal(claims, inventories, used))

        held, (inventories, used), members = self._read(state)
        plan: _Plan = {}
        joined: list[base.Claim] = []
        for request in requests:
            own = {claim.consumer: held[claim.consumer]
                   for claim in request.batches[0] if claim.consumer in held}
            try:
                outcome, new = validation.choose(
                    request.batches, own, find, request.busy)
            except (exception.ClaimConflict, exception.InvalidField) as exc:
                request.outcome = exc
                continue
            if outcome.chosen is not None and not new:
                request.outcome = outcome
                continue
            plan[request] = outcome, new
            joined += [each for each in new if each.group]
            _count(new, used)
        return plan

    def release(self, consumers: Iterable[str]) -> None:
        consumers = list(consumers)

        def attempt() -> None:
            self._write('release', consumers)

        if consumers:
            _repeat(attempt, busy_max=_BUSY_MAX)
        # MariaDB and MySQL lock one consumer after the other. A concurrent
        # transfer between them may hide its claims, which a read shows.
        if len(consumers) > 1 and self._database.engine.dialect.name in (
                mysql.DIALECTS) and self.claims_of(consumers):
            _repeat(attempt, busy_max=_BUSY_MAX)

    def transfer(self, source: str, target: str) -> bool:
        validation.check_transfer(source, target)
        lost: list[base.Claim] = []

        def attempt() -> bool:
            nonlocal lost
            held = self.claims_of([source]).get(source)
            if held is None:
                # An attempt whose answer was lost may have moved the claims.
                return bool(lost) and self._holds(target, lost)
            try:
                if self._write('transfer', source, target):
                    return True
            except exception.ConnectionLost:
                lost = held
                raise
            # A concurrent transfer has replaced the claims. The snapshot of
            # PostgreSQL does not have the new ones.
            raise guarded_statements.StatementRefused

        return _repeat(attempt, busy_max=_BUSY_MAX)

    def _holds(self, consumer: str, claims: Iterable[base.Claim]) -> bool:
        """Return whether a consumer holds the claims of another one."""
        return self.claims_of([consumer]).get(consumer) == [
            dataclasses.replace(each, consumer=consumer) for each in claims]

    def consumers(self, after: str = '', limit: int = 1000) -> list[str]:
        validation.check_limit(limit)
        return self._read(queries.consumers, after, limit)

    def claims_of(
        self, consumers: Iterable[str]
    ) -> dict[str, list[base.Claim]]:
        return self._read(queries.claims_of, list(consumers))

    def memberships(
        self, consumers: Iterable[str]
    ) -> dict[str, base.Membership]:
        return self._read(group_members.memberships, list(consumers))

    def rename_host(self, former: str, name: str) -> None:
        def attempt() -> None:
            with self._database.writer() as connection:
                group_members.rename_host(connection, former, name)

        _repeat(attempt, busy_max=_BUSY_MAX)

    def same_backend(self, other: base.ClaimStore) -> bool:
        return isinstance(other, SQLClaims) and (
            other._database is self._database
            or tokens.is_same_database(self._database, other._database))

    def set_inventory(
        self, provider: str, inventory: Mapping[str, base.Inventory]
    ) -> None:
        validation.check_inventory(provider, inventory)

        _repeat(lambda: providers.set_inventory(
            self._database, provider, inventory), busy_max=_BUSY_MAX)

    def set_traits(
        self, provider: str, traits: Iterable[str], root: str
    ) -> None:
        has = frozenset(traits)
        validation.check_traits(provider, has, root)

        def attempt() -> None:
            with self._database.reader() as connection:
                current = queries.traits_of(connection, provider)
            if current == (root, has):
                return
            # A client that stops here locks rows that no claim needs.
            with self._database.writer() as connection:
                queries.set_traits(connection, provider, has, root)

        _repeat(attempt, busy_max=_BUSY_MAX)

    def roots(self, providers: Iterable[str]) -> dict[str, str]:
        named = list(providers)
        return self._read(queries.roots, named) if named else {}

    def find_providers(
        self, query: base.ProviderQuery, limit: int | None = None
    ) -> list[str]:
        validation.check_query(query, limit)
        return self._read(queries.find, query, limit)

    def inventories(
        self, providers: Iterable[str] | None = None
    ) -> dict[str, dict[str, base.Inventory]]:
        inventories, _ = self._read(
            queries.inventories,
            None if providers is None else list(providers))
        return inventories

    def recount(self, provider: str) -> bool:
        def attempt() -> bool:
            with self._database.reader() as connection:
                found = providers.find_correction(connection, provider)
            if found is not None:
                providers.correct(self._database, provider, found)
            return found is not None

        return _repeat(attempt, busy_max=_BUSY_MAX)

    def usages(
        self, since: Any = None, providers: Iterable[str] | None = None
    ) -> base.UsageChanges:
        if providers is None:
            return self._read(_usages_since, since)
        return base.UsageChanges(since, self._read(
            queries.usages_of, list(providers)))

    @property
    def _one_round_trip(self) -> types.ModuleType | None:
        """The module that writes in one round trip, if there is one."""
        dialect: Any = self._database.engine.dialect
        if dialect.name == 'postgresql':
            return postgresql
        if dialect.name in mysql.DIALECTS and dialect.is_mariadb:
            return mariadb
        return None

    def _read(
        self, query: Callable[..., _Outcome], *args: Any
    ) -> _Outcome:
        """Return the result of a query of a connection."""
        def attempt() -> _Outcome:
            with self._database.reader() as connection:
                return query(connection, *args)

        return _repeat(attempt)

    def _write(self, name: str, *args: Any) -> Any:
        """Call a function that writes in a transaction; return its result."""
        module = self._one_round_trip
        if module is not None:
            return getattr(module, name)(self._database, *args)
        with self._database.writer() as connection:
            return getattr(transactions, name)(connection, *args)


class _Request:
    """The alternative batches of one request.

    :ivar busy: the refusals of batches with locked providers, by position
    :ivar outcome: the outcome if it needs no write, or has an error
    """

    def __init__(self, batches: Sequence[Sequence[base.Claim]]) -> None:
        self.batches = batches
        self.busy: dict[int, exception.ClaimBusy] = {}
        self.outcome: base.AnyOf | exception.CellschedException | None = None
        try:
            validation.check_claims(batches[0])
        except exception.InvalidField as exc:
            self.outcome = exc

    def unlocked(self) -> list[tuple[int, Sequence[base.Claim]]]:
        """Return the batches that may be claimed, with their positions."""
        return [(place, batch) for place, batch in enumerate(self.batches)
                if place not in self.busy]


#: The outcomes of requests if their new claims are made, and these claims.
_Plan = dict[_Request, tuple[base.AnyOf, Sequence[base.Claim]]]


def _count(
    claims: Iterable[base.Claim], used: dict[str, dict[str, int]]
) -> None:
    """Add claims to used amounts by provider and resource class."""
    for claim in claims:
        amounts = used[claim.provider]
        for resource, amount in claim.resources.items():
            amounts[resource] += amount


def _are_alike(batches: Sequence[Sequence[base.Claim]]) -> bool:
    """Return whether batches are single claims that differ in the provider.

    A claim with a membership differs in the host, too.
    """
    first = batches[0][0]
    if first.group is not None or (
            not 1 < len(batches) <= fragments.CANDIDATES_MAX):
        return False
    for batch in batches:
        claim = batch[0]
        if (len(batch) > 1 or claim.consumer != first.consumer
                or claim.group is not None
                or claim.resources != first.resources
                or claim.project_id != first.project_id
                or claim.user_id != first.user_id):
            return False
        if claim is not first:
            validation.check_provider(claim)
    return True


def _usages_since(connection: sa.Connection, since: Any) -> base.UsageChanges:
    # The token is read first. Changes committed later are reported twice.
    until = schema.FEED.token(connection)
    if since is None or not feed.follows(since, until):
        return base.UsageChanges(until, queries.usages(connection))
    if since == until:
        return base.UsageChanges(until, [])
    return base.UsageChanges(until, queries.changed_usages(connection, since))


def _repeat(
    attempt: Callable[[], _Outcome], busy_max: int = 1
) -> _Outcome:
    """Repeat an attempt until it has no conflict; return its outcome.

    If every transaction is serializable, reads may conflict, too. If the
    connection is lost, the outcome of the attempt is unknown, so the attempt
    has to be idempotent.

    :param busy_max: number of attempts that may exceed their time limit
    """
    failures = _Failures(busy_max)
    for _ in range(_ATTEMPTS_MAX):
        try:
            return attempt()
        except (exception.DatabaseBusy, exception.ConnectionLost) as exc:
            failures.add(exc)
        except _CONFLICTS:
            pass
    raise _too_many_conflicts()


class _Failures:
    """Counts the failed attempts of one call that are not conflicts.

    :param busy_max: number of attempts that may exceed their time limit
    """

    def __init__(self, busy_max: int) -> None:
        self._remaining = {False: busy_max, True: _LOST_MAX}

    def add(
        self, error: exception.DatabaseBusy | exception.ConnectionLost
    ) -> None:
        """Count a failed attempt; raise its error if no other one follows."""
        is_lost = isinstance(error, exception.ConnectionLost)
        self._remaining[is_lost] -= 1
        if not self._remaining[is_lost]:
            raise error
        if is_lost:
            LOG.warning('Repeating a call of the claim store: %s', error)


def _too_many_conflicts() -> exception.ClaimStoreFailed:
    return exception.ClaimStoreFailed(
        reason=f'{_ATTEMPTS_MAX} transactions in a row had conflicts')
