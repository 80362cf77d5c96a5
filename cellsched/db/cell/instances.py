# SPDX-License-Identifier: Apache-2.0
"""Queries for the servers of a cell."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
import functools
from typing import Any

from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.db.cell import instance_faults
from cellsched.db.cell import models
from cellsched.db import statements
from cellsched import objects

_TABLE = models.instances
_EXTRA = models.instance_extra
_CHILDREN = (models.instance_extra, models.instance_faults,
             models.instance_actions)

#: The object's fields that are columns.
_FIELDS = tuple(name for name in objects.Instance.fields
                if name in _TABLE.c and name != 'created_at')

_ONE = sa.select(_TABLE).where(
    _TABLE.c.uuid == sa.bindparam('of'), _TABLE.c.deleted == 0)

_STATES = (_TABLE.c.node, _TABLE.c.vm_state, _TABLE.c.task_state,
           _TABLE.c.project_id)

_COUNT_STATES = sa.select(*_STATES, sa.func.count().label('servers')).where(
    _TABLE.c.host == sa.bindparam('on'), _TABLE.c.deleted == 0
).group_by(*_STATES)

_PRESENT = sa.select(_TABLE.c.uuid).where(statements.in_list(_TABLE.c.uuid))


def create(
    connection: sa.Connection, instances: Iterable[objects.Instance],
    now: datetime.datetime,
) -> list[str]:
    """Add servers; those that are there already stay as they are.

    :returns: the uuids of those that were new
    """
    instances = list(instances)
    there = _present(connection, [instance.uuid for instance in instances])
    new = [instance for instance in instances if instance.uuid not in there]
    if not new:
        return []
    inserted = statements.insert_missing(connection, _TABLE.c.uuid, [
        {'created_at': instance.get('created_at') or now, 'deleted': 0,
         'hidden': False,
         **{name: instance.get(name) for name in _FIELDS},
         'build_attempts': instance.get('build_attempts', 0)}
        for instance in new])
    new = [instance for instance in new if instance.uuid in inserted]
    if new:
        connection.execute(sa.insert(_EXTRA), [
            {'created_at': now, 'instance_uuid': instance.uuid, 'deleted': 0,
             'flavor': jsonutils.dumps(instance.flavor.obj_to_primitive())}
            for instance in new])
    return [instance.uuid for instance in new]


def get(connection: sa.Connection, uuid: str) -> objects.Instance | None:
    """Return a server that is not deleted, or None."""
    row = connection.execute(_ONE, {'of': uuid}).first()
    return None if row is None else _from_row(row)


def list_all(
    connection: sa.Connection, project_id: str | None = None,
    limit: int | None = None,
) -> list[objects.Instance]:
    """Return servers that are not deleted, the newest first."""
    query = (sa.select(_TABLE)
             .where(_TABLE.c.deleted == 0)
             .order_by(_TABLE.c.created_at.desc(), _TABLE.c.uuid.desc())
             .limit(limit))
    if project_id is not None:
        query = query.where(_TABLE.c.project_id == project_id)
    return [_from_row(row) for row in connection.execute(query)]


def count_states(connection: sa.Connection, host: str) -> Sequence[Any]:
    """Return how many ``servers`` of a host are alike.

    Each row has ``node``, ``vm_state``, ``task_state`` and ``project_id``.
    """
    return connection.execute(_COUNT_STATES, {'on': host}).all()


def update(
    connection: sa.Connection, uuid: str, values: Mapping[str, Any],
    now: datetime.datetime, **expected: Any,
) -> bool:
    """Change a server if it is as expected; return whether it was.

    :param values: columns with their values; ``deleted``, whatever its value,
        marks it as deleted
    :param expected: columns, each with its value or a tuple of values, None
        among them
    """
    given = {name: value if isinstance(value, tuple) else (value,)
             for name, value in expected.items()}
    statement = _update(frozenset(values), frozenset(
        (name, None in allowed) for name, allowed in given.items()))
    return bool(connection.execute(statement, {
        'of': uuid, 'now': now,
        **{f'set_{name}': value for name, value in values.items()
           if name != 'deleted'},
        **{f'was_{name}': [each for each in allowed if each is not None]
           for name, allowed in given.items()}}).rowcount)


@functools.lru_cache(64)
def _update(
    names: frozenset[str], expected: frozenset[tuple[str, bool]]
) -> sa.Update:
    """Return the statement that sets columns if others are as expected.

    :param expected: columns, each with whether it may be NULL
    """
    conditions = []
    for name, nullable in expected:
        column = _TABLE.c[name]
        as_is = column.in_(sa.bindparam(f'was_{name}', expanding=True))
        conditions.append(
            sa.or_(as_is, column.is_(None)) if nullable else as_is)
    return (
        sa.update(_TABLE)
        .where(_TABLE.c.uuid == sa.bindparam('of'), _TABLE.c.deleted == 0,
               *conditions)
        .values(updated_at=sa.bindparam('now'), **{
            name: _TABLE.c.id if name == 'deleted'
            else sa.bindparam(f'set_{name}') for name in names}))


def fail(
    connection: sa.Connection, uuid: str, reason: Exception, by: str,
    now: datetime.datetime, **expected: Any,
) -> bool:
    """Put a server into ERROR, with a fault, if it is as expected.

    :param by: the host that says so
    :returns: whether it was as expected
    """
    failed = update(connection, uuid, {
        'vm_state': 'error', 'task_state': None, 'host': None, 'node': None},
        now, **expected)
    if failed:
        instance_faults.record(connection, uuid, reason, by, now)
    return failed


def delete(
    connection: sa.Connection, uuid: str, now: datetime.datetime,
    **expected: Any,
) -> bool:
    """Mark a server as deleted if it is as expected; return whether it was."""
    return update(connection, uuid, {
        'deleted': True, 'deleted_at': now, 'terminated_at': now,
        'vm_state': 'deleted', 'task_state': None}, now, **expected)


def purge(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Remove every trace of servers that are not to have existed."""
    for chunk in statements.chunks(uuids):
        for child in _CHILDREN:
            connection.execute(
                sa.delete(child).where(child.c.instance_uuid.in_(chunk)))
        connection.execute(sa.delete(_TABLE).where(_TABLE.c.uuid.in_(chunk)))


def _present(connection: sa.Connection, uuids: Iterable[str]) -> set[str]:
    present: set[str] = set()
    for chunk in statements.chunks(uuids):
        present.update(
            connection.execute(_PRESENT, {'these': chunk}).scalars())
    return present


def _from_row(row: sa.Row[Any]) -> objects.Instance:
    return objects.Instance(
        created_at=row.created_at,
        **{name: getattr(row, name) for name in _FIELDS})
