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

from cellsched.db.cell import block_devices
from cellsched.db.cell import build_casts
from cellsched.db.cell import instance_actions
from cellsched.db.cell import instance_faults
from cellsched.db.cell import models
from cellsched.db.cell import states
from cellsched.db.cell import tags
from cellsched.db import statements
from cellsched import objects

_TABLE = models.instances
_EXTRA = models.instance_extra
_CHILDREN = (models.instance_extra, models.instance_faults,
             models.instance_actions, models.block_device_mapping)

#: The object's fields that are columns.
_FIELDS = tuple(name for name in objects.Instance.fields
                if name in _TABLE.c and name != 'created_at')

_ONE = sa.select(_TABLE).where(
    _TABLE.c.uuid == sa.bindparam('of'), _TABLE.c.deleted == 0)

_DELETED = sa.select(_TABLE.c.id).where(
    _TABLE.c.uuid == sa.bindparam('of'), _TABLE.c.deleted != 0)

_MANY = sa.select(_TABLE).where(
    statements.in_list(_TABLE.c.uuid), _TABLE.c.deleted == 0)

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


def is_deleted(connection: sa.Connection, uuid: str) -> bool:
    """Return whether a server was here and is deleted."""
    return connection.execute(_DELETED, {'of': uuid}).first() is not None


def get_many(
    connection: sa.Connection, uuids: Iterable[str]
) -> dict[str, objects.Instance]:
    """Return servers that are not deleted, by uuid."""
    return {row.uuid: _from_row(row) for chunk in statements.chunks(uuids)
            for row in connection.execute(_MANY, {'these': chunk})}


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

    :param values: columns with their values; a state is changed by
        :func:`transit` alone
    :param expected: columns, each with its value or a tuple of values, None
        among them
    """
    if not values.keys().isdisjoint(('vm_state', 'task_state', 'deleted')):
        raise ValueError('a state is changed by transit')
    return _change(connection, uuid, None, values, now, expected)


def transit(
    connection: sa.Connection, uuid: str, transition: str,
    now: datetime.datetime, values: Mapping[str, Any] | None = None,
    **expected: Any,
) -> bool:
    """Take a server to another state; return whether it went there.

    :param transition: its name in :mod:`cellsched.db.cell.states`, which says
        in what states the server must be
    :param values: more columns to set
    :param expected: what more must hold, as for :func:`update`
    """
    changed = _change(
        connection, uuid, states.TRANSITIONS[transition], values or {}, now,
        expected)
    if changed and transition in states.ENDS_OF_BUILD:
        build_casts.drop(connection, [uuid])
    return changed


def _change(
    connection: sa.Connection, uuid: str,
    transition: states.Transition | None, values: Mapping[str, Any],
    now: datetime.datetime, expected: Mapping[str, Any],
) -> bool:
    given = {name: value if isinstance(value, tuple) else (value,)
             for name, value in expected.items()}
    if transition is not None:
        after = transition.after
        values = {**values, 'task_state': after.task_state, **(
            {'vm_state': after.vm_state} if after.vm_state else {})}
    statement = _update(
        frozenset(values), frozenset(
            (name, None in allowed) for name, allowed in given.items()),
        transition.before if transition else None)
    return bool(connection.execute(statement, {
        'of': uuid, 'now': now,
        **{f'set_{name}': value for name, value in values.items()
           if name != 'deleted'},
        **{f'was_{name}': [each for each in allowed if each is not None]
           for name, allowed in given.items()}}).rowcount)


@functools.lru_cache(256)
def _update(
    names: frozenset[str], expected: frozenset[tuple[str, bool]],
    before: frozenset[states.State] | None,
) -> sa.Update:
    """Return the statement that sets columns if others are as expected.

    :param expected: columns, each with whether it may be NULL
    :param before: the states in which the server may be, None for any
    """
    conditions = []
    for name, nullable in expected:
        column = _TABLE.c[name]
        as_is = statements.in_list(column, f'was_{name}')
        conditions.append(
            sa.or_(as_is, column.is_(None)) if nullable else as_is)
    if before is not None:
        conditions.append(sa.or_(*(
            sa.and_(_TABLE.c.vm_state == state.vm_state,
                    _TABLE.c.task_state == state.task_state)
            for state in sorted(before, key=str))))
    return (
        sa.update(_TABLE)
        .where(_TABLE.c.uuid == sa.bindparam('of'), _TABLE.c.deleted == 0,
               *conditions)
        .values(updated_at=sa.bindparam('now'), **{
            name: _TABLE.c.id if name == 'deleted'
            else sa.bindparam(f'set_{name}') for name in names}))


def fail(
    connection: sa.Connection, uuid: str, reason: Exception, by: str,
    now: datetime.datetime, transition: str = 'fail', **expected: Any,
) -> bool:
    """Put a server into ERROR, with a fault, if it is as expected.

    :param by: the host that says so
    :param transition: one that ends in ERROR
    :returns: whether it was as expected
    """
    failed = transit(
        connection, uuid, transition, now, {'host': None, 'node': None},
        **expected)
    if failed:
        instance_faults.record(connection, uuid, reason, by, now)
    return failed


def delete(
    connection: sa.Connection, uuid: str, now: datetime.datetime,
    **expected: Any,
) -> bool:
    """Mark a server as deleted if it is as expected; return whether it was.

    Its tags go, and its block devices are marked too.
    """
    deleted = transit(
        connection, uuid, 'delete', now,
        {'deleted': True, 'deleted_at': now, 'terminated_at': now},
        **expected)
    if deleted:
        tags.delete(connection, [uuid])
        block_devices.mark_deleted(connection, [uuid], now)
    return deleted


def purge(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Remove every trace of servers that are not to have existed."""
    for chunk in statements.chunks(uuids):
        instance_actions.delete_events(connection, chunk)
        tags.delete(connection, chunk)
        build_casts.drop(connection, chunk)
        for child in _CHILDREN:
            connection.execute(
                sa.delete(child).where(child.c.instance_uuid.in_(chunk)))
        connection.execute(sa.delete(_TABLE).where(_TABLE.c.uuid.in_(chunk)))


def lock(connection: sa.Connection, uuids: Iterable[str]) -> set[str]:
    """Lock the rows of servers that are not deleted; return which there are.

    They stay as they are until the transaction ends.
    """
    return {uuid for chunk in statements.chunks(uuids)
            for uuid in statements.lock(
                connection, _TABLE.c.uuid, chunk, _TABLE.c.deleted == 0)}


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
