# SPDX-License-Identifier: Apache-2.0
"""Statements that several query modules share, for each dialect."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import json
from typing import Any
from typing import TypeVar

from oslo_db import exception as db_exc
import sqlalchemy as sa
from sqlalchemy.ext import compiler as compiling
from sqlalchemy.sql import functions

from cellsched.db import mysql

_Where = TypeVar('_Where', sa.Select[Any], sa.Delete)

_text_of = json.JSONEncoder(default=str).encode

#: The most values in a list of :func:`in_list` or IN. Old versions of SQLite
#: allow 999.
CHUNK = 500


def in_list(
    column: sa.ColumnElement[Any], name: str = 'these'
) -> sa.ColumnElement[bool]:
    """Return the condition that a column is in the list in a parameter.

    It is for statements that are module constants: building a statement and
    looking up its compiled form takes longer than its execution.
    """
    return InList(column, name)


class InList(functions.FunctionElement[bool]):
    """The condition that a column is in the list in a parameter.

    The list is a single parameter, so the text of the statement does not
    depend on its length. It is compiled and prepared once.
    """

    type = sa.Boolean()
    inherit_cache = True

    def __init__(self, column: sa.ColumnElement[Any], name: str) -> None:
        super().__init__(column, sa.bindparam(name, type_=column.type))

    def self_group(self, against: Any = None) -> 'InList':
        # Keeps SQLAlchemy from adding parentheses or a comparison with 1;
        # with them SQLite would not use an index.
        return self


@compiling.compiles(InList)
def _expand(element: InList, compiler: Any, **kw: Any) -> str:
    column, these = element.clauses
    return str(compiler.process(
        column.in_(sa.bindparam(these.key, expanding=True)), **kw))


@compiling.compiles(InList, 'sqlite')
def _from_json(element: InList, compiler: Any, **kw: Any) -> str:
    column, these = element.clauses
    column = compiler.process(column, **kw)
    these = compiler.process(sa.bindparam(these.key, type_=_JSON()), **kw)
    return f'{column} IN (SELECT value FROM json_each({these}))'


@compiling.compiles(InList, 'postgresql')
def _from_array(element: InList, compiler: Any, **kw: Any) -> str:
    column, these = element.clauses
    # A value that is too long matches no row; it must not be cut off.
    each = sa.String() if isinstance(column.type, sa.String) else column.type
    return str(compiler.process(column == sa.any_(sa.cast(
        sa.bindparam(these.key, type_=_Array()), sa.ARRAY(each))), **kw))


class _JSON(sa.types.TypeDecorator[Any]):

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str:
        return json.dumps(value)


class _Array(sa.types.UserDefinedType[Any]):
    """A PostgreSQL array as text, which is faster than the drivers' own.

    SQLAlchemy adds no cast to the text, as it does for its own types. With
    one, the planner would not know the length of the array, and choose to
    compare each row of the table with each value.
    """

    cache_ok = True

    def get_col_spec(self, **kw: Any) -> str:
        return 'TEXT'

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], str]:
        return lambda value: f'{{{",".join(map(_quoted, value))}}}'


def _quoted(value: Any) -> str:
    if value is None:
        return 'NULL'
    text = str(value).replace('\\', '\\\\').replace('"', '\\"')
    return f'"{text}"'


def among(column: Any, name: str, several: bool) -> sa.ColumnElement[bool]:
    """Return the condition that a column is in a list, or equals a value.

    :param several: whether the parameter is a list; a list of one value takes
        1.5 times as long as the value itself
    """
    return in_list(column, name) if several else column == sa.bindparam(name)


def chunks(values: Iterable[Any], size: int = CHUNK) -> list[list[Any]]:
    """Return the distinct values in lists that are short enough for IN."""
    unique = list(dict.fromkeys(values))
    return [unique[start:start + size]
            for start in range(0, len(unique), size)]


def read(
    connection: sa.Connection, query: sa.Select[Any], values: Iterable[Any],
    **parameters: Any,
) -> Iterator[Any]:
    """Yield the rows of a query for a list of values of any length.

    :param query: has the condition :func:`in_list`
    :param parameters: its other parameters
    """
    for chunk in chunks(values):
        yield from connection.execute(query, {'these': chunk, **parameters})


def read_groups(
    connection: sa.Connection, query: sa.Select[Any], values: Iterable[Any]
) -> dict[Any, list[Any]]:
    """Return the values of the second column by the first column.

    :param query: as for :func:`read`, of two columns
    """
    found: dict[Any, list[Any]] = {}
    for key, value in read(connection, query, values):
        found.setdefault(key, []).append(value)
    return found


def find(
    connection: sa.Connection, column: sa.Column[Any], values: Iterable[Any]
) -> set[Any]:
    """Return the values that a column has."""
    return {value for (value,) in read(connection, _finding(column), values)}


def write(
    connection: sa.Connection, statement: sa.Update | sa.Delete,
    values: Iterable[Any], column: sa.Column[Any] | None = None,
    **parameters: Any,
) -> None:
    """Execute a statement for a list of values of any length.

    :param statement: has the condition :func:`in_list`
    :param column: the column of the values, to :func:`lock` several rows first
    :param parameters: other parameters of the statement
    """
    for chunk in chunks(values):
        if column is not None and len(chunk) > 1:
            lock(connection, column, chunk)
        connection.execute(statement, {'these': chunk, **parameters})


def page_after(
    connection: sa.Connection, after: int, limit: int, key: sa.Column[int],
    value: sa.Column[Any], conditions: Iterable[sa.ColumnElement[bool]] = (),
) -> list[tuple[int, Any]]:
    """Return the keys and the values of a page of rows, in order of the key.

    :param after: the id at which the last page ended
    :param key: the id of a row
    """
    return [(number, found) for number, found in connection.execute(
        sa.select(key, value).where(key > after, *conditions)
        .order_by(key).limit(limit))]


def insert_all(
    connection: sa.Connection, table: sa.Table,
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """Insert rows without reading generated values.

    :param rows: values by column; all rows have the same columns
    """
    if len(rows) > 1 and connection.dialect.name == 'postgresql':
        _insert_as_json(connection, table, rows)
    elif rows:
        # Executing one row as a list of rows takes 1.5 times as long.
        connection.execute(
            _insert(table), rows if len(rows) > 1 else rows[0])


@functools.cache
def _insert(table: sa.Table) -> sa.Insert:
    return sa.insert(table).inline()


def _insert_as_json(
    connection: sa.Connection, table: sa.Table,
    rows: Sequence[Mapping[str, Any]], ending: str = '',
) -> sa.CursorResult[Any]:
    """Insert rows on PostgreSQL, given as one parameter.

    With a parameter for each value, the text of the statement depends on the
    number of rows: it takes ten times as long to write and to parse.

    :param ending: the end of the statement
    """
    return connection.execute(
        _insert_of_json(table, tuple(rows[0]), ending),
        # Row by row, so that other threads can run in between.
        {'rows': f'[{",".join([_text_of(row) for row in rows])}]'})


@functools.lru_cache(100)
def _insert_of_json(
    table: sa.Table, names: tuple[str, ...], ending: str
) -> sa.TextClause:
    values = {name: f'"{name}"' for name in names}
    for column in table.c:
        if isinstance(column.default, sa.ColumnDefault):
            values.setdefault(column.name, json.dumps(column.default.arg))
    columns = ', '.join(f'"{name}"' for name in values)
    return sa.text(
        f'INSERT INTO {table.name} ({columns}) '
        f'SELECT {", ".join(values.values())} FROM json_populate_recordset('
        f'CAST(NULL AS {table.name}), CAST(:rows AS json)) {ending}')


def insert_missing(
    connection: sa.Connection, key: sa.Column[Any],
    rows: Sequence[Mapping[str, Any]],
) -> set[Any]:
    """Insert rows; skip a row that violates a unique constraint.

    If several transactions insert the same row, exactly one of them gets its
    key back. Rows are inserted in the order of their keys to avoid deadlocks.

    :param key: a column of the table that is unique
    :returns: the keys of the inserted rows
    """
    if not rows:
        return set()
    rows = sorted(rows, key=lambda row: row[key.name])
    if connection.dialect.name == 'postgresql':
        return set(_insert_as_json(
            connection, key.table, rows,
            f'ON CONFLICT DO NOTHING RETURNING {key}').scalars())
    if connection.dialect.name == 'sqlite':
        return set(connection.execute(_inserting(key), rows).scalars())
    return _insert_or_fail(connection, key, rows)


def lock(
    connection: sa.Connection, column: sa.Column[Any], values: Sequence[Any],
    *conditions: sa.ColumnElement[bool],
) -> list[Any]:
    """Lock the rows with these values; return the values found.

    A statement that changes several rows locks them in an arbitrary order, and
    two such statements can deadlock. Lock the rows here first, in one order.

    :param column: the first column of an index
    """
    return list(connection.execute(
        _narrowed(_locking(column), conditions),
        {'these': values}).scalars())


def lock_free(
    connection: sa.Connection, column: sa.Column[Any], values: Iterable[Any],
    *conditions: sa.ColumnElement[bool],
) -> set[Any]:
    """Lock the rows with these values that are not locked yet.

    It does not wait (SKIP LOCKED). Rows locked by another transaction are
    missing in the result.
    """
    found: set[Any] = set()
    for chunk in chunks(values):
        found.update(connection.execute(
            _narrowed(_locking(column, skip_locked=True), conditions),
            {'these': chunk}).scalars())
    return found


def by_index(query: sa.Select[Any], column: sa.Column[Any]) -> sa.Select[Any]:
    """Return a query that locks rows in the order of a column's index.

    InnoDB locks rows while it reads them, before it sorts, and reads a small
    table without an index. It also locks an index entry before its row, so a
    query that locks rows alone deadlocks with an update that finds its row by
    the index. The hint forces the index. Other databases need no hint.
    """
    hint = _force_index_of(column)
    for dialect in mysql.DIALECTS:
        query = query.with_hint(column.table, hint, dialect)
    return query.order_by(column)


def deletion(
    column: sa.Column[Any], condition: sa.ColumnElement[bool]
) -> sa.Delete:
    """Return a DELETE that finds its rows by the index of a column.

    InnoDB reads a small table without an index and locks all rows that it
    reads, so two deletions of different rows would deadlock.
    """
    table, hint = column.table, _force_index_of(column)
    statement = sa.delete(table).where(condition)
    for dialect in mysql.DIALECTS:
        # Only the multi-table form of DELETE accepts index hints.
        statement = statement.prefix_with(
            table.name, dialect=dialect).with_hint(hint, table, dialect)
    return statement


def _force_index_of(column: sa.Column[Any]) -> str:
    return f'FORCE INDEX ({_index_of(column)})'


def _index_of(column: sa.Column[Any]) -> str:
    """Return the name of an index that begins with a column."""
    if next(iter(column.table.primary_key)) is column:
        return 'PRIMARY'
    indexes: list[sa.Index | sa.UniqueConstraint] = [*column.table.indexes]
    indexes += [each for each in column.table.constraints
                if isinstance(each, sa.UniqueConstraint)]
    return next(str(each.name) for each in indexes
                if next(iter(each.columns)) is column)


def delete_counted(
    connection: sa.Connection, column: sa.Column[Any], values: Iterable[Any],
    *conditions: sa.ColumnElement[bool],
) -> set[Any]:
    """Delete rows and return the values of the deleted ones.

    If several transactions delete the same row, exactly one of them gets its
    value back.
    """
    deleted: set[Any] = set()
    for chunk in chunks(values):
        if len(chunk) > 1:
            chunk = lock(connection, column, chunk, *conditions)
            delete_locked(connection, column, chunk)
            deleted.update(chunk)
            continue
        result = connection.execute(
            _narrowed(_deleting(column), conditions), {'these': chunk})
        if result.rowcount == len(chunk):
            deleted.update(chunk)
    return deleted


def delete_locked(
    connection: sa.Connection, column: sa.Column[Any], values: Iterable[Any]
) -> None:
    """Delete rows that the current transaction has locked."""
    write(connection, _deleting(column), values)


def _narrowed(
    statement: _Where, conditions: Sequence[sa.ColumnElement[bool]]
) -> _Where:
    """Return the statement with the conditions; itself without any.

    A new statement object, even an equal one, makes the cache lookup slow.
    """
    return statement.where(*conditions) if conditions else statement


@functools.cache
def _locking(
    column: sa.Column[Any], skip_locked: bool = False
) -> sa.Select[Any]:
    return by_index(_finding(column), column).with_for_update(
        skip_locked=skip_locked)


@functools.cache
def _finding(column: sa.Column[Any]) -> sa.Select[Any]:
    return sa.select(column).where(in_list(column))


@functools.cache
def _deleting(column: sa.Column[Any]) -> sa.Delete:
    return deletion(column, in_list(column))


@functools.cache
def _inserting(key: sa.Column[Any]) -> Any:
    # Only processes with this database need the dialect.
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(key.table).on_conflict_do_nothing().returning(key)


def _insert_or_fail(
    connection: sa.Connection, key: sa.Column[Any],
    rows: Sequence[Mapping[str, Any]],
) -> set[Any]:
    """Insert rows on MariaDB and MySQL, whose INSERT fails on a duplicate.

    Duplicates are rare, so MariaDB first gets all rows in one statement. MySQL
    does not: without RETURNING, a driver may split it into several statements.
    """
    inserted: set[Any] = set()
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start:start + CHUNK]
        if connection.dialect.insert_returning and len(chunk) > 1:
            try:
                inserted.update(connection.execute(
                    _returning(key), chunk).scalars())
                continue
            except db_exc.DBDuplicateEntry:
                # The statement was rolled back; the transaction continues.
                pass
        inserted |= _insert_one_by_one(connection, key, chunk)
    return inserted


@functools.cache
def _returning(key: sa.Column[Any]) -> sa.Insert:
    return sa.insert(key.table).returning(key)


def _insert_one_by_one(
    connection: sa.Connection, key: sa.Column[Any],
    rows: Sequence[Mapping[str, Any]],
) -> set[Any]:
    """Insert rows one by one and skip existing ones.

    MySQL rolls back only the failed statement, not the transaction. INSERT
    IGNORE would hide other errors, too.
    """
    inserted = set()
    for row in rows:
        try:
            connection.execute(sa.insert(key.table), row)
        except db_exc.DBDuplicateEntry:
            continue
        inserted.add(row[key.name])
    return inserted
