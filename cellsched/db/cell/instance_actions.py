# SPDX-License-Identifier: Apache-2.0
"""Queries for what was done with servers, and in which request."""

from collections.abc import Iterable
from collections.abc import Mapping
import datetime
import traceback
from typing import Any

import sqlalchemy as sa

from cellsched.db.cell import instance_faults
from cellsched.db.cell import models
from cellsched.db import statements
from cellsched import exception

_TABLE = models.instance_actions
_EVENTS = models.instance_actions_events

#: How an action and an event of it are marked that failed.
_FAILED = 'Error'

#: Characters of a traceback that are kept: its end, which says most.
_TRACEBACK_MAX = 10000

_ADD = sa.insert(_TABLE)

_LATEST = (
    sa.select(sa.func.max(_TABLE.c.id))
    .where(statements.in_list(_TABLE.c.instance_uuid),
           _TABLE.c.action == sa.bindparam('name'))
    .group_by(_TABLE.c.instance_uuid))


def create_all(
    connection: sa.Connection, contexts: Mapping[str, Any], action: str,
    now: datetime.datetime, message: str | None = None,
) -> None:
    """Record an action for several servers.

    :param contexts: of the requests, by server
    :param message: ``Error`` where it failed, which also ends it
    """
    rows = [
        {'created_at': now, 'action': action, 'instance_uuid': uuid,
         'request_id': context.request_id, 'user_id': context.user_id,
         'project_id': context.project_id, 'start_time': now,
         'finish_time': now if message else None, 'message': message,
         'deleted': 0}
        for uuid, context in contexts.items()]
    if rows:
        connection.execute(_ADD, rows)


def create_failed(
    connection: sa.Connection, uuids: Iterable[str], action: str, event: str,
    context: Any, now: datetime.datetime, reason: Exception, host: str,
) -> None:
    """Record an action that failed for several servers, and where it did.

    :param event: what was being done for it
    :param host: who says so
    """
    uuids = list(uuids)
    create_all(connection, dict.fromkeys(uuids, context), action, now,
               message=_FAILED)
    _add_failure(connection, uuids, action, event, now, reason, host,
                 instance_faults.message_of(reason))


def finish(
    connection: sa.Connection, uuid: str, action: str,
    now: datetime.datetime,
) -> None:
    """End what was begun of an action; nothing happens if it has ended."""
    _finish(connection, uuid, action, now, None)


def fail(
    connection: sa.Connection, uuid: str, action: str, event: str,
    now: datetime.datetime, reason: Exception, host: str,
) -> None:
    """End an action that failed, and record why, unless it has ended.

    :param event: what was being done for it, in one word
    :param host: who says so
    """
    if _finish(connection, uuid, action, now, _FAILED):
        _add_failure(connection, [uuid], action, event, now, reason, host,
                     instance_faults.message_of(reason, event))


def _finish(
    connection: sa.Connection, uuid: str, action: str,
    now: datetime.datetime, message: str | None,
) -> bool:
    return bool(connection.execute(
        sa.update(_TABLE)
        .where(_TABLE.c.instance_uuid == uuid, _TABLE.c.action == action,
               _TABLE.c.finish_time.is_(None))
        .values(finish_time=now, updated_at=now, message=message)).rowcount)


def _add_failure(
    connection: sa.Connection, uuids: list[str], action: str, event: str,
    now: datetime.datetime, reason: Exception, host: str, details: str,
) -> None:
    """Record an event of the servers' latest action of a name."""
    told = {'created_at': now, 'event': event, 'start_time': now,
            'finish_time': now, 'result': _FAILED, 'host': host,
            'details': details, 'traceback': _traceback(reason), 'deleted': 0}
    for chunk in statements.chunks(uuids):
        connection.execute(sa.insert(_EVENTS), [
            {**told, 'action_id': each} for each in connection.execute(
                _LATEST, {'these': chunk, 'name': action}).scalars()])


def delete_events(connection: sa.Connection, uuids: list[str]) -> None:
    """Remove what was recorded of the servers' actions."""
    connection.execute(sa.delete(_EVENTS).where(_EVENTS.c.action_id.in_(
        sa.select(_TABLE.c.id).where(_TABLE.c.instance_uuid.in_(uuids)))))


def _traceback(reason: Exception) -> str | None:
    """Return where an error came from that nobody had expected."""
    if isinstance(reason, exception.CellschedException):
        return None
    return instance_faults.printable(
        ''.join(traceback.format_exception(reason)))[-_TRACEBACK_MAX:]
