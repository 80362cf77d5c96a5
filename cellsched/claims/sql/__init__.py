# SPDX-License-Identifier: Apache-2.0
"""Claims in a SQL database.

* ``schema``: the tables; ``migrations`` has their history.
* ``queries``: reads, and the traits of providers.
* ``postgresql`` and ``mariadb``: writes of one round trip each, so that a
  client that stops keeps no row locked.
* ``transactions``: writes on SQLite and MySQL, each call in one transaction.
* ``single_statement``: the one statement of most claims on PostgreSQL.
* ``fragments``: parts of the statements that claim, and their parameters.
* ``group_members``: memberships in server groups with a hard policy.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
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
from cellsched.claims.sql import queries
from cellsched.claims.sql import schema
from cellsched.claims.sql import single_statement
from cellsched.claims.sql import transactions
from cellsched.claims import validation
from cellsched.db import feed
from cellsched.db import guarded_statements
from cellsched.db import mysql
from cellsched.db import session
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


class SQLClaims(base.ClaimStore):
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

    def claim(self, claims: Sequence[base.Claim]) -> int:
        validation.check_claims(claims)
        remaining = list(claims)

        def attempt() -> None:
            if remaining:
                self._write('claim', remaining)

        def attempt_at_once() -> None:
            if not remaining or not single_statement.claim(
                    self._database, remaining):
                attempt()

        def after_conflict() -> None:
            held = self.claims_of(claim.consumer for claim in claims)
            remaining[:] = validation.outstanding(claims, held)
            self._refuse(remaining)

        try:
            _repeat(attempt, after_conflict, attempt_at_once,
                    _BUSY_CLAIMS_MAX, lambda: self._check_locked(remaining))
        except exception.DatabaseBusy:
            self._check_locked(remaining)
            raise
        return len(remaining)

    def claim_any(
        self, batches: Sequence[Sequence[base.Claim]]
    ) -> base.AnyOf:
        if len(batches) == 1:
            return super().claim_any(batches)
        place = None
        if self._one_round_trip is None:
            place = self._claim_first(batches)
        else:
            # The batches are made when they are first read.
            batches = list(batches)
            validation.check_claims(batches[0])
            if _are_alike(batches):
                validation.check_providers(batches[1:])
                place = self._claim_alike(batches)
            else:
                for batch in batches[1:]:
                    validation.check_claims(batch)
        return (self._claim_in_order(batches) if place is None
                else base.AnyOf(place, len(batches[place])))

    def _claim_alike(
        self, batches: Sequence[Sequence[base.Claim]]
    ) -> int | None:
        """Claim the first batch with room, without waiting.

        :param batches: for which :func:`_are_alike` is true
        :returns: its position; None if there is no claim so far
        """
        module = self._one_round_trip
        assert module is not None
        with contextlib.suppress(
                *_CONFLICTS, exception.ConnectionLost, exception.DatabaseBusy):
            place: int | None = module.claim_any(
                self._database, [claim for claim, in batches])
            return place
        return None

    def _claim_first(
        self, batches: Sequence[Sequence[base.Claim]]
    ) -> int | None:
        """Claim the first batch that fits in one transaction, if any."""
        validation.check_claims(batches[0])
        # 1. Most claims are on the first hosts: do not read the others.
        with (contextlib.suppress(*_CONFLICTS, exception.ConnectionLost,
                                  exception.GroupPolicyViolated),
              self._database.writer() as connection):
            transactions.claim(connection, batches[0])
            return 0
        # 2. Read what all alternatives have.
        for batch in batches[1:]:
            validation.check_claims(batch)
        with (contextlib.suppress(*_CONFLICTS, exception.ConnectionLost),
              self._database.writer() as connection):
            return transactions.claim_first(connection, batches)
        return None

    def _claim_in_order(
        self, batches: Sequence[Sequence[base.Claim]]
    ) -> base.AnyOf:
        """Claim the first batch that fits, and wait for locked rows."""
        # 1. An earlier call, whose reply was lost, may have claimed a batch.
        if self.claims_of({claim.consumer for claim in batches[0]}):
            return super().claim_any(batches)
        # 2. Read which batches fit, and claim the first one of these.
        refusals: dict[
            int, exception.ClaimRefused | exception.ClaimBusy] = {}
        fitting = []
        for position, refusal in enumerate(self._refusals(batches)):
            if refusal is None:
                fitting.append(position)
            else:
                refusals[position] = refusal
        while fitting:
            position = fitting.pop(0)
            try:
                new = self.claim(batches[position])
                return base.AnyOf(position, new, {
                    place: refusal for place, refusal in refusals.items()
                    if place < position})
            except exception.ClaimBusy as exc:
                # 3. The call waits once until the time limit.
                refusals[position] = exc
                busy = self._locked(claim for place in fitting
                                    for claim in batches[place])
                for place in fitting[:]:
                    if not busy.isdisjoint(
                            claim.provider for claim in batches[place]):
                        refusals[place] = exc
                        fitting.remove(place)
            except exception.ClaimRefused as exc:
                refusals[position] = exc
        return base.AnyOf(None, 0, refusals)

    def release(self, consumers: Iterable[str]) -> None:
        consumers = list(consumers)

        if consumers:
            _repeat(lambda: self._write('release', consumers),
                    busy_max=_BUSY_MAX)

    def transfer(self, source: str, target: str) -> bool:
        validation.check_transfer(source, target)
        is_repeated = False

        def attempt() -> bool:
            nonlocal is_repeated
            try:
                # An attempt whose answer was lost may have moved the claims.
                return bool(self._write('transfer', source, target)) or (
                    is_repeated and bool(self.claims_of([target])))
            except exception.ConnectionLost:
                is_repeated = True
                raise

        return _repeat(attempt, busy_max=_BUSY_MAX)

    def consumers(self, after: str = '', limit: int = 1000) -> list[str]:
        validation.check_limit(limit)

        def attempt() -> list[str]:
            with self._database.reader() as connection:
                return queries.consumers(connection, after, limit)

        return _repeat(attempt)

    def claims_of(
        self, consumers: Iterable[str]
    ) -> dict[str, list[base.Claim]]:
        consumers = list(consumers)

        def attempt() -> dict[str, list[base.Claim]]:
            with self._database.reader() as connection:
                return queries.claims_of(connection, consumers)

        return _repeat(attempt)

    def memberships(
        self, consumers: Iterable[str]
    ) -> dict[str, base.Membership]:
        consumers = list(consumers)

        def attempt() -> dict[str, base.Membership]:
            with self._database.reader() as connection:
                return group_members.memberships(connection, consumers)

        return _repeat(attempt)

    def rename_host(self, former: str, name: str) -> None:
        def attempt() -> None:
            with self._database.writer() as connection:
                group_members.rename_host(connection, former, name)

        _repeat(attempt, busy_max=_BUSY_MAX)

    def same_backend(self, other: base.ClaimStore) -> bool:
        return isinstance(other, SQLClaims) and (
            other._database is self._database
            or session.is_same_database(self._database, other._database))

    def set_inventory(
        self, provider: str, inventory: Mapping[str, base.Inventory]
    ) -> None:
        validation.check_inventory(provider, inventory)

        def attempt() -> None:
            if self._one_round_trip is not None:
                self._write('set_inventory', provider, inventory)
                return
            with self._database.reader() as connection:
                known = queries.inventory(connection, provider)
            if known is not None and _same(known, inventory):
                return
            with self._database.writer() as connection:
                transactions.set_inventory(
                    connection, provider, inventory, new=known is None)

        _repeat(attempt, busy_max=_BUSY_MAX)

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
            if self._one_round_trip is not None:
                self._write('set_traits', provider, has, root)
                return
            with self._database.writer() as connection:
                queries.set_traits(connection, provider, has, root)

        _repeat(attempt, busy_max=_BUSY_MAX)

    def roots(self, providers: Iterable[str]) -> dict[str, str]:
        named = list(providers)

        def attempt() -> dict[str, str]:
            with self._database.reader() as connection:
                return queries.roots(connection, named)

        return _repeat(attempt) if named else {}

    def find_providers(
        self, query: base.ProviderQuery, limit: int | None = None
    ) -> list[str]:
        validation.check_query(query, limit)

        def attempt() -> list[str]:
            with self._database.reader() as connection:
                return queries.find(connection, query, limit)

        return _repeat(attempt)

    def inventories(
        self, providers: Iterable[str] | None = None
    ) -> dict[str, dict[str, base.Inventory]]:
        named = None if providers is None else list(providers)

        def attempt() -> dict[str, dict[str, base.Inventory]]:
            with self._database.reader() as connection:
                return queries.inventories(connection, named)[0]

        return _repeat(attempt)

    def recount(self, provider: str) -> bool:
        def attempt() -> bool:
            if self._one_round_trip is None:
                with self._database.writer() as connection:
                    return transactions.recount(connection, provider)
            with self._database.reader() as connection:
                found = transactions.find_correction(connection, provider)
            if found is not None:
                self._write('correct', provider, found)
            return found is not None

        return _repeat(attempt, busy_max=_BUSY_MAX)

    def usages(
        self, since: Any = None, providers: Iterable[str] | None = None
    ) -> base.UsageChanges:
        named = None if providers is None else list(providers)

        def attempt() -> base.UsageChanges:
            with self._database.reader() as connection:
                if named is not None:
                    return base.UsageChanges(
                        since, queries.usages_of(connection, named))
                return _usages_since(connection, since)

        return _repeat(attempt)

    @property
    def _one_round_trip(self) -> types.ModuleType | None:
        """The module that writes in one round trip, if there is one."""
        dialect: Any = self._database.engine.dialect
        if dialect.name == 'postgresql':
            return postgresql
        if dialect.name in mysql.DIALECTS and dialect.is_mariadb:
            return mariadb
        return None

    def _write(self, name: str, *args: Any) -> Any:
        """Call a function that writes in a transaction; return its result."""
        module = self._one_round_trip
        if module is not None:
            return getattr(module, name)(self._database, *args)
        with self._database.writer() as connection:
            return getattr(transactions, name)(connection, *args)

    def _check_locked(self, claims: Iterable[base.Claim]) -> None:
        """Raise ClaimBusy if a transaction has locked providers of a batch."""
        locked = self._locked(claims)
        if locked:
            raise exception.ClaimBusy(
                schema='claims', providers=sorted(locked),
                reason=f'the rows of {len(locked)} providers are locked')

    def _locked(self, claims: Iterable[base.Claim]) -> set[str]:
        """Return the providers of claims that a transaction has locked."""
        module, providers = self._one_round_trip, {
            claim.provider for claim in claims}
        if module is None or not providers:
            return set()
        found: set[str] = module.locked(self._database, providers)
        return found

    def _refuse(self, claims: Sequence[base.Claim]) -> None:
        """Raise the refusal of a batch that does not fit by now."""
        [refusal] = self._refusals([claims])
        if refusal is not None:
            raise refusal

    def _refusals(
        self, batches: Sequence[Sequence[base.Claim]]
    ) -> list[exception.ClaimRefused | None]:
        """Return why batches do not fit by now; None for one that fits."""
        every = [claim for batch in batches for claim in batch]

        def attempt() -> Any:
            with self._database.reader() as connection:
                return (
                    queries.inventories(
                        connection, {claim.provider for claim in every}),
                    group_members.members(connection, every))

        inventories, members = _repeat(attempt)
        return [validation.find_violation(claims, members)
                or validation.find_refusal(claims, *inventories)
                for claims in batches]


def _are_alike(batches: Sequence[Sequence[base.Claim]]) -> bool:
    """Return whether batches are single claims that differ in the provider.

    A claim with a membership differs in the host, too.
    """
    first = batches[0][0]
    return len(batches) <= fragments.CANDIDATES_MAX and all(
        len(batch) == 1 and batch[0].consumer == first.consumer
        and batch[0].group is None and batch[0].resources == first.resources
        and batch[0].project_id == first.project_id
        and batch[0].user_id == first.user_id
        for batch in batches)


def _usages_since(connection: sa.Connection, since: Any) -> base.UsageChanges:
    # The token is read first. Changes committed later are reported twice.
    until = schema.FEED.token(connection)
    if since is None or not feed.follows(since, until):
        return base.UsageChanges(until, queries.usages(connection))
    if since == until:
        return base.UsageChanges(until, [])
    return base.UsageChanges(until, queries.changed_usages(connection, since))


def _repeat(
    attempt: Callable[[], _Outcome],
    after_conflict: Callable[[], None] = lambda: None,
    first: Callable[[], _Outcome] | None = None,
    busy_max: int = 1, after_busy: Callable[[], None] = lambda: None,
) -> _Outcome:
    """Repeat an attempt until it has no conflict; return its outcome.

    If every transaction is serializable, reads may conflict, too. If the
    connection is lost, the outcome of the attempt is unknown, so the attempt
    has to be idempotent, or ``after_conflict`` reads the outcome back.

    :param after_conflict: called after each conflict and lost connection
    :param first: used instead of ``attempt`` for the first attempt
    :param busy_max: number of attempts that may exceed their time limit
    :param after_busy: called after each of them but the last
    """
    busy = lost = 0
    for number in range(_ATTEMPTS_MAX):
        try:
            return (attempt if number or first is None else first)()
        except exception.DatabaseBusy:
            busy += 1
            if busy == busy_max:
                raise
            after_busy()
        except exception.ConnectionLost as exc:
            lost += 1
            if lost == _LOST_MAX:
                raise
            LOG.warning('Repeating a call of the claim store: %s', exc)
            after_conflict()
        except _CONFLICTS:
            after_conflict()
    raise exception.ClaimStoreFailed(
        reason=f'{_ATTEMPTS_MAX} transactions in a row had conflicts')


def _same(
    known: Mapping[str, base.Inventory],
    inventory: Mapping[str, base.Inventory],
) -> bool:
    gone = {resource: base.Inventory(total=0)
            for resource in known.keys() - inventory.keys()}
    return {**inventory, **gone} == known
