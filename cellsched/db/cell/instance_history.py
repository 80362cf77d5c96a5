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
from cellsched.db.cell import services
from cellsched.db import statements
from cellsched import exception

_ACTIONS = models.instance_actions
_FAULTS = models.instance_faults
_EVENTS = models.instance_actions_events

#: Message of a failed action, and result of a failed event.
_FAILED = 'Error'

#: Result of an event without a failure.
_SUCCESS = 'Success'

#: The most characters of a stored traceback; its end is kept.
_TRACEBACK_MAX = 10000

_LATEST = (
    sa.select(sa.func.max(_ACTIONS.c.id))
    .where(statements.in_list(_ACTIONS.c.instance_uuid),
           _ACTIONS.c.action == sa.bindparam('name'))
    .group_by(_ACTIONS.c.instance_uuid))

#: Nova's names of the events of a build and of a deletion on a host, and of a
#: retry of a build. An event of the first name is evidence, see
#: :func:`given_up`: only the host, or a service for it, records it.
BUILD_EVENT = 'compute__do_build_and_run_instance'
DELETE_EVENT = 'compute_terminate_instance'
RETRY_EVENT = 'conductor_build_instances'

_OPEN = (_ACTIONS.c.id, _ACTIONS.c.instance_uuid, _ACTIONS.c.start_time)

_OPEN_OF = (statements.in_list(_ACTIONS.c.instance_uuid),
            _ACTIONS.c.action == sa.bindparam('name'),
            _ACTIONS.c.finish_time.is_(None))

_END: dict[str, Any] = {
    'finish_time': sa.bindparam('now'), 'updated_at': sa.bindparam('now'),
    'message': sa.bindparam('text')}

_CLOSE = (sa.update(_ACTIONS).where(*_OPEN_OF).values(_END)
          .returning(*_OPEN))

#: For MySQL, which has no RETURNING.
_FIND_OPEN = sa.select(*_OPEN).where(*_OPEN_OF)
_CLOSE_FOUND = sa.update(_ACTIONS).where(
    statements.in_list(_ACTIONS.c.id)).values(_END)


def create_all(
    connection: sa.Connection, contexts: Mapping[str, Any], action: str,
    now: datetime.datetime, message: str | None = None,
    finished: bool = False,
) -> None:
    """Record an action of several servers.

    :param contexts: the request context by server uuid
    :param message: ``Error`` for a failed action, which finishes it
    :param finished: whether the action has no duration
    """
    statements.insert_all(connection, _ACTIONS, [
        {'created_at': now, 'action': action, 'instance_uuid': uuid,
         'request_id': context.request_id, 'user_id': context.user_id,
         'project_id': context.project_id, 'start_time': now,
         'finish_time': now if message or finished else None,
         'message': message,
         'deleted': 0}
        for uuid, context in contexts.items()])


def create_failed(
    connection: sa.Connection, uuids: Iterable[str], event: str,
    context: Any, now: datetime.datetime, reason: Exception, host: str,
) -> None:
    """Record the failed builds of several servers, with their event.

    :param event: the failed step
    :param host: the host that reports it
    """
    uuids = list(uuids)
    create_all(connection, dict.fromkeys(uuids, context), 'create', now,
               message=_FAILED)
    _add_failure(connection, uuids, 'create', event, now, reason, host,
                 message_of(reason))


def finish(
    connection: sa.Connection,
    started: Mapping[str, datetime.datetime | None], action: str, event: str,
    now: datetime.datetime, host: str | None,
) -> None:
    """Finish an action of several servers, with its last event.

    Finished actions are not changed.

    :param started: by server uuid, when the event began; None if it began with
        the action
    :param event: the last step
    :param host: the host that did it
    """
    for chunk in statements.chunks(started):
        statements.insert_all(connection, _EVENTS, [
            {'created_at': now, 'event': event, 'action_id': row.id,
             'start_time': started[row.instance_uuid] or row.start_time,
             'finish_time': now, 'result': _SUCCESS, 'host': host,
             'deleted': 0}
            for row in _close(connection, now, None, action, chunk)])


def finishing(uuids: sa.Select[Any]) -> sa.Insert:
    """Return the statement that finishes an action of selected servers.

    It does what :func:`finish` does, on PostgreSQL, which can update and
    insert in one statement. :func:`finishing_parameters` returns its
    parameters.
    """
    closed = sa.update(_ACTIONS).where(
        _ACTIONS.c.instance_uuid.in_(uuids), *_OPEN_OF[1:]
    ).values(_END).returning(*_OPEN).cte('closed')
    now = sa.bindparam('now', type_=sa.DateTime())
    return sa.insert(_EVENTS).from_select([
        'created_at', 'event', 'action_id', 'start_time', 'finish_time',
        'result', 'host', 'deleted'], sa.select(
            now, sa.bindparam('last_event', type_=sa.String()), closed.c.id,
            sa.func.coalesce(sa.bindparam(
                'started_at', type_=sa.DateTime()), closed.c.start_time), now,
            sa.literal_column(f"'{_SUCCESS}'"),
            sa.bindparam('done_by', type_=sa.String()),
            sa.literal_column('0')), include_defaults=False)


def finishing_parameters(
    started_at: datetime.datetime | None, now: datetime.datetime, host: str
) -> dict[str, Any]:
    """Return the parameters of :func:`finishing` for one server's build."""
    return {'name': 'create', 'text': None, 'now': now,
            'last_event': BUILD_EVENT, 'started_at': started_at,
            'done_by': host}


def close(
    connection: sa.Connection, uuid: str, now: datetime.datetime
) -> None:
    """Finish all open actions of a server, without an event."""
    connection.execute(
        sa.update(_ACTIONS).where(_ACTIONS.c.instance_uuid == uuid,
                                  _ACTIONS.c.finish_time.is_(None))
        .values(finish_time=now, updated_at=now))


def fail(
    connection: sa.Connection, uuid: str, action: str, event: str,
    now: datetime.datetime, reason: Exception, host: str,
    task: str = 'build',
) -> None:
    """Finish a failed action with its cause, unless it is finished.

    :param event: the failed step
    :param host: the host that reports it
    :param task: the failed task, as users call it
    """
    if _close(connection, now, _FAILED, action, [uuid]):
        _add_failure(
            connection, [uuid], action, event, now, reason, host,
            message_of(reason, task), services.look(connection, host).host_id)


def _close(
    connection: sa.Connection, now: datetime.datetime, message: str | None,
    action: str, uuids: Sequence[str],
) -> Sequence[sa.Row[Any]]:
    """Finish the open actions of servers with a name; return them.

    The transaction holds the locks of their servers.
    """
    these, end = {'these': uuids, 'name': action}, {
        'now': now, 'text': message}
    if connection.dialect.update_returning:
        return connection.execute(_CLOSE, {**these, **end}).all()
    rows = connection.execute(_FIND_OPEN, these).all()
    if rows:
        connection.execute(
            _CLOSE_FOUND, {'these': [row.id for row in rows], **end})
    return rows


def _add_failure(
    connection: sa.Connection, uuids: list[str], action: str, event: str,
    now: datetime.datetime, reason: Exception, host: str, details: str,
    host_id: str | None = None,
) -> None:
    """Record a failed event in the latest action with this name."""
    reported = {'created_at': now, 'event': event, 'start_time': now,
                'finish_time': now, 'result': _FAILED, 'host': host,
                'host_id': host_id, 'details': details,
                'traceback': _traceback(reason), 'deleted': 0}
    statements.insert_all(connection, _EVENTS, [
        {**reported, 'action_id': each} for (each,) in statements.read(
            connection, _LATEST, uuids, name=action)])


_GIVEN_UP = (
    sa.select(_ACTIONS.c.instance_uuid).distinct()
    .join(_EVENTS, _EVENTS.c.action_id == _ACTIONS.c.id)
    .where(statements.in_list(_ACTIONS.c.instance_uuid),
           _EVENTS.c.event == BUILD_EVENT, _EVENTS.c.result == _FAILED))


def give_up(
    connection: sa.Connection, uuid: str, host: str,
    now: datetime.datetime, reason: Exception,
) -> None:
    """Record that the build of a server ends on a host, without success.

    The host can get another name: the record has the uuid that it keeps, too.
    """
    _add_failure(connection, [uuid], 'create', BUILD_EVENT, now, reason, host,
                 message_of(reason), services.look(connection, host).host_id)


def given_up(
    connection: sa.Connection, uuids: Iterable[str], host: str,
    host_id: str | None = None,
) -> set[str]:
    """Return the servers whose build has ended on a host, see :func:`give_up`.

    :param host_id: the uuid that the host keeps; a record without one has
        only the name
    """
    named = _EVENTS.c.host == host
    query = _GIVEN_UP.where(named if host_id is None else sa.or_(
        _EVENTS.c.host_id == host_id,
        sa.and_(_EVENTS.c.host_id.is_(None), named)))
    return {uuid for (uuid,) in statements.read(connection, query, uuids)}


def delete_events(connection: sa.Connection, uuids: list[str]) -> None:
    """Delete the events of the servers' actions."""
    statements.write(connection, sa.delete(_EVENTS).where(
        _EVENTS.c.action_id.in_(sa.select(_ACTIONS.c.id).where(
            statements.in_list(_ACTIONS.c.instance_uuid)))), uuids)


def _traceback(reason: Exception) -> str | None:
    """Return a text for administrators, beside that for users.

    It is the full text of an error with internals, or the traceback of an
    unexpected error.
    """
    if isinstance(reason, exception.CellschedException):
        return _details(reason) if reason.kwargs.get('for_users') else None
    return printable(
        ''.join(traceback.format_exception(reason)))[-_TRACEBACK_MAX:]


_MOVES = models.migrations


def _reason(column: sa.Column[Any], name: str) -> sa.Label[Any]:
    """Return the reason of an aborted move: the fault at its end."""
    return (
        sa.select(sa.func.max(column))
        .where(_FAULTS.c.instance_uuid == _MOVES.c.instance_uuid,
               _FAULTS.c.created_at == _MOVES.c.updated_at,
               _MOVES.c.status == 'error')
        .scalar_subquery().label(name))


#: The reason for users, and the details for administrators.
_REASONS = (_reason(_FAULTS.c.message, 'reason'),
            _reason(_FAULTS.c.details, 'details'))

#: Columns of moves that a query can match.
MATCHED = frozenset({'instance_uuid', 'status', 'migration_type'})


def migrations(
    connection: sa.Connection, matches: Mapping[str, Collection[str]],
    host: str | None = None, limit: int | None = None,
) -> Sequence[sa.Row[Any]]:
    """Return moves with the reason of their failure, the newest first.

    :param matches: allowed values by column, of :data:`MATCHED`
    :param host: source or destination of the moves
    """
    query = (
        sa.select(_MOVES, *_REASONS)
        .where(*(_MOVES.c[name].in_(values)
                 for name, values in sorted(matches.items())))
        .order_by(_MOVES.c.created_at.desc(), _MOVES.c.id.desc())
        .limit(limit))
    if host is not None:
        query = query.where(sa.or_(_MOVES.c.source_compute == host,
                                   _MOVES.c.dest_compute == host))
    return connection.execute(query).all()


def faults(connection: sa.Connection, uuid: str) -> Sequence[Any]:
    """Return the faults of a server, the newest first."""
    return connection.execute(
        sa.select(_FAULTS.c.code, _FAULTS.c.message, _FAULTS.c.details,
                  _FAULTS.c.host, _FAULTS.c.created_at)
        .where(_FAULTS.c.instance_uuid == uuid, _FAULTS.c.deleted == 0)
        .order_by(_FAULTS.c.id.desc())).all()


def actions(connection: sa.Connection, uuid: str) -> Sequence[Any]:
    """Return the actions of a server with their events, the newest first.

    A row is an event, or an action without events.
    """
    return connection.execute(
        sa.select(
            _ACTIONS.c.id, _ACTIONS.c.action, _ACTIONS.c.request_id,
            _ACTIONS.c.user_id, _ACTIONS.c.project_id, _ACTIONS.c.start_time,
            _ACTIONS.c.finish_time, _ACTIONS.c.message, _EVENTS.c.event,
            _EVENTS.c.result, _EVENTS.c.host, _EVENTS.c.details,
            _EVENTS.c.traceback)
        .select_from(_ACTIONS.outerjoin(
            _EVENTS, _EVENTS.c.action_id == _ACTIONS.c.id))
        .where(_ACTIONS.c.instance_uuid == uuid)
        .order_by(_ACTIONS.c.id.desc(), _EVENTS.c.id)).all()


#: Errors whose texts say that a build failed.
_OF_BUILDS = (exception.BuildFailed, exception.BuildAborted)

#: The length of the message column.
MESSAGE_MAX = 255


def record(
    connection: sa.Connection, uuid: str, reason: Exception,
    host: str | None, now: datetime.datetime, task: str = 'build',
) -> None:
    """Record a fault of a server.

    The message is for the server's user. It contains the text of an error that
    is safe for users. For any other error it names only the kind, since its
    text may contain data of other tenants or of the deployment. The details,
    for operators, have the full text.

    :param task: the failed task, as users call it
    """
    record_all(connection, [uuid], reason, host, now, task)


def record_all(
    connection: sa.Connection, uuids: Iterable[str], reason: Exception,
    host: str | None, now: datetime.datetime, task: str = 'build',
) -> None:
    """Record a fault of several servers, as :func:`record` does."""
    fault = {
        'created_at': now, 'deleted': 0, 'host': host, 'code': _code(reason),
        'message': message_of(reason, task),
        'details': _details(reason)}
    statements.insert_all(connection, _FAULTS, [
        {**fault, 'instance_uuid': uuid} for uuid in uuids])


def newest_faults(connection: sa.Connection, limit: int) -> Sequence[Any]:
    """Return the newest faults of all servers, also of deleted ones."""
    return connection.execute(
        sa.select(_FAULTS.c.created_at, _FAULTS.c.message, _FAULTS.c.details)
        .order_by(_FAULTS.c.id.desc()).limit(limit)).all()


def latest(
    connection: sa.Connection, uuids: Iterable[str], internals: bool = False
) -> dict[str, str]:
    """Return the last fault message by server, where there is one.

    :param internals: whether the messages are for administrators
    """
    query = sa.select(
        _FAULTS.c.instance_uuid, _FAULTS.c.message, _FAULTS.c.details,
    ).where(
        statements.in_list(_FAULTS.c.instance_uuid), _FAULTS.c.deleted == 0,
    ).order_by(_FAULTS.c.id)
    return {
        uuid: full_message(message, details) if internals else message
        for uuid, message, details in statements.read(
            connection, query, uuids)}


def full_message(message: str | None, details: str | None) -> str:
    """Return a message with the internals that its details have.

    :param message: the text for users
    :param details: the class and the full text of the error
    """
    name, _, text = (details or '').partition(': ')
    kind = getattr(exception, name, None)
    # Only such a class has the same text for users and for administrators.
    is_same = isinstance(kind, type) and issubclass(
        kind, exception.CellschedException) and kind.safe and not issubclass(
            kind, _OF_BUILDS)
    # The text of an error of another service ends with its traceback.
    return text.partition('\nTraceback ')[0] if is_same else message or ''


def _details(reason: Exception) -> str:
    return printable(f'{exception.kind_of(reason)}: {reason}')


def _code(reason: Exception) -> int:
    # Errors of libraries may have a code of another kind.
    if isinstance(reason, exception.CellschedException):
        return reason.code
    return exception.CellschedException.code


def message_of(reason: Exception, task: str = 'build') -> str:
    """Return the fault message for users.

    :param task: the failed task, as users call it
    """
    return printable(_message(reason, task))[:MESSAGE_MAX]


def _message(reason: Exception, task: str) -> str:
    if task != 'build' and isinstance(reason, _OF_BUILDS):
        # Drivers raise these errors for moves, too.
        return f'The {task} of {reason.uuid} failed: {reason.reason}'
    if isinstance(reason, exception.CellschedException) and reason.safe:
        return exception.user_text(reason)
    return (f'{task.capitalize()} of instance failed: '
            f'{exception.user_text(reason)}.')


def printable(text: str) -> str:
    """Return the text without characters that databases refuse."""
    return text.replace('\0', '').encode('utf-8', 'replace').decode()
