# SPDX-License-Identifier: Apache-2.0
"""Requests as CQL: the text of a prepared statement, and its values."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
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


IDENTITY = Statement("SELECT value FROM {0}.store WHERE name = 'identity'")

#: Changes nothing; rejected by a server without conditional addition.
PROBE = Statement('UPDATE {0}.store SET number = number + 1 '
                  "WHERE name = 'probe' IF number > 0")

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


def write_consumer(request: requests.WriteConsumer) -> Statement:
    row = request.row
    if row is None:
        return Statement('DELETE FROM {0}.consumers WHERE consumer = ? '
                         'IF version = ?', (request.consumer, request.seen))
    if request.seen is None:
        return Statement(
            'INSERT INTO {0}.consumers (consumer, version, body) '
            'VALUES (?, ?, ?) IF NOT EXISTS',
            (request.consumer, row.version, row.body))
    return Statement(
        'UPDATE {0}.consumers SET version = ?, body = ? WHERE consumer = ? '
        'IF version = ?',
        (row.version, row.body, request.consumer, request.seen))


def announce(request: requests.Announce) -> Statement:
    return Statement(
        'DELETE FROM {0}.operations WHERE bucket = ? AND consumer = ?'
        if request.is_over else
        'INSERT INTO {0}.operations (bucket, consumer) VALUES (?, ?)',
        (request.bucket, request.consumer))


def write_tree(request: requests.WriteTree) -> Statement:
    tree = request.tree
    values = (tree.version, tree.root, tree.root != request.provider,
              set(tree.traits), request.provider)
    if request.seen is None:
        return Statement(
            'INSERT INTO {0}.trees (version, root, nested, traits, provider) '
            'VALUES (?, ?, ?, ?, ?) IF NOT EXISTS', values)
    return Statement(
        'UPDATE {0}.trees SET version = ?, root = ?, nested = ?, traits = ? '
        'WHERE provider = ? IF version = ?', (*values, request.seen))


def scan_trees(request: requests.ScanTrees) -> Statement:
    if request.trait is not None:
        return Statement(f'{_TREES} WHERE traits CONTAINS ?',
                         (request.trait,))
    return Statement(
        f'{_TREES} WHERE nested = true' if request.nested else _TREES)


def change(request: requests.ChangeProvider) -> list[Statement]:
    """Return the statements of the conditional batch of a change."""
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
    return [
        figures,
        *(Statement(_INSERT, (request.provider, row.consumer, row.attempt,
                              row.resources, row.several))
          for row in request.inserted),
        *(Statement(_DELETE, (request.provider, row.consumer, row.attempt,
                              row.resources, row.several))
          for row in request.deleted)]


def set_inventory(request: requests.SetInventory) -> Statement:
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
    return _update(request.provider, setting, setting.values(), conditions)


def set_figures(request: requests.SetFigures) -> Statement:
    figures = request.figures
    setting = {'generation': figures.generation,
               'consumers': figures.consumers, 'open': figures.open,
               **{name: amount for name, amount in zip(_USED, figures.used)
                  if amount is not None}}
    return _update(
        figures.provider, [f'{name} = ?' for name in setting],
        setting.values(), {'generation =': request.seen.generation})


def fence(request: requests.Fence) -> Statement:
    return Statement(_FENCE, (
        request.provider, request.consumer, request.attempt, '', False))


def _update(
    provider: str, setting: Iterable[str], values: Iterable[Any],
    conditions: Mapping[str, Any],
) -> Statement:
    return Statement(
        f'UPDATE {{0}}.claims SET {", ".join(setting)} WHERE provider = ? IF '
        + ' AND '.join(f'{condition} ?' for condition in conditions),
        (*values, provider, *conditions.values()))


# Rows of results.

def figures_of(row: Mapping[str, Any]) -> requests.Figures | None:
    """Return the counters in a row; None if it does not have all of them."""
    if row.get('inventory') is None or 'consumers' not in row:
        return None
    return requests.Figures(
        row['provider'], row['inventory'], row['generation'],
        row['consumers'], row['open'], tuple(row[name] for name in _USED))


def room_of(row: Mapping[str, Any]) -> requests.ProviderRoom:
    return requests.ProviderRoom(row['provider'], row['inventory'], tuple(
        row[name] for name in _USED[:requests.SLOTS_SCANNED]))


def claim_of(row: Mapping[str, Any]) -> requests.ClaimRow:
    return requests.ClaimRow(
        row['consumer'], row['attempt'], row['resources'], row['several'])
