# SPDX-License-Identifier: Apache-2.0
"""Queries for leases of what one of several services does for all."""

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
    """Return whether a candidate leads now; lease it the task if it does.

    Who leads goes on to lead as long as it asks before its lease ends. Of
    several that ask when there is no leader exactly one is told so. While
    another one leads, nothing is written.

    :param task: what is led
    :param now: seconds since the epoch, by the database's clock
    :param expires_at: when the lease ends, likewise
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
