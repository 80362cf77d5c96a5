# SPDX-License-Identifier: Apache-2.0
"""Claims in a SQL database.

* ``schema``: the tables; ``migrations`` has their history.
* ``queries``: reads, and the traits of providers.
* ``transactions``: writes, each call in one transaction.
* ``single_statement``: the one statement of most claims on PostgreSQL.
* ``fragments``: parts of the statements that claim, and their parameters.
* ``group_members``: memberships in server groups with a hard policy.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Self
from typing import TypeVar

from oslo_config import cfg
from oslo_db import exception as db_exc
import sqlalchemy as sa

from cellsched.claims import base
from cellsched.claims.sql import group_members
from cellsched.claims.sql import queries
from cellsched.claims.sql import schema
from cellsched.claims.sql import single_statement
from cellsched.claims.sql import transactions
from cellsched.claims import validation
from cellsched.db import feed
from cellsched.db import guarded_statements
from cellsched.db import session
from cellsched.db.statements import chunks
from cellsched import exception

#: Transactions of one call before it fails. Each conflict means that another
#: transaction succeeded.
_ATTEMPTS_MAX = 100

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
            expected='a SQLAlchemy URL, here or as [api_database] connection')
    group = 'api_database' if conf.api_database.connection else 'database'
    options = session.engine_options(conf, group)
    if not url.startswith('sqlite'):
        options['lock_timeout'] = conf.claims.lock_timeout
    return databases.get(url, 'claims', options)


class SQLClaims(base.ClaimStore):
    """Keep claims in SQLite, PostgreSQL, MariaDB or MySQL.

    The UPDATE that claims capacity also checks it. A batch of any size is one
    transaction of a few statements. On PostgreSQL it is a single statement if
    the whole batch is new and fits, and no claim has a membership in a server
    group with a hard policy.

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
                with self._database.writer() as connection:
                    transactions.claim(connection, remaining)

        def attempt_at_once() -> None:
            if not remaining or not single_statement.claim(
                    self._database, remaining):
                attempt()

        def after_conflict() -> None:
            held = self.claims_of(claim.consumer for claim in claims)
            remaining[:] = validation.outstanding(claims, held)
            self._refuse(remaining)

        _repeat(attempt, after_conflict, first=attempt_at_once)
        return len(remaining)

    def release(self, consumers: Iterable[str]) -> None:
        consumers = list(consumers)

        def attempt() -> None:
            with self._database.writer() as connection:
                transactions.release(connection, consumers)

        if consumers:
            _repeat(attempt)

    def transfer(self, source: str, target: str) -> bool:
        validation.check_transfer(source, target)

        def attempt() -> bool:
            with self._database.writer() as connection:
                return transactions.transfer(connection, source, target)

        return _repeat(attempt)

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

    def same_backend(self, other: base.ClaimStore) -> bool:
        return isinstance(other, SQLClaims) and (
            other._database is self._database
            or session.is_same_database(self._database, other._database))

    def set_inventory(
        self, provider: str, inventory: Mapping[str, base.Inventory]
    ) -> None:
        validation.check_inventory(provider, inventory)

        def attempt() -> None:
            with self._database.reader() as connection:
                known = queries.inventory(connection, provider)
            if known is not None and _same(known, inventory):
                return
            with self._database.writer() as connection:
                transactions.set_inventory(
                    connection, provider, inventory, new=known is None)

        _repeat(attempt)

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
            with self._database.writer() as connection:
                queries.set_traits(connection, provider, has, root)

        _repeat(attempt)

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
            with self._database.writer() as connection:
                return transactions.recount(connection, provider)

        return _repeat(attempt)

    def usages(
        self, since: Any = None, providers: Iterable[str] | None = None
    ) -> base.UsageChanges:
        named = None if providers is None else list(providers)

        def attempt() -> base.UsageChanges:
            with self._database.reader() as connection:
                if named is not None:
                    return base.UsageChanges(
                        since, _usages_of(connection, named))
                return _usages_since(connection, since)

        return _repeat(attempt)

    def _refuse(self, claims: Sequence[base.Claim]) -> None:
        """Raise the refusal of a batch that does not fit by now."""
        def attempt() -> Any:
            with self._database.reader() as connection:
                return queries.inventories(
                    connection, (claim.provider for claim in claims))

        refusal = validation.find_refusal(claims, *_repeat(attempt))
        if refusal is not None:
            raise refusal


def _usages_of(
    connection: sa.Connection, providers: Iterable[str]
) -> list[base.Usage]:
    return [usage for chunk in chunks(providers)
            for usage in queries.usages(connection, queries.named(chunk))]


def _usages_since(connection: sa.Connection, since: Any) -> base.UsageChanges:
    # The token is read first. Changes committed later are reported twice.
    until = schema.FEED.token(connection)
    if since is None or not feed.follows(since, until):
        return base.UsageChanges(until, queries.usages(connection))
    if since == until:
        return base.UsageChanges(until, [])
    return base.UsageChanges(until, queries.usages(
        connection, feed.changed(schema.providers, since, until)))


def _repeat(
    attempt: Callable[[], _Outcome],
    after_conflict: Callable[[], None] = lambda: None,
    first: Callable[[], _Outcome] | None = None,
) -> _Outcome:
    """Repeat an attempt until it has no conflict; return its outcome.

    If every transaction is serializable, reads may conflict, too.

    :param after_conflict: called after each conflict
    :param first: used instead of ``attempt`` for the first attempt
    """
    for number in range(_ATTEMPTS_MAX):
        try:
            return (attempt if number or first is None else first)()
        except (db_exc.DBDuplicateEntry, exception.TransactionLost,
                guarded_statements.StatementRefused,
                transactions.InsufficientCapacity):
            after_conflict()
    raise exception.DatabaseError(
        schema='claims',
        reason=f'{_ATTEMPTS_MAX} transactions in a row had conflicts')


def _same(
    known: Mapping[str, base.Inventory],
    inventory: Mapping[str, base.Inventory],
) -> bool:
    gone = {resource: base.Inventory(total=0)
            for resource in known.keys() - inventory.keys()}
    return {**inventory, **gone} == known
