# SPDX-License-Identifier: Apache-2.0
"""Queries for what was done with servers: their moves and their actions."""

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from cellsched.db.cell import models

_MOVES = models.migrations
_FAULTS = models.instance_faults
_ACTIONS = models.instance_actions
_EVENTS = models.instance_actions_events

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
