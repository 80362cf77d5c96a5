# SPDX-License-Identifier: Apache-2.0
"""Requests to Cassandra and its answers.

Each request concerns one partition and changes it as a whole or not at all.
Scans and :class:`Together` concern several partitions. A request is a value,
and its method ``query`` returns it as CQL.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any
from typing import Self

#: Resource classes of which a provider may have an amount; each is counted in
#: a column.
SLOTS = 32

#: The columns that count used amounts, and all columns of a provider.
USED = tuple(f'u{number}' for number in range(SLOTS))
COLUMNS = ('inventory', 'generation', 'consumers', 'open', *USED)

#: Seconds of a bucket of operations.
BUCKET_S = 2.0

#: Seconds for which a fence against a late request is kept.
_FENCED_S = 24 * 3600

#: Seconds for which tombstones are kept; the keyspace is repaired more often.
_GRACE_S = 24 * 3600

#: Seconds for which an operation of a client that stopped is noted.
_NOTED_S = 3600

TABLES = ('claims', 'consumers', 'operations', 'store', 'trees')
#: The indexed columns of the table of trees, by index.
INDEXES = {'trees_traits': 'traits', 'trees_nested': 'nested'}

#: A row of a result, by column.
Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Query:
    """A request as CQL: prepared statements with values.

    :param text: has ``{0}`` in the place of the keyspace
    :param answer: returns the answer from the rows of the result
    :param more: further statements; all of them are one conditional batch
    :param is_serial: whether to read after all earlier conditional writes,
        and not only after those that were acknowledged
    :param is_paged: False to read all rows at one moment
    """

    text: str
    values: Sequence[Any]
    answer: Callable[[Sequence[Row]], Any]
    more: Sequence[tuple[str, Sequence[Any]]] = ()
    is_serial: bool = False
    is_paged: bool = True


IDENTITY = Query(
    "SELECT value FROM {0}.store WHERE name = 'identity'", (),
    lambda rows: str(rows[0]['value']) if rows else '', is_serial=True)

#: Changes nothing; rejected by a server without conditional addition.
PROBE = Query(
    'UPDATE {0}.store SET number = number + 1 '
    "WHERE name = 'probe' IF number > 0", (), lambda rows: None)


def create(keyspace: str, copies: int, sai: bool) -> list[str]:
    """Return the statements that create a keyspace and its tables.

    They change nothing that exists.

    :param sai: whether the server has storage-attached indexes (5.0 or later)
    """
    using = " USING 'sai'" if sai else ''
    statics = ', '.join(f'{name} bigint static' for name in COLUMNS[1:])
    return [
        f'CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = '
        f"{{'class': 'NetworkTopologyStrategy', "
        f"'replication_factor': {copies}}}",
        f'CREATE TABLE IF NOT EXISTS {keyspace}.claims (provider text, '
        'consumer text, attempt text, resources text, several boolean, '
        f'inventory text static, {statics}, '
        'PRIMARY KEY (provider, consumer, attempt)) '
        f'WITH gc_grace_seconds = {_GRACE_S}',
        f'CREATE TABLE IF NOT EXISTS {keyspace}.consumers ('
        'consumer text PRIMARY KEY, version text, body text) '
        f'WITH gc_grace_seconds = {_GRACE_S}',
        f'CREATE TABLE IF NOT EXISTS {keyspace}.operations ('
        'bucket bigint, consumer text, PRIMARY KEY (bucket, consumer)) '
        f'WITH gc_grace_seconds = {_NOTED_S} '
        f'AND default_time_to_live = {_NOTED_S}',
        f'CREATE TABLE IF NOT EXISTS {keyspace}.store ('
        'name text PRIMARY KEY, value uuid, number bigint)',
        f'CREATE TABLE IF NOT EXISTS {keyspace}.trees ('
        'provider text PRIMARY KEY, version text, root text, '
        'nested boolean, traits set<text>) '
        f'WITH gc_grace_seconds = {_GRACE_S}',
        *(f'CREATE INDEX IF NOT EXISTS {name} '
          f'ON {keyspace}.trees ({column}){using}'
          for name, column in INDEXES.items()),
        f"INSERT INTO {keyspace}.store (name, value) "
        "VALUES ('identity', uuid()) IF NOT EXISTS"]


def _is_applied(rows: Sequence[Row]) -> bool:
    return bool(rows[0]['[applied]'])


# Consumers.

@dataclasses.dataclass(frozen=True)
class VersionedRow:
    """A consumer's row.

    :param version: unique to each write
    :param body: a :class:`.records.Record` as JSON
    """

    version: str
    body: str


@dataclasses.dataclass(frozen=True)
class ReadConsumer:
    """Answered by :class:`VersionedRow`; None without a row.

    :param serial: see :class:`ReadFigures`
    """

    consumer: str
    serial: bool = True

    def query(self) -> Query:
        return Query(
            'SELECT version, body FROM {0}.consumers WHERE consumer = ?',
            (self.consumer,), lambda rows: next(
                (VersionedRow(**row) for row in rows), None),
            is_serial=self.serial)


@dataclasses.dataclass(frozen=True)
class WriteConsumer:
    """Answered by whether the row was written.

    :param seen: the version that the row must have; None if it must not exist
    :param row: the new row; None to delete it
    """

    consumer: str
    seen: str | None
    row: VersionedRow | None

    def query(self) -> Query:
        if self.row is None:
            return Query(
                'DELETE FROM {0}.consumers WHERE consumer = ? IF version = ?',
                (self.consumer, self.seen), _is_applied)
        return Query(
            'UPDATE {0}.consumers SET version = ?, body = ? '
            'WHERE consumer = ? IF version = ?',
            (self.row.version, self.row.body, self.consumer, self.seen),
            _is_applied)


@dataclasses.dataclass(frozen=True)
class Announce:
    """Note an operation that begins, or forget one that ended.

    Unconditional, as it is only a hint for the search for operations of
    clients that stopped. Answered by None.

    :param bucket: the time when it began, in units of :data:`BUCKET_S`
    """

    bucket: int
    consumer: str
    is_over: bool = False

    def query(self) -> Query:
        return Query(
            'DELETE FROM {0}.operations WHERE bucket = ? AND consumer = ?'
            if self.is_over else
            'INSERT INTO {0}.operations (bucket, consumer) VALUES (?, ?)',
            (self.bucket, self.consumer), lambda rows: None)


@dataclasses.dataclass(frozen=True)
class ReadAnnounced:
    """Answered by a list of the consumers noted in a bucket."""

    bucket: int

    def query(self) -> Query:
        return Query(
            'SELECT consumer FROM {0}.operations WHERE bucket = ?',
            (self.bucket,), lambda rows: [row['consumer'] for row in rows])


# Providers.

@dataclasses.dataclass(frozen=True)
class Figures:
    """The counters of a provider.

    :param inventory: a :class:`.slots.Slots` as JSON
    :param generation: incremented by each change
    :param consumers: number of claims' rows
    :param open: number of rows that belong to batches of several providers
    :param used: used amounts by slot; None if the slot was never used
    """

    provider: str
    inventory: str
    generation: int
    consumers: int
    open: int
    used: tuple[int | None, ...]

    @classmethod
    def of(cls, row: Row) -> Self | None:
        """Return the counters in a row; None if it does not have them all."""
        if row.get('inventory') is None or 'consumers' not in row:
            return None
        return cls(row['provider'], row['inventory'], row['generation'],
                   row['consumers'], row['open'],
                   tuple([row[name] for name in USED]))

    def columns(self) -> dict[str, Any]:
        """Return the columns of the provider."""
        return {'inventory': self.inventory, 'generation': self.generation,
                'consumers': self.consumers, 'open': self.open,
                **dict(zip(USED, self.used))}


@dataclasses.dataclass(frozen=True)
class ClaimRow:
    """The row of a claim in the partition of its provider.

    :param attempt: unique name of the call that made the claim
    :param resources: amounts by resource class, as JSON; empty if the attempt
        is fenced off
    :param several: whether the batch has several providers
    """

    consumer: str
    attempt: str
    resources: str = ''
    several: bool = False

    @classmethod
    def of(cls, row: Row) -> Self:
        return cls(row['consumer'], row['attempt'], row['resources'],
                   row['several'])

    @property
    def key(self) -> tuple[str, str]:
        return self.consumer, self.attempt


_FIGURES = f'SELECT DISTINCT provider, {", ".join(COLUMNS)} FROM {{0}}.claims'
READ_FIGURES = f'{_FIGURES} WHERE provider = ?'


@dataclasses.dataclass(frozen=True)
class ReadFigures:
    """Answered by :class:`Figures`; None for an unknown provider.

    :param serial: whether to wait for conditional writes in progress, which
        costs as much as a write. All that were acknowledged are seen anyway
    """

    provider: str
    serial: bool = True

    def query(self) -> Query:
        return Query(
            READ_FIGURES, (self.provider,),
            lambda rows: next(map(Figures.of, rows), None),
            is_serial=self.serial)


@dataclasses.dataclass(frozen=True)
class ReadClaims:
    """Answered by a list of :class:`ClaimRow`.

    :param keys: consumers and attempts
    """

    provider: str
    keys: tuple[tuple[str, str], ...]

    def query(self) -> Query:
        return Query(
            'SELECT consumer, attempt, resources, several FROM {0}.claims '
            'WHERE provider = ? AND (consumer, attempt) IN ?',
            (self.provider, [*self.keys]),
            lambda rows: [ClaimRow.of(row) for row in rows],
            is_serial=True, is_paged=False)


_PROVIDER = ('SELECT provider, consumer, attempt, resources, several, '
             f'{", ".join(COLUMNS)} FROM {{0}}.claims WHERE provider = ?')


@dataclasses.dataclass(frozen=True)
class ReadProvider:
    """Answered by counters and rows that were read together.

    The answer is :class:`Figures` or None, and a list of :class:`ClaimRow`.
    """

    provider: str

    def query(self) -> Query:
        return Query(
            _PROVIDER, (self.provider,), lambda rows: (
                next(map(Figures.of, rows), None),
                [ClaimRow.of(row) for row in rows if row['resources']]),
            is_serial=True, is_paged=False)


_INSERT = ('INSERT INTO {0}.claims (provider, consumer, attempt, resources, '
           'several) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS')
_DELETE = ('DELETE FROM {0}.claims WHERE provider = ? AND consumer = ? '
           'AND attempt = ? IF resources = ? AND several = ?')


@dataclasses.dataclass(frozen=True)
class ChangeProvider:
    """Answered by :class:`ProviderChanged`; applied under conditions.

    The columns are as given, and none exceeds its bound. The inserted rows do
    not exist, and the deleted rows exist as given.

    :param equal: values before the change, by column
    :param bounds: maximum values before the change, by column
    :param put: values to set, by column
    :param added: amounts to add, by column; not every server can
    """

    provider: str
    equal: Mapping[str, Any]
    put: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    added: Mapping[str, int] = dataclasses.field(default_factory=dict)
    bounds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    inserted: tuple[ClaimRow, ...] = ()
    deleted: tuple[ClaimRow, ...] = ()

    def compared(self, seen: Figures) -> 'ChangeProvider':
        """Return the change for a server that does not add.

        :param seen: the counters, which satisfy the bounds
        """
        # The generation changes with every other counter.
        known = seen.columns()
        return dataclasses.replace(
            self, equal={**self.equal, 'generation': seen.generation},
            put={**self.put, **{name: (known[name] or 0) + amount
                                for name, amount in self.added.items()}},
            added={}, bounds={})

    def query(self) -> Query:
        setting = ', '.join([*(f'{name} = ?' for name in self.put),
                             *(f'{name} = {name} + ?' for name in self.added)])
        conditions = ' AND '.join([*(f'{name} = ?' for name in self.equal),
                                   *(f'{name} <= ?' for name in self.bounds)])
        return Query(
            f'UPDATE {{0}}.claims SET {setting} WHERE provider = ? '
            f'IF {conditions}',
            [*self.put.values(), *self.added.values(), self.provider,
             *self.equal.values(), *self.bounds.values()], _changed,
            [(text, (self.provider, row.consumer, row.attempt, row.resources,
                     row.several))
             for text, rows in ((_INSERT, self.inserted),
                                (_DELETE, self.deleted)) for row in rows])


@dataclasses.dataclass(frozen=True)
class ProviderChanged:
    """The outcome of a change.

    :param figures: after a conflict, the counters if rows were to be inserted
    :param rows: with these counters, those of the inserted and deleted rows
        that existed
    """

    applied: bool
    figures: Figures | None = None
    rows: tuple[ClaimRow, ...] = ()


def _changed(rows: Sequence[Row]) -> ProviderChanged:
    figures = None if _is_applied(rows) else Figures.of(rows[0])
    return ProviderChanged(
        _is_applied(rows), figures, () if figures is None else tuple(
            [ClaimRow.of(row) for row in rows if row['consumer'] is not None]))


@dataclasses.dataclass(frozen=True)
class Fence:
    """Prevent an attempt from claiming at a provider later.

    Answered by the :class:`ClaimRow` of the attempt if it exists, or None.
    """

    provider: str
    consumer: str
    attempt: str

    def query(self) -> Query:
        return Query(
            f'{_INSERT} USING TTL {_FENCED_S}',
            (self.provider, self.consumer, self.attempt, '', False),
            lambda rows: None if _is_applied(rows) else ClaimRow.of(rows[0]))


@dataclasses.dataclass(frozen=True)
class Scan:
    """Answered by a list of all providers.

    The list has pairs of provider and generation, or :class:`Figures`. Each
    provider is read at some moment after the request.
    """

    figures: bool = False

    def query(self) -> Query:
        # A partition with fences alone has no counters.
        if self.figures:
            return Query(_FIGURES, (), lambda rows: [
                found for found in map(Figures.of, rows) if found is not None])
        return Query(
            'SELECT DISTINCT provider, generation FROM {0}.claims', (),
            lambda rows: [(row['provider'], row['generation'])
                          for row in rows if row['generation'] is not None])


# Trees.

@dataclasses.dataclass(frozen=True)
class Tree:
    """The root and the traits of a provider.

    :param version: unique to each write
    :param traits: sorted
    """

    version: str
    root: str
    traits: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ReadTree:
    """Answered by :class:`Tree`; None if none was written."""

    provider: str

    def query(self) -> Query:
        return Query(
            'SELECT version, root, traits FROM {0}.trees WHERE provider = ?',
            (self.provider,), lambda rows: next((Tree(
                row['version'], row['root'],
                tuple(sorted(row['traits'] or ()))) for row in rows), None),
            is_serial=True)


@dataclasses.dataclass(frozen=True)
class WriteTree:
    """Answered by whether the tree was written.

    :param seen: the version that the row must have; None if it must not exist
    """

    provider: str
    seen: str | None
    tree: Tree

    def query(self) -> Query:
        return Query(
            'UPDATE {0}.trees SET version = ?, root = ?, nested = ?, '
            'traits = ? WHERE provider = ? IF version = ?',
            (self.tree.version, self.tree.root,
             self.tree.root != self.provider, set(self.tree.traits),
             self.provider, self.seen), _is_applied)


@dataclasses.dataclass(frozen=True)
class ScanTrees:
    """Answered by a list of providers and their roots.

    Each provider is read at some moment after the request.

    :param trait: only providers with this trait; None for all
    :param nested: only providers that are not roots
    """

    trait: str | None = None
    nested: bool = False

    def query(self) -> Query:
        text, values = 'SELECT provider, root FROM {0}.trees', []
        if self.trait is not None:
            text, values = f'{text} WHERE traits CONTAINS ?', [self.trait]
        elif self.nested:
            text = f'{text} WHERE nested = true'
        return Query(text, values, lambda rows: [
            (row['provider'], row['root']) for row in rows])


# The keyspace.

@dataclasses.dataclass(frozen=True)
class Describe:
    """Answered by :class:`KeyspaceDescription`."""


@dataclasses.dataclass(frozen=True)
class KeyspaceDescription:
    """The version of the server, and missing tables and indexes.

    :param identity: unique to the data of the keyspace
    :param adds: whether the server supports addition to a column under a
        condition; None if it was not tried
    """

    version: str
    missing: tuple[str, ...]
    identity: str = ''
    adds: bool | None = None


@dataclasses.dataclass(frozen=True)
class Create:
    """Create the keyspace, tables and indexes; answered by None.

    :param copies: replication factor of a new keyspace
    """

    copies: int


@dataclasses.dataclass(frozen=True)
class Together:
    """Requests that are sent concurrently, in any order.

    Answered by a list with the answer to each, or the error that it raised.
    """

    requests: Sequence[Any]
