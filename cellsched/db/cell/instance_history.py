# SPDX-License-Identifier: Apache-2.0
"""Queries for the history of instances: actions, faults, migrations."""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
import traceback
from typing import Any

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db import statements
from cellsched import exception

_ACTIONS = models.instance_actions
_FAULTS = models.instance_faults
_EVENTS = models.instance_actions_events

#: How an action and an event of it are marked that failed.
_FAILED = 'Error'

#: Characters of a traceback that are kept: its end, which says most.
_TRACEBACK_MAX = 10000

_ADD = sa.insert(_ACTIONS)

_LATEST = (
    sa.select(sa.func.max(_ACTIONS.c.id))
    .where(statements.in_list(_ACTIONS.c.instance_uuid),
           _ACTIONS.c.action == sa.bindparam('name'))
    .group_by(_ACTIONS.c.instance_uuid))


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
                 message_of(reason))


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
                     message_of(reason, event))


def _finish(
    connection: sa.Connection, uuid: str, action: str,
    now: datetime.datetime, message: str | None,
) -> bool:
    return bool(connection.execute(
        sa.update(_ACTIONS)
        .where(_ACTIONS.c.instance_uuid == uuid, _ACTIONS.c.action == action,
               _ACTIONS.c.finish_time.is_(None))
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
        sa.select(_ACTIONS.c.id).where(_ACTIONS.c.instance_uuid.in_(uuids)))))


def _traceback(reason: Exception) -> str | None:
    """Return where an error came from that nobody had expected."""
    if isinstance(reason, exception.CellschedException):
        return None
    return printable(
        ''.join(traceback.format_exception(reason)))[-_TRACEBACK_MAX:]


_MOVES = models.migrations

#: Why a move was given up: the fault that was recorded with its end.
_REASON = (
    sa.select(sa.func.max(_FAULTS.c.message))
    .where(_FAULTS.c.instance_uuid == _MOVES.c.instance_uuid,
           _FAULTS.c.created_at == _MOVES.c.updated_at,
           _MOVES.c.status == 'error')
    .scalar_subquery().label('reason'))

#: Columns of moves by which they are looked for.
MATCHED = frozenset({'instance_uuid', 'status', 'migration_type'})


def migrations(
    connection: sa.Connection, matches: Mapping[str, Collection[str]],
    host: str | None = None, limit: int | None = None,
) -> Sequence[sa.Row[Any]]:
    """Return moves with the reasons of their ends, the newest first.

    :param matches: some of :data:`MATCHED`, each with the values of which a
        move has one
    :param host: those that lead there or away
    """
    query = (
        sa.select(_MOVES, _REASON)
        .where(*(_MOVES.c[name].in_(values)
                 for name, values in sorted(matches.items())))
        .order_by(_MOVES.c.created_at.desc(), _MOVES.c.id.desc())
        .limit(limit))
    if host is not None:
        query = query.where(sa.or_(_MOVES.c.source_compute == host,
                                   _MOVES.c.dest_compute == host))
    return connection.execute(query).all()


def faults(connection: sa.Connection, uuid: str) -> Sequence[Any]:
    """Return what went wrong with a server, the newest first."""
    return connection.execute(
        sa.select(_FAULTS.c.code, _FAULTS.c.message, _FAULTS.c.details,
                  _FAULTS.c.host, _FAULTS.c.created_at)
        .where(_FAULTS.c.instance_uuid == uuid, _FAULTS.c.deleted == 0)
        .order_by(_FAULTS.c.id.desc())).all()


def actions(connection: sa.Connection, uuid: str) -> Sequence[Any]:
    """Return the actions of a server, the newest first, each with its events.

    A row is an event, or an action without any.
    """
    return connection.execute(
        sa.select(
            _ACTIONS.c.id, _ACTIONS.c.action, _ACTIONS.c.request_id,
            _ACTIONS.c.user_id, _ACTIONS.c.project_id, _ACTIONS.c.start_time,
            _ACTIONS.c.finish_time, _ACTIONS.c.message, _EVENTS.c.event,
            _EVENTS.c.result, _EVENTS.c.host, _EVENTS.c.details)
        .select_from(_ACTIONS.outerjoin(
            _EVENTS, _EVENTS.c.action_id == _ACTIONS.c.id))
        .where(_ACTIONS.c.instance_uuid == uuid)
        .order_by(_ACTIONS.c.id.desc(), _EVENTS.c.id)).all()


#: Errors whose texts say that a build failed.
_OF_BUILDS = (exception.BuildFailed, exception.BuildAborted)

#: Characters of a message that its column takes.
MESSAGE_MAX = 255


def record(
    connection: sa.Connection, uuid: str, reason: Exception,
    host: str | None, now: datetime.datetime, task: str = 'build',
) -> None:
    """Record why something failed.

    The message is for the server's user. Errors that are meant for users are
    quoted in it; of others it tells only the kind, in words, since their text
    may name what users are not to see. The details, for operators, have it
    all.

    :param task: what failed, as users call it
    """
    connection.execute(sa.insert(_FAULTS).values(
        created_at=now, instance_uuid=uuid, deleted=0, host=host,
        code=_code(reason),
        message=message_of(reason, task),
        details=printable(f'{exception.kind_of(reason)}: {reason}')))


def latest(
    connection: sa.Connection, uuids: Iterable[str]
) -> dict[str, str]:
    """Return each server's last message; those without are left out."""
    messages = {}
    for chunk in statements.chunks(uuids):
        for uuid, message in connection.execute(
                sa.select(_FAULTS.c.instance_uuid, _FAULTS.c.message)
                .where(_FAULTS.c.instance_uuid.in_(chunk),
                       _FAULTS.c.deleted == 0)
                .order_by(_FAULTS.c.id)):
            messages[uuid] = message
    return messages


def _code(reason: Exception) -> int:
    # Others have a code too, but not of this kind, and not always a number.
    if isinstance(reason, exception.CellschedException):
        return reason.code
    return exception.CellschedException.code


def message_of(reason: Exception, task: str = 'build') -> str:
    """Return what users are told of why something failed.

    :param task: what failed, as users call it: a move is no build
    """
    return printable(_message(reason, task))[:MESSAGE_MAX]


def _message(reason: Exception, task: str) -> str:
    if task != 'build' and isinstance(reason, _OF_BUILDS):
        # Drivers raise these whatever they build something for.
        return f'The {task} of {reason.uuid} failed: {reason.reason}'
    if isinstance(reason, exception.CellschedException) and reason.safe:
        return exception.user_text(reason)
    return (f'{task.capitalize()} of instance failed: '
            f'{exception.user_text(reason)}.')


def printable(text: str) -> str:
    """Return the text without what a database refuses to keep."""
    return text.replace('\0', '').encode('utf-8', 'replace').decode()
