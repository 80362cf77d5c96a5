# SPDX-License-Identifier: Apache-2.0
"""Sort orders that several databases and Python agree on.

Rows of several databases are merged by them, and a page begins after the last
row of the one before: keyset pagination. Databases differ about where NULL
goes and how texts compare. Here NULL comes before everything, and texts
compare by their code points, as they do in Python.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

import sqlalchemy as sa

#: The collations by which texts compare by code points.
_BY_CODE_POINTS = {'postgresql': 'C', 'mysql': 'utf8mb4_bin'}

#: Columns that every row has. No place needs to be found for NULL, and an
#: index has them in order.
_NEVER_NULL = frozenset({'created_at', 'uuid'})

#: Texts that every collation has in the order of their code points.
_ASCII = frozenset({'uuid'})


class _Descending:
    """A value that comes before lesser ones."""

    __slots__ = ('value',)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and self.value == other.value

    def __lt__(self, other: '_Descending') -> bool:
        return bool(other.value < self.value)


@dataclasses.dataclass(frozen=True)
class SortOrder:
    """An order of rows that differ in their uuids.

    :param keys: names of columns, each with whether it descends; ``uuid`` is
        among them
    """

    keys: tuple[tuple[str, bool], ...]

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.keys)

    @functools.cached_property
    def descends(self) -> bool:
        """Return whether greater places come first."""
        return all(descending for _, descending in self.keys)

    @functools.cached_property
    def _is_plain(self) -> bool:
        """Return whether values compare as they are."""
        one_way = len({descending for _, descending in self.keys}) == 1
        return one_way and _NEVER_NULL.issuperset(self.names)

    def place(self, values: Sequence[Any]) -> Any:
        """Return what compares as rows with these values are sorted.

        Where the order descends it compares the other way around.

        :param values: of the keys
        """
        if self._is_plain:
            return tuple(values)
        if self.descends:
            return tuple([(value is not None, value) for value in values])
        return tuple([
            _Descending((value is not None, value)) if descending
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
        """Return what a statement orders by.

        :param columns: by key; one that is left out is NULL in each row
        :param dialect: the name of the database's
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

        :param columns: by key; one that is left out is NULL in each row
        :param values: of the keys
        :param dialect: the name of the database's
        """
        condition: sa.ColumnElement[bool] = sa.false()
        for (name, descending), value in reversed(
                [*zip(self.keys, values)]):
            column = (_comparable(columns[name], name, dialect)
                      if name in columns else None)
            condition = sa.or_(
                _beyond(column, value, descending, name in _NEVER_NULL),
                sa.and_(_same(column, value), condition))
        name, descending = self.keys[0]
        if name in _NEVER_NULL and name in columns:
            # With this an index finds the first row.
            first = next(iter(values))
            column = columns[name]
            condition = sa.and_(
                column <= first if descending else column >= first,
                condition)
        return condition


def _comparable(
    column: sa.ColumnElement[Any], name: str, dialect: str
) -> sa.ColumnElement[Any]:
    if dialect in _BY_CODE_POINTS and name not in _ASCII and (
            isinstance(column.type, sa.String)):
        return sa.collate(column, _BY_CODE_POINTS[dialect])
    return column


def _beyond(
    column: sa.ColumnElement[Any] | None, value: Any, descending: bool,
    never_null: bool,
) -> sa.ColumnElement[bool]:
    """Return the condition that a column's value comes later than this."""
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
