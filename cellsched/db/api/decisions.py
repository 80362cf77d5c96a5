# SPDX-License-Identifier: Apache-2.0
"""Queries for the recorded decisions of schedulers."""

from collections.abc import Iterable
from collections.abc import Sequence
import datetime
from typing import Any
from typing import NamedTuple

from oslo_serialization import jsonutils
from oslo_utils import uuidutils
import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db import mysql
from cellsched.db import statements
from cellsched import exception

_TABLE = models.scheduler_decisions
_INSTANCES = models.decision_instances

_NEWEST_FIRST = (_TABLE.c.decided_at.desc(), _TABLE.c.id.desc())

_INSTANCES_OF = sa.select(
    _INSTANCES.c.decision_uuid, _INSTANCES.c.instance_uuid,
).where(
    statements.in_list(_INSTANCES.c.decision_uuid),
).order_by(_INSTANCES.c.id)


class DecisionRow(NamedTuple):
    """A recorded decision.

    :param request_id: id of the API request, or None
    :param decided_at: seconds since the epoch
    :param instances: uuids of the instances
    :param text: the decision record in JSON
    """

    request_id: str | None
    decided_at: float
    instances: Sequence[str]
    text: str

    @property
    def document(self) -> dict[str, Any]:
        """Return the decision record as plain data.

        :raises cellsched.exception.InvalidField: it cannot be read
        """
        try:
            found = jsonutils.loads(self.text)
        except (RecursionError, ValueError):
            found = None
        if not isinstance(found, dict):
            raise exception.InvalidField(
                where='decision', field='document',
                problem=f'{self.text!r:.80} cannot be read',
                expected='a JSON object')
        return found


def create_tables(connection: sa.Connection) -> None:
    """Create missing tables of decisions in a database without a history.

    It is for a database that stores only decisions.
    """
    mysql.create_tables(connection, [_TABLE, _INSTANCES], missing=True)


def has_tables(connection: sa.Connection) -> bool:
    """Return whether a database has the tables of decisions."""
    return sa.inspect(connection).has_table(_TABLE.name)


def create(
    connection: sa.Connection, decisions: Iterable[DecisionRow],
    now: datetime.datetime,
) -> None:
    """Add decisions."""
    named = [(uuidutils.generate_uuid(), each) for each in decisions]
    if not named:
        return
    statements.insert_all(connection, _TABLE, [
        {'created_at': now, 'uuid': uuid, 'request_id': each.request_id,
         'decided_at': each.decided_at, 'document': each.text}
        for uuid, each in named])
    about = [{'created_at': now, 'decision_uuid': uuid,
              'instance_uuid': instance}
             for uuid, each in named
             for instance in dict.fromkeys(each.instances)]
    statements.insert_all(connection, _INSTANCES, about)


def find(
    connection: sa.Connection, name: str, limit: int | None = None
) -> list[DecisionRow]:
    """Return the decisions on an instance or a request, the newest first.

    :param name: uuid of an instance, or else id of a request
    """
    of_instance = (
        sa.select(_TABLE)
        .join(_INSTANCES, _INSTANCES.c.decision_uuid == _TABLE.c.uuid)
        .where(_INSTANCES.c.instance_uuid == name))
    of_request = sa.select(_TABLE).where(_TABLE.c.request_id == name)
    for statement in (of_instance, of_request):
        found = _read(connection, statement, limit)
        if found:
            return found
    return []


def latest(connection: sa.Connection, limit: int) -> list[DecisionRow]:
    """Return the newest decisions, the newest first."""
    return _read(connection, sa.select(_TABLE), limit)


def purge(connection: sa.Connection, before: float, most: int) -> int:
    """Remove decisions older than a time; return the number removed.

    :param before: seconds since the epoch
    :param most: the most decisions to remove
    """
    uuids: Sequence[str] = connection.execute(
        sa.select(_TABLE.c.uuid).where(_TABLE.c.decided_at < before)
        .order_by(_TABLE.c.decided_at, _TABLE.c.id).limit(most)
    ).scalars().all()
    gone = 0
    for chunk in statements.chunks(uuids):
        # Several schedulers may purge at the same time.
        locked = statements.lock(connection, _TABLE.c.uuid, chunk)
        for column in (_INSTANCES.c.decision_uuid, _TABLE.c.uuid):
            connection.execute(
                sa.delete(column.table).where(column.in_(locked)))
        gone += len(locked)
    return gone


def _read(
    connection: sa.Connection, statement: sa.Select[Any], limit: int | None
) -> list[DecisionRow]:
    """Return the selected decisions with their instances, newest first."""
    rows = connection.execute(
        statement.order_by(*_NEWEST_FIRST).limit(limit)).all()
    instances = statements.read_groups(
        connection, _INSTANCES_OF, [row.uuid for row in rows])
    return [DecisionRow(row.request_id, row.decided_at,
                        instances.get(row.uuid, []), row.document)
            for row in rows]
