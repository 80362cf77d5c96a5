# SPDX-License-Identifier: Apache-2.0
"""Queries for the limits of projects and of their users."""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
import datetime
from typing import Any

import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db import statements

_PROJECTS = models.quotas
_USERS = models.project_user_quotas
_CLASSES = models.quota_classes
_LOCKS = models.quota_locks

#: A project, and a user in it or None.
Owner = tuple[str, str | None]

#: The quota class whose limits override the options.
_DEFAULT = 'default'


def _limits(several: bool) -> tuple[sa.Select[Any], ...]:
    """Return the statements that read limits with their project and user.

    User limits come first in the union, so that NULL gets the right type.

    :param several: whether the statements take lists
    """
    return (
        sa.select(_USERS.c.project_id, _USERS.c.user_id, _USERS.c.resource,
                  _USERS.c.hard_limit)
        .where(statements.among(_USERS.c.project_id, 'projects', several),
               statements.among(_USERS.c.user_id, 'users', several)),
        sa.select(_PROJECTS.c.project_id, sa.null(), _PROJECTS.c.resource,
                  _PROJECTS.c.hard_limit)
        .where(statements.among(_PROJECTS.c.project_id, 'projects', several)),
        sa.select(sa.null(), sa.null(), _CLASSES.c.resource,
                  _CLASSES.c.hard_limit)
        .where(_CLASSES.c.class_name == _DEFAULT))


_ALL_LIMITS = {several: sa.union_all(*_limits(several))
               for several in (False, True)}

_LOCK = (
    sa.update(_LOCKS).where(_LOCKS.c.project_id == sa.bindparam('project'))
    .values(updated_at=sa.bindparam('now')))


def limits(
    connection: sa.Connection, owners: Iterable[Owner]
) -> dict[Owner, dict[str, int]]:
    """Return limits by resource, for each project and each user in it.

    The limits of a project have the user None. The default quota class fills
    in missing limits.
    """
    found: dict[Any, dict[str, int]] = collections.defaultdict(dict)
    requested = {each: None for project, user in owners
                 for each in ((project, None), (project, user))}
    for chunk in statements.chunks(requested):
        projects, users = (
            [each for each in dict.fromkeys(names) if each is not None]
            for names in zip(*chunk))
        these = {'projects': projects, 'users': users}
        several = len(projects) > 1 or len(users) > 1
        for project, user, resource, limit in connection.execute(
                _ALL_LIMITS[several], these if several else {
                    name: next(iter(each), None)
                    for name, each in these.items()}):
            if limit is not None:
                found[project, user][resource] = limit
    default = found[None, None]
    return {(project, user): {
        **({} if user is not None else default), **found[project, user]}
        for project, user in requested}


def lock(
    connection: sa.Connection, project_id: str, now: datetime.datetime
) -> None:
    """Lock a project until the transaction ends.

    The row is updated, not only locked: a transaction that waited for it and
    has an older snapshot then fails instead of reading stale usage.

    :raises cellsched.exception.TransactionLost: the snapshot is outdated
    """
    this = {'project': project_id, 'now': now}
    if connection.execute(_LOCK, this).rowcount:
        return
    statements.insert_missing(connection, _LOCKS.c.project_id, [
        {'created_at': now, 'project_id': project_id}])
    connection.execute(_LOCK, this)


def set_limits(
    connection: sa.Connection, project_id: str, user_id: str | None,
    requested: Mapping[str, int], now: datetime.datetime,
) -> None:
    """Set limits by resource, of a project or of a user in it."""
    table, owner = _owner(project_id, user_id)
    for resource, limit in sorted(requested.items()):
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
        # Another transaction may have inserted it at the same time.
        connection.execute(change)


def delete_limits(
    connection: sa.Connection, project_id: str, user_id: str | None = None
) -> None:
    """Delete the limits of a user, or of a project and all its users."""
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
