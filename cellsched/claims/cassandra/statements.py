# SPDX-License-Identifier: Apache-2.0
"""Requests as CQL: prepared statements, their values, and their answers."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any
from typing import NamedTuple

from cellsched.claims.cassandra import requests

#: Seconds for which a fence against a late request is kept.
FENCED_S = 24 * 3600

#: Seconds for which tombstones are kept; the keyspace is repaired more often.
_GRACE_S = 24 * 3600

_USED = tuple(f'u{number}' for number in range(requests.SLOTS))
_FIGURES = ('inventory', 'generation', 'consumers', 'open', *_USED)

#: Seconds for which an operation of a client that stopped is noted.
_NOTED_S = 3600

TABLES = ('claims', 'consumers', 'operations', 'store', 'trees')
#: The indexed columns of the table of trees, by index.
INDEXES = {'trees_traits': 'traits', 'trees_nested': 'nested'}


class Statement(NamedTuple):
    """A text with ``{0}`` in the place of the keyspace, and its values."""

    text: str
    values: Sequence[Any] = ()


#: A row of a result, by column.
Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Query:
    """A request as CQL.

    :param answer: returns the answer from the rows of the result
    :param more: further statements; all of them are one conditional batch
    :param is_serial: whether to read after all earlier conditional writes,
        and not only after those that were acknowledged
    :param is_paged: False to read all rows at one moment
    """

    statement: Statement
    answer: Callable[[Sequence[Row]], Any]
    more: Sequence[Statement] = ()
    is_serial: bool = False
    is_paged: bool = True


def create(keyspace: str, copies: int, sai: bool) -> list[str]:
    """Return the statements that create a keyspace and its tables.

    They change nothing that exists.

    :param sai: whether the server has storage-attached indexes (5.0 or later)
    """
    using = " USING 'sai'" if sai else ''
    statics = ', '.join(f'{name} bigint static' for name in _FIGURES[1:])
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


IDENTITY = Query(
    Statement("SELECT value FROM {0}.store WHERE name = 'identity'"),
    lambda rows: str(rows[0]['value']) if rows else '', is_serial=True)

#: Changes nothing; rejected by a server without conditional addition.
PROBE = Query(
    Statement('UPDATE {0}.store SET number = number + 1 '
              "WHERE name = 'probe' IF number > 0"), lambda rows: None)

READ_CONSUMER = 'SELECT version, body FROM {0}.consumers WHERE consumer = ?'
READ_FIGURES = (f'SELECT DISTINCT provider, {", ".join(_FIGURES)} '
                'FROM {0}.claims WHERE provider = ?')
READ_CLAIMS = ('SELECT consumer, attempt, resources, several FROM {0}.claims '
               'WHERE provider = ?')
READ_KEYS = f'{READ_CLAIMS} AND (consumer, attempt) IN ?'
READ_PROVIDER = (f'SELECT provider, consumer, attempt, resources, several, '
                 f'{", ".join(_FIGURES)} FROM {{0}}.claims '
                 'WHERE provider = ?')
SCAN = 'SELECT DISTINCT provider, generation FROM {0}.claims'
SCAN_FIGURES = (f'SELECT DISTINCT provider, {", ".join(_FIGURES)} '
                'FROM {0}.claims')
SCAN_ROOM = (
    'SELECT DISTINCT provider, inventory, '
    f'{", ".join(_USED[:requests.SLOTS_SCANNED])} FROM {{0}}.claims')

READ_ANNOUNCED = 'SELECT consumer FROM {0}.operations WHERE bucket = ?'

READ_TREE = 'SELECT version, root, traits FROM {0}.trees WHERE provider = ?'
_TREES = 'SELECT provider, root FROM {0}.trees'

_INSERT = ('INSERT INTO {0}.claims (provider, consumer, attempt, resources, '
           'several) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS')
_FENCE = f'{_INSERT} USING TTL {FENCED_S}'
_DELETE = ('DELETE FROM {0}.claims WHERE provider = ? AND consumer = ? '
           'AND attempt = ? IF resources = ? AND several = ?')


def query(request: Any) -> Query:
    """Return a request about one partition, or a scan, as CQL."""
    of: Callable[[Any], Query] = _QUERIES[type(request)]
    return of(request)


# Consumers.

def _read_consumer(request: requests.ReadConsumer) -> Query:
    return Query(
        Statement(READ_CONSUMER, (request.consumer,)),
        lambda rows: next((requests.VersionedRow(**row) for row in rows),
                          None), is_serial=True)


def _write_consumer(request: requests.WriteConsumer) -> Query:
    row = request.row
    if row is None:
        statement = Statement(
            'DELETE FROM {0}.consumers WHERE consumer = ? IF version = ?',
            (request.consumer, request.seen))
    elif request.seen is None:
        statement = Statement(
            'INSERT INTO {0}.consumers (consumer, version, body) '
            'VALUES (?, ?, ?) IF NOT EXISTS',
            (request.consumer, row.version, row.body))
    else:
        statement = Statement(
            'UPDATE {0}.consumers SET version = ?, body = ? '
            'WHERE consumer = ? IF version = ?',
            (row.version, row.body, request.consumer, request.seen))
    return Query(statement, _written)


def _written(rows: Sequence[Row]) -> requests.Written:
    [row] = rows
    return requests.Written(row['[applied]'], requests.VersionedRow(
        row['version'], row['body']) if 'body' in row else None)


def _announce(request: requests.Announce) -> Query:
    return Query(Statement(
        'DELETE FROM {0}.operations WHERE bucket = ? AND consumer = ?'
        if request.is_over else
        'INSERT INTO {0}.operations (bucket, consumer) VALUES (?, ?)',
        (request.bucket, request.consumer)), lambda rows: None)


def _read_announced(request: requests.ReadAnnounced) -> Query:
    return Query(Statement(READ_ANNOUNCED, (request.bucket,)),
                 lambda rows: [row['consumer'] for row in rows])


# Providers.

def _read_figures(request: requests.ReadFigures) -> Query:
    return Query(
        Statement(READ_FIGURES, (request.provider,)),
        lambda rows: next(map(_figures_of, rows), None),
        is_serial=request.serial)


def _read_claims(request: requests.ReadClaims) -> Query:
    return Query(
        Statement(READ_CLAIMS, (request.provider,)) if request.keys is None
        else Statement(READ_KEYS, (request.provider, [*request.keys])),
        lambda rows: [_claim_of(row) for row in rows
                      if row['consumer'] is not None],
        is_serial=True, is_paged=False)


def _read_provider(request: requests.ReadProvider) -> Query:
    return Query(
        Statement(READ_PROVIDER, (request.provider,)),
        lambda rows: (next(map(_figures_of, rows), None),
                      [_claim_of(row) for row in rows if row['resources']]),
        is_serial=True, is_paged=False)


def _change_provider(request: requests.ChangeProvider) -> Query:
    added = {'generation': 1, 'consumers': request.consumers,
             'open': request.open,
             **{_USED[number]: amount for number, amount in request.added}}
    conditions: dict[str, Any] = {'inventory =': request.inventory}
    seen = request.seen
    if seen is None:
        conditions |= {f'{_USED[number]} <=': most
                       for number, most in request.bounds}
        figures = _update(request.provider, [
            f'{name} = {name} + ?' for name in added], added.values(),
            conditions)
    else:
        # The generation changes with every other counter.
        before = {'generation': seen.generation, 'consumers': seen.consumers,
                  'open': seen.open, **dict(zip(_USED, seen.used))}
        conditions['generation ='] = seen.generation
        figures = _update(
            request.provider, [f'{name} = ?' for name in added],
            [(before[name] or 0) + amount for name, amount in added.items()],
            conditions)
    return Query(figures, _changed, [
        Statement(text, (request.provider, row.consumer, row.attempt,
                         row.resources, row.several))
        for text, rows in ((_INSERT, request.inserted),
                           (_DELETE, request.deleted)) for row in rows])


def _set_inventory(request: requests.SetInventory) -> Query:
    cleared = {_USED[number]: 0 for number in request.cleared}
    conditions: dict[str, Any] = {'inventory =': request.seen}
    conditions |= {f'{_USED[number]} =': 0 for number in request.unused}
    if request.seen is None:
        setting: dict[str, Any] = {
            'generation = ?': 1, 'consumers = ?': 0, 'open = ?': 0}
    elif request.generation is None:
        setting = {'generation = generation + ?': 1}
    else:
        setting = {'generation = ?': request.generation + 1}
        conditions['generation ='] = request.generation
    setting |= {f'{name} = ?': value for name, value in cleared.items()}
    setting['inventory = ?'] = request.inventory
    return Query(_update(
        request.provider, setting, setting.values(), conditions), _changed)


def _set_figures(request: requests.SetFigures) -> Query:
    figures = request.figures
    setting = {'generation': figures.generation,
               'consumers': figures.consumers, 'open': figures.open,
               **{name: amount for name, amount in zip(_USED, figures.used)
                  if amount is not None}}
    return Query(_update(
        figures.provider, [f'{name} = ?' for name in setting],
        setting.values(), {'generation =': request.seen.generation}),
        _changed)


def _changed(rows: Sequence[Row]) -> requests.ProviderChanged:
    first = rows[0]
    return requests.ProviderChanged(
        first['[applied]'],
        None if first['[applied]'] else _figures_of(first))


def _fence(request: requests.Fence) -> Query:
    return Query(
        Statement(_FENCE, (
            request.provider, request.consumer, request.attempt, '', False)),
        lambda rows: next((_claim_of(row) for row in rows
                           if not row['[applied]']), None))


def _scan(request: requests.Scan) -> Query:
    # A partition with fences alone has no counters.
    if request.figures:
        return Query(Statement(SCAN_FIGURES), lambda rows: [
            _figures_of(row) for row in rows if row['generation'] is not None])
    return Query(Statement(SCAN), lambda rows: [
        (row['provider'], row['generation']) for row in rows
        if row['generation'] is not None])


def _scan_room(request: requests.ScanRoom) -> Query:
    return Query(Statement(SCAN_ROOM), lambda rows: [
        requests.ProviderRoom(
            row['provider'], row['inventory'],
            tuple(row[name] for name in _USED[:requests.SLOTS_SCANNED]))
        for row in rows if row['inventory'] is not None])


# Trees.

def _read_tree(request: requests.ReadTree) -> Query:
    return Query(
        Statement(READ_TREE, (request.provider,)),
        lambda rows: next((requests.Tree(
            row['version'], row['root'], tuple(sorted(row['traits'] or ())))
            for row in rows), None), is_serial=True)


def _write_tree(request: requests.WriteTree) -> Query:
    tree = request.tree
    values = (tree.version, tree.root, tree.root != request.provider,
              set(tree.traits), request.provider)
    return Query(Statement(
        'INSERT INTO {0}.trees (version, root, nested, traits, provider) '
        'VALUES (?, ?, ?, ?, ?) IF NOT EXISTS', values)
        if request.seen is None else Statement(
            'UPDATE {0}.trees SET version = ?, root = ?, nested = ?, '
            'traits = ? WHERE provider = ? IF version = ?',
            (*values, request.seen)),
        lambda rows: bool(rows[0]['[applied]']))


def _scan_trees(request: requests.ScanTrees) -> Query:
    if request.trait is not None:
        statement = Statement(f'{_TREES} WHERE traits CONTAINS ?',
                              (request.trait,))
    else:
        statement = Statement(
            f'{_TREES} WHERE nested = true' if request.nested else _TREES)
    return Query(statement, lambda rows: [
        (row['provider'], row['root']) for row in rows])


def _update(
    provider: str, setting: Iterable[str], values: Iterable[Any],
    conditions: Mapping[str, Any],
) -> Statement:
    return Statement(
        f'UPDATE {{0}}.claims SET {", ".join(setting)} WHERE provider = ? IF '
        + ' AND '.join(f'{condition} ?' for condition in conditions),
        (*values, provider, *conditions.values()))


def _figures_of(row: Row) -> requests.Figures | None:
    """Return the counters in a row; None if it does not have all of them."""
    if row.get('inventory') is None or 'consumers' not in row:
        return None
    return requests.Figures(
        row['provider'], row['inventory'], row['generation'],
        row['consumers'], row['open'], tuple(row[name] for name in _USED))


def _claim_of(row: Row) -> requests.ClaimRow:
    return requests.ClaimRow(
        row['consumer'], row['attempt'], row['resources'], row['several'])


_QUERIES: Mapping[type, Callable[[Any], Query]] = {
    requests.ReadConsumer: _read_consumer,
    requests.WriteConsumer: _write_consumer,
    requests.Announce: _announce,
    requests.ReadAnnounced: _read_announced,
    requests.ReadFigures: _read_figures,
    requests.ReadClaims: _read_claims,
    requests.ReadProvider: _read_provider,
    requests.ChangeProvider: _change_provider,
    requests.SetInventory: _set_inventory,
    requests.SetFigures: _set_figures,
    requests.Fence: _fence,
    requests.Scan: _scan,
    requests.ScanRoom: _scan_room,
    requests.ReadTree: _read_tree,
    requests.WriteTree: _write_tree,
    requests.ScanTrees: _scan_trees,
}
