# SPDX-License-Identifier: Apache-2.0
"""Queries for what was done with servers, and in which request."""

from collections.abc import Iterable
import datetime
from typing import Any

import sqlalchemy as sa

from cellsched.db.cell import models

_TABLE = models.instance_actions


def create_all(
    connection: sa.Connection, uuids: Iterable[str], action: str,
    context: Any, now: datetime.datetime, message: str | None = None,
) -> None:
    """Record an action for several servers.

    :param message: ``Error`` where it failed, which also ends it
    """
    rows = [
        {'created_at': now, 'action': action, 'instance_uuid': uuid,
         'request_id': context.request_id, 'user_id': context.user_id,
         'project_id': context.project_id, 'start_time': now,
         'finish_time': now if message else None, 'message': message,
         'deleted': 0}
        for uuid in uuids]
    if rows:
        connection.execute(sa.insert(_TABLE), rows)
