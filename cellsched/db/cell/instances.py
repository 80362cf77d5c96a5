# SPDX-License-Identifier: Apache-2.0
"""Queries for the servers of a cell."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
import functools
from typing import Any
from typing import NamedTuple

from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.db.cell import build_casts
from cellsched.db.cell import instance_children
from cellsched.db.cell import instance_history
from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched.db.cell import states
from cellsched.db import statements
from cellsched import objects

_TABLE = models.instances
_EXTRA = models.instance_extra
_NODES = models.compute_nodes
_CHILDREN = (models.instance_extra, models.instance_system_metadata,
             models.instance_faults, models.instance_actions,
             models.block_device_mapping)

#: The object's fields that are columns.
_FIELDS = tuple(name for name in objects.Instance.fields
                if name in _TABLE.c and name != 'created_at')

_ONE = sa.select(_TABLE).where(
    _TABLE.c.uuid == sa.bindparam('of'), _TABLE.c.deleted == 0)

_DELETED = sa.select(_TABLE.c.id).where(
    _TABLE.c.uuid == sa.bindparam('of'), _TABLE.c.deleted != 0)

# SQLite assumes that few rows have deleted = 0, and would scan the table
# without this hint.
_MANY = sa.select(_TABLE).where(statements.in_list(_TABLE.c.uuid))

_LOCK = statements.by_index(
    sa.select(_TABLE.c.id, _TABLE.c.uuid, _TABLE.c.deleted, _TABLE.c.host)
    .where(statements.in_list(_TABLE.c.uuid)), _TABLE.c.uuid
).with_for_update()

_STATES = (_TABLE.c.node, _TABLE.c.vm_state, _TABLE.c.task_state,
           _TABLE.c.project_id)

_HELD_NAMES = ('held_uuid', 'held_host', 'held_node')

_HELD = sa.exists().where(_NODES.c.deleted == 0, *(
    column == sa.bindparam(name) for column, name in zip(
        (_NODES.c.uuid, _NODES.c.host, _NODES.c.hypervisor_hostname),
        _HELD_NAMES, strict=True)))

_COUNT_STATES = sa.select(
    *_STATES, sa.func.count().label('servers'),
    sa.func.sum(_TABLE.c.id).label('ids'),
    sa.func.max(_TABLE.c.updated_at).label('updated_at')).where(
    _TABLE.c.host == sa.bindparam('on'), _TABLE.c.deleted == 0
).group_by(*_STATES)


#: Condition of an ended server: deleted, or in ERROR without a host.
_ENDED = sa.or_(
    _TABLE.c.deleted != 0,
    sa.and_(_TABLE.c.vm_state == 'error', _TABLE.c.host.is_(None)))

_HAS_NETWORKS = sa.select(_TABLE.c.network_allocated).where(
    _TABLE.c.uuid == sa.bindparam('of'))

_WITH_NETWORKS = sa.select(
    _TABLE.c.uuid, _TABLE.c.project_id, _TABLE.c.user_id,
).where(
    _TABLE.c.network_allocated == sa.true(), _ENDED,
    _TABLE.c.uuid > sa.bindparam('after'),
).order_by(_TABLE.c.uuid).limit(sa.bindparam('most'))

_FORGET_NETWORKS = (
    sa.update(_TABLE)
    .where(_TABLE.c.uuid == sa.bindparam('of'),
           _TABLE.c.network_allocated == sa.true(), _ENDED)
    .values(network_allocated=False, updated_at=sa.bindparam('now')))


class Change(NamedTuple):
    """A change of a server's state, as :func:`transit` makes it.

    :ivar held: a node that must exist for the change: its uuid, its host and
        its name; None for no condition
    """

    uuid: str
    transition: str
    values: Mapping[str, Any]
    expected: Mapping[str, Any]
    held: tuple[str, str, str] | None = None


def create(
    connection: sa.Connection, instances: Iterable[objects.Instance],
    now: datetime.datetime,
    images: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[str]:
    """Add servers; existing rows are kept.

    A server whose request was lost has no flavor.

    :param images: image properties by server uuid, where there are any
    :returns: the uuids of the new servers
    """
    instances = list(instances)
    inserted = statements.insert_missing(connection, _TABLE.c.uuid, [
        {'created_at': instance.get('created_at') or now, 'deleted': 0,
         'hidden': False,
         **instance.values_of(_FIELDS),
         'build_attempts': instance.get('build_attempts', 0)}
        for instance in instances])
    new = [instance for instance in instances if instance.uuid in inserted]
    if new:
        # The servers of a batch share a flavor object.
        flavors = {id(flavor): flavor for instance in new
                   if (flavor := instance.get('flavor'))}
        texts = {key: jsonutils.dumps(flavor.obj_to_primitive())
                 for key, flavor in flavors.items()}
        statements.insert_all(connection, _EXTRA, [
            {'created_at': now, 'instance_uuid': instance.uuid, 'deleted': 0,
             'flavor': texts.get(id(instance.get('flavor')))}
            for instance in new])
        instance_children.create_image_properties(connection, {
            instance.uuid: properties for instance in new
            if (properties := (images or {}).get(instance.uuid))}, now)
    return [instance.uuid for instance in new]


def get(connection: sa.Connection, uuid: str) -> objects.Instance | None:
    """Return a server that is not deleted, or None."""
    row = connection.execute(_ONE, {'of': uuid}).first()
    return None if row is None else _from_row(row)


def is_deleted(connection: sa.Connection, uuid: str) -> bool:
    """Return whether a server has a row and is deleted."""
    return connection.execute(_DELETED, {'of': uuid}).first() is not None


def get_many(
    connection: sa.Connection, uuids: Iterable[str]
) -> dict[str, objects.Instance]:
    """Return servers that are not deleted, by uuid."""
    return {row.uuid: _from_row(row)
            for row in statements.read(connection, _MANY, uuids)
            if not row.deleted}


def count_all(connection: sa.Connection) -> int:
    """Return the number of servers, including deleted ones."""
    return connection.execute(
        sa.select(sa.func.count()).select_from(_TABLE)).scalar_one()


def page_by_id(
    connection: sa.Connection, after: int, limit: int
) -> Sequence[Mapping[Any, Any]]:
    """Return ids and mapping columns of a page of servers.

    It includes deleted servers.
    """
    return connection.execute(
        sa.select(_TABLE.c.id, _TABLE.c.uuid, _TABLE.c.project_id,
                  _TABLE.c.user_id, _TABLE.c.deleted, _TABLE.c.vcpus,
                  _TABLE.c.memory_mb)
        .where(_TABLE.c.id > after).order_by(_TABLE.c.id).limit(limit)
    ).mappings().all()


def count_states(connection: sa.Connection, host: str) -> Sequence[Any]:
    """Return the number of servers of a host by state and project.

    Each row has ``node``, ``vm_state``, ``task_state`` and ``project_id``.
    Its ``ids`` and ``updated_at`` change when a server of the row changes.
    """
    return connection.execute(_COUNT_STATES, {'on': host}).all()


def update(
    connection: sa.Connection, uuid: str, values: Mapping[str, Any],
    now: datetime.datetime, **expected: Any,
) -> bool:
    """Change a server on a condition; return whether the condition held.

    :param values: new values by column; only :func:`transit` changes states
    :param expected: expected value by column, or a tuple of allowed values,
        which may include None
    """
    if not values.keys().isdisjoint(('vm_state', 'task_state', 'deleted')):
        raise ValueError('a state is changed by transit')
    changed = bool(_change(connection, uuid, None, values, now, expected))
    if changed and 'image_ref' in values:
        instance_children.delete_image_properties(connection, uuid)
    return changed


def correct(
    connection: sa.Connection, request: objects.BuildRequest,
    now: datetime.datetime,
) -> None:
    """Apply the user's changes of a request to its row."""
    uuid = request.instance_uuid
    if update(
            connection, uuid,
            {'display_name': request.instance.get('display_name')}, now):
        instance_children.replace_tags(connection, uuid, request.tag_names)


def transit(
    connection: sa.Connection, uuid: str, transition: str,
    now: datetime.datetime, values: Mapping[str, Any] | None = None,
    **expected: Any,
) -> bool:
    """Change the state of a server; return whether the change was allowed.

    :param transition: a name in :mod:`cellsched.db.cell.states`, which defines
        the allowed states before
    :param values: further columns to set
    :param expected: further conditions, as for :func:`update`
    """
    change = Change(uuid, transition, values or {}, expected)
    return bool(_transit(connection, change, now, uuid))


def transit_all(
    connection: sa.Connection, changes: Sequence[Change],
    now: datetime.datetime,
) -> set[str]:
    """Change the states of servers.

    Equal changes share a statement.

    :returns: the uuids of the changed servers
    """
    if len(changes) == 1:
        [change] = changes
        return set(_transit(connection, change, now, change.uuid))
    ids = {row.uuid: row.id for row in statements.read(
        connection, _LOCK, [change.uuid for change in changes])}
    alike: dict[object, list[Change]] = {}
    for change in changes:
        kind = (change.transition, frozenset(change.values.items()),
                frozenset(change.expected.items()), change.held)
        if change.uuid in ids:
            alike.setdefault(kind, []).append(change)
    if connection.dialect.update_returning:
        return {uuid for group in alike.values() for chunk in
                statements.chunks(ids[change.uuid] for change in group)
                for uuid in _transit(connection, group[0], now, chunk)}
    # MySQL has no RETURNING.
    return {uuid for group in alike.values() for change in group
            for uuid in _transit(connection, change, now, change.uuid)}


def end_build(
    connection: sa.Connection, change: Change, now: datetime.datetime,
    started_at: datetime.datetime | None, host: str,
) -> set[str]:
    """End the build of a server and its action in one statement.

    It is for PostgreSQL, and for a connection in autocommit mode.

    :param started_at: see :func:`.instance_history.finish`
    :param host: the host of the server
    :returns: the uuid of the server, if it is changed
    """
    statement, parameters = _changing(
        change.uuid, states.TRANSITIONS[change.transition], change.values,
        now, change.expected)
    return set(connection.execute(_ending(statement), {
        **parameters,
        **instance_history.finishing_parameters(started_at, now, host),
    }).scalars())


@functools.lru_cache(16)
def _ending(statement: sa.Update) -> sa.Select[Any]:
    changed = sa.select(statement.returning(_TABLE.c.uuid).cte('changed'))
    return changed.add_cte(
        build_casts.dropping(changed).cte('dropped'),
        instance_history.finishing(changed).cte('recorded'))


def _transit(
    connection: sa.Connection, change: Change, now: datetime.datetime,
    these: str | Sequence[int],
) -> Sequence[str]:
    went = _change(
        connection, these, states.TRANSITIONS[change.transition],
        change.values, now, change.expected, change.held)
    if went and change.transition in states.ENDS_OF_BUILD:
        build_casts.drop(connection, went)
    return went


def _change(
    connection: sa.Connection, these: str | Sequence[int],
    transition: states.Transition | None, values: Mapping[str, Any],
    now: datetime.datetime, expected: Mapping[str, Any],
    held: tuple[str, str, str] | None = None,
) -> Sequence[str]:
    """Change servers on a condition; return the changed ones."""
    result = connection.execute(
        *_changing(these, transition, values, now, expected, held))
    if isinstance(these, str):
        return [these] if result.rowcount else []
    return result.scalars().all()


def _changing(
    these: str | Sequence[int], transition: states.Transition | None,
    values: Mapping[str, Any], now: datetime.datetime,
    expected: Mapping[str, Any], held: tuple[str, str, str] | None = None,
) -> tuple[sa.Update, dict[str, Any]]:
    """Return the statement for a conditional change, and its parameters.

    :param these: a uuid, or the ids of several locked rows
    :param held: see :class:`Change`
    """
    if transition is not None:
        after = transition.after
        values = {**values, 'task_state': after.task_state, **(
            {'vm_state': after.vm_state} if after.vm_state else {})}
    allowed = {name: value if isinstance(value, tuple) else (value,)
               for name, value in expected.items()}
    statement = _update(
        frozenset(values), tuple(
            (name, tuple(value is None for value in choice))
            for name, choice in allowed.items()),
        transition.before if transition else None, isinstance(these, str),
        held is not None)
    return statement, {
        'these': these, 'now': now,
        **(dict(zip(_HELD_NAMES, held, strict=True)) if held else {}),
        **{f'set_{name}': value for name, value in values.items()
           if name != 'deleted'},
        **{f'was_{name}_{place}': value for name, choice in allowed.items()
           for place, value in enumerate(choice) if value is not None}}


@functools.lru_cache(256)
def _update(
    names: frozenset[str], expected: tuple[tuple[str, tuple[bool, ...]], ...],
    before: frozenset[states.State] | None, one: bool, held: bool,
) -> sa.Update:
    """Return the UPDATE statement for a conditional change.

    :param expected: columns, each with whether its allowed values are NULL
    :param before: the allowed states, or None for any state
    :param one: whether it updates one server; otherwise it returns the ids of
        the changed rows
    :param held: whether it has the condition on a node
    """
    conditions: list[sa.ColumnElement[bool]] = [
        sa.or_(sa.false(), *(
            _TABLE.c[name] == (
                None if is_null else sa.bindparam(f'was_{name}_{place}'))
            for place, is_null in enumerate(choice)))
        for name, choice in expected]
    if before is not None:
        conditions.append(sa.or_(*(
            sa.and_(_TABLE.c.vm_state == state.vm_state,
                    _TABLE.c.task_state == state.task_state)
            for state in sorted(before, key=str))))
    if held:
        conditions.append(_HELD)
    these = (_TABLE.c.uuid == sa.bindparam('these') if one
             else statements.in_list(_TABLE.c.id))
    statement = (
        sa.update(_TABLE).where(these, _TABLE.c.deleted == 0, *conditions)
        .values(updated_at=sa.bindparam('now'), **{
            name: _TABLE.c.id if name == 'deleted'
            else sa.bindparam(f'set_{name}') for name in names}))
    return statement if one else statement.returning(_TABLE.c.uuid)


def fail(
    connection: sa.Connection, uuid: str, reason: Exception, by: str,
    now: datetime.datetime, event: str, **expected: Any,
) -> bool:
    """End a build in ERROR with a fault, on a condition.

    :param by: the host that reports the fault
    :param event: the failed step, for the action on the server
    :returns: whether the condition held
    """
    failed = transit(
        connection, uuid, 'fail', now, {'host': None, 'node': None},
        **expected)
    if failed:
        instance_history.record(connection, uuid, reason, by, now)
        instance_history.fail(
            connection, uuid, 'create', event, now, reason, by)
    return failed


def delete(
    connection: sa.Connection, uuid: str, now: datetime.datetime,
    **expected: Any,
) -> bool:
    """Mark a server as deleted on a condition; return whether it held.

    Its tags are deleted, and its block devices are marked as deleted. A move
    that no host was told of ends.
    """
    deleted = transit(
        connection, uuid, 'delete', now,
        {'deleted': True, 'deleted_at': now, 'terminated_at': now},
        **expected)
    if deleted:
        instance_history.close(connection, uuid, now)
        server_moves.end_unsent(connection, uuid, now)
        instance_children.delete_tags(connection, [uuid])
        instance_children.mark_block_devices_deleted(connection, [uuid], now)
    return deleted


def purge(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Delete all rows of servers."""
    uuids = list(uuids)
    instance_history.delete_events(connection, uuids)
    instance_children.delete_tags(connection, uuids)
    build_casts.drop(connection, uuids)
    for column in (
            *(child.c.instance_uuid for child in _CHILDREN), _TABLE.c.uuid):
        statements.write(connection, sa.delete(column.table).where(
            statements.in_list(column)), uuids)


def undo_builds(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Delete all rows of servers whose build is undone.

    A deleted row stays: it prevents the build. A server on a host stays, too,
    which a restored API database can show as a build.
    """
    uuids = list(uuids)
    kept = {row.uuid for row in statements.read(connection, _LOCK, uuids)
            if row.deleted or row.host is not None}
    purge(connection, [uuid for uuid in uuids if uuid not in kept])


def lock(connection: sa.Connection, uuids: Iterable[str]) -> set[str]:
    """Lock the rows of servers that are not deleted; return their uuids."""
    return {row.uuid for row in statements.read(connection, _LOCK, uuids)
            if not row.deleted}


def has_networks(connection: sa.Connection, uuid: str) -> bool:
    """Return whether a server may have networks.

    The cell's database has no other data on networks.
    """
    return bool(connection.execute(_HAS_NETWORKS, {'of': uuid}).scalar())


def list_with_networks(
    connection: sa.Connection, limit: int, after: str = ''
) -> list[objects.Instance]:
    """Return a page of ended servers that may have networks.

    Rows have uuid, project and user, sorted by uuid.

    :param after: the uuid at which the last page ended
    """
    return [
        objects.Instance(uuid=row.uuid, project_id=row.project_id,
                         user_id=row.user_id)
        for row in connection.execute(_WITH_NETWORKS, {
            'most': limit, 'after': after})]


def forget_networks(
    connection: sa.Connection, uuid: str, now: datetime.datetime
) -> None:
    """Record that the networks of an ended server are deallocated."""
    connection.execute(_FORGET_NETWORKS, {'of': uuid, 'now': now})


def _from_row(row: sa.Row[Any]) -> objects.Instance:
    return objects.Instance(
        created_at=row.created_at,
        **{name: getattr(row, name) for name in _FIELDS})
