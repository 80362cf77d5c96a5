# SPDX-License-Identifier: Apache-2.0
"""Queries for leader leases: tasks that one of several services performs."""

import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db import statements

_TABLE = models.leaders

_OF = sa.select(_TABLE.c.owner, _TABLE.c.expires_at).where(
    _TABLE.c.name == sa.bindparam('task'))

_TAKE = sa.update(_TABLE).where(
    _TABLE.c.name == sa.bindparam('task'),
    sa.or_(_TABLE.c.owner == sa.bindparam('candidate'),
           _TABLE.c.expires_at <= sa.bindparam('now')),
).values(owner=sa.bindparam('candidate'), expires_at=sa.bindparam('until'))


def elect(
    connection: sa.Connection, task: str, candidate: str, now: float,
    expires_at: float,
) -> bool:
    """Lease a task to a candidate; return whether it is the leader now.

    The leader stays leader if it calls before its lease ends. If several
    candidates call while there is no leader, exactly one becomes leader. While
    another candidate leads, nothing is written.

    :param task: name of the task
    :param now: seconds since the epoch, by the database's clock
    :param expires_at: end of the new lease, likewise
    """
    known = connection.execute(_OF, {'task': task}).first()
    if known is None:
        return bool(statements.insert_missing(connection, _TABLE.c.name, [
            {'name': task, 'owner': candidate, 'expires_at': expires_at}]))
    if known.owner != candidate and known.expires_at > now:
        return False
    return connection.execute(_TAKE, {
        'task': task, 'candidate': candidate, 'now': now,
        'until': expires_at}).rowcount == 1
