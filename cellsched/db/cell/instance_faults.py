# SPDX-License-Identifier: Apache-2.0
"""Queries for what went wrong with servers."""

from collections.abc import Iterable
import datetime

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db import statements
from cellsched import exception

_TABLE = models.instance_faults

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
    connection.execute(sa.insert(_TABLE).values(
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
                sa.select(_TABLE.c.instance_uuid, _TABLE.c.message)
                .where(_TABLE.c.instance_uuid.in_(chunk),
                       _TABLE.c.deleted == 0)
                .order_by(_TABLE.c.id)):
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
        return exception.told(reason)
    return (f'{task.capitalize()} of instance failed: '
            f'{exception.told(reason)}.')


def printable(text: str) -> str:
    """Return the text without what a database refuses to keep."""
    return text.replace('\0', '').encode('utf-8', 'replace').decode()
