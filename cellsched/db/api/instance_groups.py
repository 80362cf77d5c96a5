# SPDX-License-Identifier: Apache-2.0
"""Queries for server groups, which Nova calls instance groups."""

from collections.abc import Iterable
import datetime
from typing import Any

from oslo_log import log
from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db import statements
from cellsched import exception
from cellsched import objects
from cellsched.objects import requests
from cellsched.observability.conditions import Conditions

LOG = log.getLogger(__name__)

_TABLE = models.instance_groups
_MEMBERS = models.instance_group_member
_POLICIES = models.instance_group_policy

_ALL = (
    sa.select(_TABLE, _POLICIES.c.policy, _POLICIES.c.rules)
    .outerjoin(_POLICIES, _POLICIES.c.group_id == _TABLE.c.id)
    .order_by(_TABLE.c.id.desc(), _POLICIES.c.id))

_ONE = _ALL.where(_TABLE.c.uuid == sa.bindparam('uuid'))

_THESE = _ALL.where(statements.in_list(_TABLE.c.uuid))

_MEMBERS_OF = (
    sa.select(_MEMBERS.c.instance_uuid)
    .where(_MEMBERS.c.group_id == sa.bindparam('group'))
    .order_by(_MEMBERS.c.id))


def create(
    connection: sa.Connection, group: objects.InstanceGroup,
    now: datetime.datetime,
) -> None:
    """Add a group without members."""
    result = connection.execute(sa.insert(_TABLE).values(
        created_at=now, uuid=group.uuid, name=group.name,
        project_id=group.project_id, user_id=group.user_id))
    key = result.inserted_primary_key
    assert key is not None
    connection.execute(sa.insert(_POLICIES).values(
        created_at=now, group_id=key[0], policy=group.get('policy'),
        rules=jsonutils.dumps(group.get('_rules') or {})))


def find(
    connection: sa.Connection, uuid: str, project_id: str | None = None,
    conditions: Conditions | None = None,
) -> objects.InstanceGroup | None:
    """Return a group with its members in order of joining, or None.

    :param project_id: the project that must own it; None for any project
    :param conditions: logs unreadable rules once; None to log them each time
    """
    row = connection.execute(_ONE, {'uuid': uuid}).first()
    if row is None or project_id not in (None, row.project_id):
        return None
    group = _from_row(row, conditions)
    group.members = list(connection.execute(
        _MEMBERS_OF, {'group': group.id}).scalars())
    return group


def find_many(
    connection: sa.Connection, uuids: Iterable[str]
) -> dict[str, objects.InstanceGroup]:
    """Return groups by uuid, without their members."""
    return {row.uuid: _from_row(row)
            for row in statements.read(connection, _THESE, uuids)}


def find_of(
    connection: sa.Connection, instance_uuid: str
) -> objects.InstanceGroup | None:
    """Return the group of a server, without the group's members."""
    row = connection.execute(_ALL.where(_TABLE.c.id.in_(
        sa.select(_MEMBERS.c.group_id)
        .where(_MEMBERS.c.instance_uuid == instance_uuid)))).first()
    return None if row is None else _from_row(row)


def get(
    connection: sa.Connection, uuid: str, project_id: str | None = None,
    lock: bool = False,
) -> objects.InstanceGroup:
    """Return a group with its members in order of joining.

    :param project_id: the project that must own it; None for any project
    :param lock: whether to lock the group until the transaction ends, as
        changes of members and deletions do; the lock must be the first
        statement of the transaction, since REPEATABLE READ shows the members
        of the first read
    :raises cellsched.exception.InstanceGroupNotFound: the group is unknown, or
        belongs to another project
    """
    group = None
    if not lock or statements.lock(connection, _TABLE.c.uuid, [uuid]):
        group = find(connection, uuid, project_id)
    if group is None:
        raise exception.InstanceGroupNotFound(uuid=uuid)
    return group


def list_all(
    connection: sa.Connection, project_id: str | None = None,
    limit: int | None = None,
) -> list[objects.InstanceGroup]:
    """Return groups without their members, the newest first."""
    query = _ALL.limit(limit)
    if project_id is not None:
        query = query.where(_TABLE.c.project_id == project_id)
    return [_from_row(row) for row in connection.execute(query)]


def wrong_policies(connection: sa.Connection) -> list[tuple[str, str]]:
    """Return groups with an unknown policy or unreadable rules.

    :returns: uuids, and the problems in words
    """
    found = []
    for row in connection.execute(_ALL.where(sa.or_(
            _POLICIES.c.policy.not_in(requests.POLICIES),
            _POLICIES.c.rules.not_in(('', '{}'))))):
        if row.policy and row.policy not in requests.POLICIES:
            found.append((row.uuid, f'has the policy {row.policy!r:.80}, '
                                    'which no filter knows'))
        try:
            _ = _group(row, row.rules).rules
        except objects.READ_ERRORS:
            found.append((row.uuid, 'has rules that cannot be read, so that '
                                    'its policy is applied at its strictest'))
    return found


def delete(
    connection: sa.Connection, uuid: str, project_id: str | None = None
) -> None:
    """Delete a group; its members keep running.

    :raises cellsched.exception.InstanceGroupNotFound: the group is unknown, or
        belongs to another project
    """
    group = get(connection, uuid, project_id, lock=True)
    for column in _MEMBERS.c.group_id, _POLICIES.c.group_id, _TABLE.c.id:
        connection.execute(sa.delete(column.table).where(column == group.id))


def add_members(
    connection: sa.Connection, group_id: int, uuids: Iterable[str],
    now: datetime.datetime,
) -> set[str]:
    """Add members to a group; return the ones that were not in it."""
    return statements.insert_missing(connection, _MEMBERS.c.instance_uuid, [
        {'created_at': now, 'group_id': group_id, 'instance_uuid': uuid}
        for uuid in uuids])


def remove_members(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Remove servers from all groups."""
    column = _MEMBERS.c.instance_uuid
    statements.write(
        connection, statements.deletion(column, statements.in_list(column)),
        uuids, column)


def _from_row(
    row: sa.Row[Any], conditions: Conditions | None = None
) -> objects.InstanceGroup:
    unreadable = (f'The rules of server group {row.uuid} cannot be read and '
                  f'are ignored')
    try:
        group = _group(row, row.rules)
        # Parse the rules here, so that an invalid one fails no decision.
        _ = group.rules
        if conditions is not None:
            conditions.end(unreadable)
        return group
    except objects.READ_ERRORS:
        # A policy without readable rules is applied at its strictest.
        if conditions is None:
            LOG.warning('%s', unreadable)
        else:
            conditions.occur(unreadable)
        return _group(row, None)


def _group(row: sa.Row[Any], rules: str | None) -> objects.InstanceGroup:
    return objects.InstanceGroup(
        id=row.id, uuid=row.uuid, name=row.name, project_id=row.project_id,
        user_id=row.user_id, policy=row.policy,
        policies=[row.policy] if row.policy else [], hosts=[],
        rules=jsonutils.loads(rules or '{}'))
