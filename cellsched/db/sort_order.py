# SPDX-License-Identifier: Apache-2.0
"""Sort orders with the same result in every database and in Python.

Listings merge rows of several databases and use keyset pagination: a page
begins after the last row of the previous page. Databases differ in the
position of NULL and in the comparison of strings. Here NULL comes first, and
strings compare by code points, as in Python. On MariaDB and MySQL the tables
have a collation that does so, which the migrations set
(:func:`.migration.create_tables`).
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

import sqlalchemy as sa

#: Columns that are never NULL, so that a plain index serves the order.
_NEVER_NULL = frozenset({'created_at', 'uuid'})

#: String columns whose values sort by code points in every collation.
_ASCII = frozenset({'uuid'})


class _DescendingValue:
    """A value with inverted comparison, for descending keys."""

    __slots__ = ('value',)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, _DescendingValue)
                and self.value == other.value)

    def __lt__(self, other: '_DescendingValue') -> bool:
        return bool(other.value < self.value)


@dataclasses.dataclass(frozen=True)
class SortOrder:
    """A total order of rows.

    :param keys: pairs of a column name and whether it descends; one of them is
        ``uuid``, which makes the order total
    """

    keys: tuple[tuple[str, bool], ...]

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.keys)

    @functools.cached_property
    def descends(self) -> bool:
        """Return whether all keys descend."""
        return all(descending for _, descending in self.keys)

    @functools.cached_property
    def _is_plain(self) -> bool:
        """Return whether values can be compared without conversion."""
        one_way = len({descending for _, descending in self.keys}) == 1
        return one_way and _NEVER_NULL.issuperset(self.names)

    def place(self, values: Sequence[Any]) -> Any:
        """Return a sort key for Python, in the order of the rows.

        If :meth:`descends`, it compares in the opposite order.

        :param values: values of the keys
        """
        if self._is_plain:
            return tuple(values)
        if self.descends:
            return tuple([(value is not None, value) for value in values])
        return tuple([
            _DescendingValue((value is not None, value)) if descending
            else (value is not None, value)
            for value, (_, descending) in zip(values, self.keys)])

    def places(
        self, rows: Iterable[tuple[Any, ...]]
    ) -> Iterable[tuple[Any, ...]]:
        """Return the :meth:`place` of each row of values."""
        return rows if self._is_plain else map(self.place, rows)

    def clauses(
        self, columns: Mapping[str, sa.ColumnElement[Any]], dialect: str
    ) -> list[sa.ColumnElement[Any]]:
        """Return the ORDER BY clauses of a statement.

        :param columns: columns by key; a missing one is NULL in each row
        :param dialect: name of the database's dialect
        """
        clauses: list[sa.ColumnElement[Any]] = []
        for name, descending in self.keys:
            if name not in columns:
                continue
            column = _comparable(columns[name], name, dialect)
            clause = column.desc() if descending else column.asc()
            if dialect == 'postgresql' and name not in _NEVER_NULL:
                clause = (clause.nulls_last() if descending
                          else clause.nulls_first())
            clauses.append(clause)
        return clauses

    def after(
        self, columns: Mapping[str, sa.ColumnElement[Any]],
        values: Iterable[Any], dialect: str,
    ) -> sa.ColumnElement[bool]:
        """Return the condition that a row comes after these values.

        :param columns: columns by key; a missing one is NULL in each row
        :param values: values of the keys
        :param dialect: name of the database's dialect
        """
        condition: sa.ColumnElement[bool] = sa.false()
        for (name, descending), value in reversed([*zip(self.keys, values)]):
            column = (_comparable(columns[name], name, dialect)
                      if name in columns else None)
            condition = sa.or_(
                _beyond(column, value, descending, name in _NEVER_NULL),
                sa.and_(_same(column, value), condition))
        name, descending = self.keys[0]
        if name in _NEVER_NULL and name in columns:
            # This redundant condition lets an index find the first row.
            first = next(iter(values))
            column = columns[name]
            condition = sa.and_(
                column <= first if descending else column >= first,
                condition)
        return condition


def _comparable(
    column: sa.ColumnElement[Any], name: str, dialect: str
) -> sa.ColumnElement[Any]:
    """Return a column that compares strings by code points."""
    if dialect == 'postgresql' and name not in _ASCII and (
            isinstance(column.type, sa.String)):
        return sa.collate(column, 'C')
    return column


def _beyond(
    column: sa.ColumnElement[Any] | None, value: Any, descending: bool,
    never_null: bool,
) -> sa.ColumnElement[bool]:
    """Return the condition that a column's value comes after this value."""
    if column is None:
        return sa.true() if descending and value is not None else sa.false()
    if value is None:
        return sa.false() if descending else column.is_not(None)
    if not descending:
        return column > value
    return (column < value if never_null
            else sa.or_(column < value, column.is_(None)))


def _same(
    column: sa.ColumnElement[Any] | None, value: Any
) -> sa.ColumnElement[bool]:
    if column is None:
        return sa.true() if value is None else sa.false()
    return column.is_(None) if value is None else column == value
