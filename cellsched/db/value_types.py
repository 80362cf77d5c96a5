# SPDX-License-Identifier: Apache-2.0
"""Values that are not of the type of their column.

Only SQLite stores them: it converts a value if it can, and keeps it otherwise.
"""

import functools
from typing import Any
from typing import NamedTuple

import sqlalchemy as sa

#: By the type of a column, what it holds and SQLite's types of that.
_TYPES: tuple[tuple[Any, str, tuple[str, ...]], ...] = (
    (sa.DateTime, 'time', ('text',)),
    (sa.String, 'text', ('text',)),
    ((sa.Boolean, sa.Integer), 'integer', ('integer',)),
    (sa.Float, 'number', ('integer', 'real')))

_LIMIT = 'row_limit'


class WrongValue(NamedTuple):
    """A value of the wrong type.

    :param key: the primary key of its row
    :param expected: what the column holds, such as ``time``
    """

    table: str
    key: Any
    column: str
    value: Any
    expected: str


def find_wrong(
    connection: sa.Connection, metadata: sa.MetaData, limit: int
) -> list[WrongValue]:
    """Return the values of a database that have the wrong type.

    :param limit: the most rows of each table
    """
    if connection.dialect.name != 'sqlite':
        return []
    return [found for table in metadata.sorted_tables
            for found in _of_table(connection, table, limit)]


def _of_table(
    connection: sa.Connection, table: sa.Table, limit: int
) -> list[WrongValue]:
    query = _query(table)
    return [
        WrongValue(table.name, row[0], name, value, expected)
        for row in connection.execute(query.statement, {_LIMIT: limit})
        for (name, expected), value, is_wrong in zip(
            query.columns, row[1:], row[1 + len(query.columns):])
        if is_wrong]


class _Query(NamedTuple):
    """The rows of a table with a value of the wrong type.

    :param columns: names, and what they hold
    :param statement: selects the key, each column, and whether each is wrong
    """

    columns: list[tuple[str, str]]
    statement: sa.Executable


@functools.cache
def _query(table: sa.Table) -> _Query:
    """Return the query of a table; SQLAlchemy takes long to build it."""
    key = next(iter(table.primary_key))
    known = [(column, *each) for column in table.c
             if (each := _type_of(column)) is not None]
    wrong = [sa.and_(column.is_not(None), sa.not_(right))
             for column, _, right in known]
    # Without a type, SQLAlchemy converts no value.
    values = [sa.type_coerce(column, sa.types.NullType())
              for column in (key, *(column for column, _, _ in known))]
    return _Query(
        [(column.name, expected) for column, expected, _ in known],
        sa.select(*values, *wrong).where(sa.or_(*wrong))
        .order_by(key).limit(sa.bindparam(_LIMIT, type_=sa.Integer)))


def _type_of(
    column: sa.Column[Any]
) -> tuple[str, sa.ColumnElement[bool]] | None:
    """Return what a column holds, and the condition that a value is that."""
    for types, expected, stored in _TYPES:
        if isinstance(column.type, types):
            conditions = [sa.func.typeof(column).in_(stored)]
            if expected == 'time':
                conditions += [
                    sa.func.datetime(column).is_not(None),
                    sa.type_coerce(column, sa.String).like(
                        '____-__-__ __:__:__%')]
            return expected, sa.and_(*conditions)
    return None
