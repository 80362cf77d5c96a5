# SPDX-License-Identifier: Apache-2.0
"""Statements that several queries need, in each dialect's words."""

from collections.abc import Iterable
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

#: Values in one list of :func:`in_list`, or of IN; old versions of SQLite take
#: no more than 999 there.
CHUNK = 500


def in_list(
    column: sa.ColumnElement[Any], name: str = 'these'
) -> sa.ColumnElement[bool]:
    """Return the condition that a column is one of a parameter, a list.

    It is for statements that are built once, as constants: to build one and
    to look it up takes longer than a database takes to run it.
    """
    return InList(column, name)


class InList(functions.FunctionElement[bool]):
    """The condition that a column is one of a parameter, which is a list.

    As the list is one parameter, a statement's text is the same for each
    length: it is neither made anew for each execution, nor prepared for each
    length.
    """

    type = sa.Boolean()
    inherit_cache = True

    def __init__(self, column: sa.ColumnElement[Any], name: str) -> None:
        super().__init__(column, sa.bindparam(name, type_=column.type))

    def self_group(self, against: Any = None) -> 'InList':
        # It needs no parentheses, and is no number to compare with 1 either,
        # for which SQLite would not use an index.
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
    # What is too long is nothing that is there, and must not be cut off.
    each = sa.String() if isinstance(column.type, sa.String) else column.type
    return str(compiler.process(column == sa.any_(sa.cast(
        sa.bindparam(these.key, type_=_Array()), sa.ARRAY(each))), **kw))


class _JSON(sa.types.TypeDecorator[Any]):

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str:
        return json.dumps(value)


class _Array(sa.types.TypeDecorator[Any]):
    """An array as PostgreSQL reads it, which no driver writes as fast."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str:
        return f'{{{",".join(map(_quoted, value))}}}'


def _quoted(value: Any) -> str:
    if value is None:
        return 'NULL'
    text = str(value).replace('\\', '\\\\').replace('"', '\\"')
    return f'"{text}"'


def among(column: Any, name: str, several: bool) -> sa.ColumnElement[bool]:
    """Return the condition that a column is one of a parameter's values.

    :param several: whether the parameter is a list; a list of one takes half
        as long again as the value itself
    """
    return in_list(column, name) if several else column == sa.bindparam(name)


def chunks(
    values: Iterable[Any], size: int = CHUNK
) -> list[list[Any]]:
    """Return the values, without repeats, in lists of a size for IN."""
    unique = list(dict.fromkeys(values))
    return [unique[start:start + size]
            for start in range(0, len(unique), size)]


def insert_all(
    connection: sa.Connection, insert: sa.Insert,
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """Insert rows of which nothing is asked back.

    :param insert: the statement, built once, and inline
    """
    if rows:
        # To send one row as one of many takes half as long again.
        connection.execute(insert, rows if len(rows) > 1 else rows[0])


def insert_missing(
    connection: sa.Connection, key: sa.Column[Any],
    rows: Sequence[Mapping[str, Any]],
) -> set[Any]:
    """Insert rows; one that breaks a unique constraint is left out.

    When several insert the same rows, exactly one of them is told so of each.
    They go in the order of their keys, or two could wait for each other.

    :param key: a column of the table whose values tell the rows apart
    :returns: the keys of those that were inserted
    """
    if not rows:
        return set()
    rows = sorted(rows, key=lambda row: row[key.name])
    insert = _inserting(key, connection.dialect.name)
    if insert is None:
        return _insert_or_fail(connection, key, rows)
    return set(connection.execute(insert, rows).scalars())


def lock(
    connection: sa.Connection, column: sa.Column[Any], values: Sequence[Any],
    *conditions: sa.ColumnElement[bool],
) -> list[Any]:
    """Lock the rows that have these values; return the values found.

    A statement that changes several rows locks them in an order of its own,
    and so two of them could wait for each other. Rows that were locked in one
    order before are safe from that.

    :param column: one that an index begins with
    """
    return list(connection.execute(
        _narrowed(_locking(column), conditions),
        {'these': values}).scalars())


def lock_free(
    connection: sa.Connection, column: sa.Column[Any], values: Iterable[Any],
    *conditions: sa.ColumnElement[bool],
) -> set[Any]:
    """Lock the rows that have these values and that nobody else has locked.

    It waits for nobody. Where others have locked all of them it returns none.
    """
    found: set[Any] = set()
    for chunk in chunks(values):
        found.update(connection.execute(
            _narrowed(_locking(column, skip_locked=True), conditions),
            {'these': chunk}).scalars())
    return found


def by_index(query: sa.Select[Any], column: sa.Column[Any]) -> sa.Select[Any]:
    """Return a query that locks rows in the order of an index of a column.

    InnoDB locks as it reads, before it sorts, and it reads a small table
    without its indexes. An entry of an index is locked before its row; who
    locked rows alone would wait for who changes one that it found by the
    index, and that one for the first. Other databases need no word of this.
    """
    hint = _force_index_of(column)
    for dialect in mysql.DIALECTS:
        query = query.with_hint(column.table, hint, dialect)
    return query.order_by(column)


def deletion(
    column: sa.Column[Any], condition: sa.ColumnElement[bool]
) -> sa.Delete:
    """Return what deletes rows that it finds by an index of a column.

    InnoDB reads a small table without its indexes, and locks all that it
    reads: two that delete what each has locked would wait for each other.
    """
    table, hint = column.table, _force_index_of(column)
    statement = sa.delete(table).where(condition)
    for dialect in mysql.DIALECTS:
        # Only the form for several tables takes hints.
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
    """Delete rows and return the values of those that were there.

    When several delete the same row, exactly one of them is told so.
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
    """Delete rows that this transaction has locked."""
    for chunk in chunks(values):
        connection.execute(_deleting(column), {'these': chunk})


def _narrowed(
    statement: _Where, conditions: Sequence[sa.ColumnElement[bool]]
) -> _Where:
    """Return the statement itself where there are no conditions.

    A new one, however alike, is looked up by all that it is made of.
    """
    return statement.where(*conditions) if conditions else statement


@functools.cache
def _locking(
    column: sa.Column[Any], skip_locked: bool = False
) -> sa.Select[Any]:
    return by_index(
        sa.select(column).where(in_list(column)), column
    ).with_for_update(skip_locked=skip_locked)


@functools.cache
def _deleting(column: sa.Column[Any]) -> sa.Delete:
    return deletion(column, in_list(column))


@functools.cache
def _inserting(key: sa.Column[Any], dialect: str) -> Any:
    # To import dialects that nobody uses takes as long as a query.
    insert: Any
    if dialect == 'postgresql':
        from sqlalchemy.dialects import postgresql

        insert = postgresql.insert(key.table)
    elif dialect == 'sqlite':
        from sqlalchemy.dialects import sqlite

        insert = sqlite.insert(key.table)
    else:
        return None
    return insert.on_conflict_do_nothing().returning(key)


def _insert_or_fail(
    connection: sa.Connection, key: sa.Column[Any],
    rows: Sequence[Mapping[str, Any]],
) -> set[Any]:
    """Insert rows where a statement that meets a duplicate inserts none.

    Most often there is no duplicate, so MariaDB is first told of many rows by
    one statement. MySQL cannot be: it has no RETURNING, without which a driver
    may make several statements of it.
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
                # It was undone, and the transaction goes on.
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
    """Insert rows and pass over those that are there.

    MySQL takes back the statement that fails, and not the transaction. Its
    IGNORE would hide other errors too.
    """
    inserted = set()
    for row in rows:
        try:
            connection.execute(sa.insert(key.table), row)
        except db_exc.DBDuplicateEntry:
            continue
        inserted.add(row[key.name])
    return inserted
