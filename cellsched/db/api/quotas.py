# SPDX-License-Identifier: Apache-2.0
"""Queries for the limits of projects and of their users."""

from collections.abc import Iterable
from collections.abc import Mapping
import datetime
import itertools
from typing import Any

import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db import statements

_PROJECTS = models.quotas
_USERS = models.project_user_quotas
_CLASSES = models.quota_classes
_LOCKS = models.quota_locks

#: The class whose limits stand in for those of the options.
_DEFAULT = 'default'

_USER, _PROJECT, _CLASS = range(3)

_LIMITS = (
    sa.select(sa.literal(_USER).label('of'), _USERS.c.resource,
              _USERS.c.hard_limit)
    .where(_USERS.c.project_id == sa.bindparam('project'),
           _USERS.c.user_id == sa.bindparam('user')),
    sa.select(sa.literal(_PROJECT), _PROJECTS.c.resource,
              _PROJECTS.c.hard_limit)
    .where(_PROJECTS.c.project_id == sa.bindparam('project')),
    sa.select(sa.literal(_CLASS), _CLASSES.c.resource, _CLASSES.c.hard_limit)
    .where(_CLASSES.c.class_name == _DEFAULT),
)

_ALL_LIMITS = sa.union_all(*_LIMITS)

# MySQL shows what there was when a transaction first read, whatever it waits
# for later; to read with a lock is not to read in that sense.
_LOCKED_LIMITS = tuple(
    limits.with_for_update(read=True) for limits in _LIMITS)

_LOCK = (
    sa.update(_LOCKS).where(_LOCKS.c.project_id == sa.bindparam('project'))
    .values(updated_at=sa.bindparam('now')))


def limits(
    connection: sa.Connection, project_id: str, user_id: str | None = None
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the limits of a project and those of a user in it, by resource.

    Those of the default class stand in where the project has none of its own.
    """
    these = {'project': project_id, 'user': user_id}
    if connection.dialect.name in ('mysql', 'mariadb'):
        rows: Iterable[Any] = itertools.chain.from_iterable(
            connection.execute(each, these) for each in _LOCKED_LIMITS)
    else:
        rows = connection.execute(_ALL_LIMITS, these)
    found: tuple[dict[str, int], ...] = ({}, {}, {})
    for of, resource, limit in rows:
        if limit is not None:
            found[of][resource] = limit
    return {**found[_CLASS], **found[_PROJECT]}, found[_USER]


def lock(
    connection: sa.Connection, project_id: str, now: datetime.datetime
) -> None:
    """Let nobody else lock a project until the transaction ends.

    The row is written, and not only locked: so who waited for it with a
    snapshot that is older than what the other one did is told so.

    :raises cellsched.exception.TransactionLost: by the transaction, where
        that is so
    """
    this = {'project': project_id, 'now': now}
    if connection.execute(_LOCK, this).rowcount:
        return
    statements.insert_missing(connection, _LOCKS.c.project_id, [
        {'created_at': now, 'project_id': project_id}])
    connection.execute(_LOCK, this)


def set_limits(
    connection: sa.Connection, project_id: str, user_id: str | None,
    wanted: Mapping[str, int], now: datetime.datetime,
) -> None:
    """Set limits by resource, of a project or of a user in it."""
    table, owner = _owner(project_id, user_id)
    for resource, limit in sorted(wanted.items()):
        change = (
            sa.update(table)
            .where(*(table.c[name] == value for name, value in owner.items()),
                   table.c.resource == resource)
            .values(hard_limit=limit, updated_at=now))
        if connection.execute(change).rowcount:
            continue
        statements.insert_missing(connection, table.c.resource, [
            {**owner, 'resource': resource, 'hard_limit': limit,
             'created_at': now}])
        # Somebody may have set it at the same time.
        connection.execute(change)


def delete_limits(
    connection: sa.Connection, project_id: str, user_id: str | None = None
) -> None:
    """Delete the limits of a project, its users' too, or those of a user."""
    if user_id is None:
        connection.execute(sa.delete(_PROJECTS).where(
            _PROJECTS.c.project_id == project_id))
    theirs = [] if user_id is None else [_USERS.c.user_id == user_id]
    connection.execute(sa.delete(_USERS).where(
        _USERS.c.project_id == project_id, *theirs))


def _owner(
    project_id: str, user_id: str | None
) -> tuple[sa.Table, dict[str, str]]:
    if user_id is None:
        return _PROJECTS, {'project_id': project_id}
    return _USERS, {'project_id': project_id, 'user_id': user_id}
