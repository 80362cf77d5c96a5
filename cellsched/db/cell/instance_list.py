# SPDX-License-Identifier: Apache-2.0
"""Pages of a cell's servers: filters, sort keys, and the query."""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import operator
from typing import Any

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db import sort_order
from cellsched import objects

_TABLE = models.instances
_TAGS = models.tags

#: Sort keys of servers.
SORT_KEYS = frozenset({
    'availability_zone', 'created_at', 'display_name', 'host', 'image_ref',
    'instance_type_id', 'launch_index', 'launched_at', 'node', 'power_state',
    'project_id', 'task_state', 'terminated_at', 'updated_at', 'user_id',
    'uuid', 'vm_state'})

#: Columns that a filter can match against several values.
MATCHED = frozenset({
    'availability_zone', 'host', 'image_ref', 'instance_type_id',
    'launch_index', 'node', 'power_state', 'project_id', 'reservation_id',
    'task_state', 'user_id', 'uuid', 'vm_state'})

#: Columns of a listed server, in this order.
SHOWN = ('uuid', 'display_name', 'project_id', 'user_id', 'vm_state',
         'task_state', 'host', 'availability_zone', 'image_ref',
         'build_attempts', 'created_at', 'updated_at', 'deleted')


@dataclasses.dataclass(frozen=True)
class InstanceFilter:
    """The conditions of a listing.

    :param matches: allowed values by column of :data:`MATCHED`; None matches
        NULL
    :param name: a part of the name, in upper or lower case
    :param tags: the server has all of them
    :param tags_any: the server has one of them
    :param not_tags: the server lacks one of them
    :param not_tags_any: the server lacks all of them
    :param deleted: whether the server is deleted; None for both
    :param changes_since: the server changed at this time or later
    :param changes_before: the server changed at this time or earlier
    """

    matches: Mapping[str, Collection[Any]] = dataclasses.field(
        default_factory=dict)
    name: str | None = None
    tags: Collection[str] = ()
    tags_any: Collection[str] = ()
    not_tags: Collection[str] = ()
    not_tags_any: Collection[str] = ()
    deleted: bool | None = False
    changes_since: datetime.datetime | None = None
    changes_before: datetime.datetime | None = None

    def by(self, columns: Collection[str]) -> bool:
        """Return whether only these columns decide.

        Only servers that are not deleted match.
        """
        return self == InstanceFilter(matches={
            name: values for name, values in self.matches.items()
            if name in columns})

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """Return the conditions of the query."""
        conditions = [
            _TABLE.c.hidden.is_not(sa.true()),
            *(_is_one_of(_TABLE.c[name], values)
              for name, values in sorted(self.matches.items()))]
        if self.deleted is not None:
            conditions.append(_TABLE.c.deleted != 0 if self.deleted
                              else _TABLE.c.deleted == 0)
        if self.name is not None:
            conditions.append(_TABLE.c.display_name.icontains(
                self.name, autoescape=True))
        conditions.extend(_has_tag([tag]) for tag in self.tags)
        if self.tags_any:
            conditions.append(_has_tag(self.tags_any))
        if self.not_tags:
            conditions.append(sa.or_(
                *(~_has_tag([tag]) for tag in self.not_tags)))
        if self.not_tags_any:
            conditions.append(~_has_tag(self.not_tags_any))
        changed_at = sa.func.coalesce(_TABLE.c.updated_at, _TABLE.c.created_at)
        if self.changes_since is not None:
            conditions.append(changed_at >= self.changes_since)
        if self.changes_before is not None:
            conditions.append(changed_at <= self.changes_before)
        return conditions

    def admits(
        self, instance: objects.Instance, tags: Collection[str],
        changed_at: datetime.datetime,
    ) -> bool:
        """Return whether a server without a row matches.

        :param changed_at: time of the request or of its last change
        """
        name = instance.get('display_name') or ''
        lacking = set(self.not_tags) - set(tags)
        return (
            not self.deleted
            and all(instance.get(column) in values
                    for column, values in self.matches.items())
            and (self.name is None or self.name.lower() in name.lower())
            and set(tags).issuperset(self.tags)
            and (not self.tags_any or not set(tags).isdisjoint(self.tags_any))
            and (not self.not_tags or bool(lacking))
            and set(tags).isdisjoint(self.not_tags_any)
            and (self.changes_since is None
                 or changed_at >= self.changes_since)
            and (self.changes_before is None
                 or changed_at <= self.changes_before))


def page(
    connection: sa.Connection, requested: InstanceFilter,
    order: sort_order.SortOrder, after: Sequence[Any] | None = None,
    limit: int | None = None,
) -> Sequence[sa.Row[Any]]:
    """Return a page of matching servers, in order.

    Rows have :data:`SHOWN` and further columns of the order; see
    :func:`sort_values`.

    :param after: values of the order's keys; the page begins after them
    """
    dialect = connection.dialect.name
    query = (
        sa.select(*(_TABLE.c[name] for name in _columns(order)))
        .where(*requested.conditions())
        .order_by(*order.clauses(_TABLE.c, dialect)).limit(limit))
    if after is not None:
        query = query.where(order.after(_TABLE.c, after, dialect))
    return connection.execute(query).all()


def sort_values(
    order: sort_order.SortOrder, rows: Iterable[Sequence[Any]]
) -> list[tuple[Any, ...]]:
    """Return the positions of the sort keys in the rows of a page.

    Access by name takes ten times as long.
    """
    columns = _columns(order)
    places = [columns.index(name) for name in order.names]
    if len(places) == 1:
        return [(row[places[0]],) for row in rows]
    return [*map(operator.itemgetter(*places), rows)]


def _columns(order: sort_order.SortOrder) -> list[str]:
    return [*dict.fromkeys((*SHOWN, *order.names))]


def values(
    connection: sa.Connection, uuid: str, order: sort_order.SortOrder
) -> sa.Row[Any] | None:
    """Return the sort values of a server, deleted or not, or None."""
    return connection.execute(
        sa.select(*(_TABLE.c[name] for name in order.names))
        .where(_TABLE.c.uuid == uuid)).first()


def value_type(name: str) -> type:
    """Return the Python type of a sort key's values that are not NULL."""
    return _TABLE.c[name].type.python_type


def _is_one_of(
    column: sa.Column[Any], values: Collection[Any]
) -> sa.ColumnElement[bool]:
    some = [value for value in values if value is not None]
    if len(some) == len(values):
        return column.in_(some)
    return sa.or_(column.in_(some), column.is_(None))


def _has_tag(tags: Collection[str]) -> sa.ColumnElement[bool]:
    return sa.exists().where(
        _TAGS.c.resource_id == _TABLE.c.uuid, _TAGS.c.tag.in_(tags))
