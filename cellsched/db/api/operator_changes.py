# SPDX-License-Identifier: Apache-2.0
"""Changes of operators, which hold for each request after the call.

A call of an operator commits its change, advances the feed of the API
database, and ends :data:`KNOWN_S` later. A scheduler that has not looked at
the feed for that time looks again before it decides. So a request that begins
after the call is decided with the change, and most requests read nothing. No
process needs to know which schedulers there are, and their clocks need not
agree.
"""

from collections.abc import Iterator
import contextlib

import sqlalchemy as sa

from cellsched.clock import Clock
from cellsched.db.api import models
from cellsched.db import feed
from cellsched.db import session

#: Seconds for which a scheduler decides without looking at the feed.
KNOWN_S = 0.05

#: Attempts to advance the feed while other calls do.
_ATTEMPTS_MAX = 10


@contextlib.contextmanager
def known(
    database: session.Database, clock: Clock
) -> Iterator[sa.Connection]:
    """Yield a transaction whose changes every scheduler knows after the block.

    Commit a change of a cell's database before the transaction ends: a
    scheduler that sees the feed advance reads the cells once. If the
    transaction fails, schedulers read such a change with their next refresh.

    :param database: the API database
    :raises cellsched.exception.DatabaseUnreachable: it does not answer
    """
    with database.writer() as connection:
        yield connection
        # Last, as the lane stays locked until the commit.
        models.FEED.move(connection, 'operators')
    clock.sleep(KNOWN_S)


def announce(database: session.Database, clock: Clock) -> None:
    """Make every scheduler know a change that a cell's database has.

    :raises cellsched.exception.DatabaseUnreachable: see :func:`known`
    """
    # Nodes of a cluster can advance the lane at the same time.
    database.write(models.FEED.move, 'operators', attempts_max=_ATTEMPTS_MAX)
    clock.sleep(KNOWN_S)


def token(database: session.Database) -> feed.Token:
    """Return the current token of the feed, by a cheap read."""
    return models.FEED.glance(database)
