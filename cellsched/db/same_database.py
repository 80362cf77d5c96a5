# SPDX-License-Identifier: Apache-2.0
"""Telling whether two URLs, however written, lead to one database."""

import pathlib

import sqlalchemy as sa

from cellsched.db import session

#: Kind of the advisory locks that this takes; the rest of their name is the
#: number of the connection, so that nobody else takes them.
_LOCK = 2_017_030_817


def is_same(first: session.Database, second: session.Database) -> bool:
    """Return whether two databases are one; both are connected to.

    Of servers a lock tells, which one connection takes and the other one
    finds taken. Nothing is written.

    :raises cellsched.exception.DatabaseUnreachable: one does not answer
    """
    urls = [sa.make_url(database.url) for database in (first, second)]
    backends = {url.get_backend_name() for url in urls}
    if len(backends) > 1:
        return False
    if backends == {'sqlite'}:
        paths = [url.database and pathlib.Path(url.database).resolve()
                 for url in urls]
        return paths[0] == paths[1]
    if urls[0].database != urls[1].database:
        return False
    with first.writer() as one, second.writer() as other:
        if backends == {'postgresql'}:
            # These are of one database, and go with their transactions.
            take = sa.select(sa.func.pg_try_advisory_xact_lock(
                _LOCK, one.scalar(sa.select(sa.func.pg_backend_pid()))))
            one.execute(take)
            return not other.scalar(take)
        number = one.scalar(sa.select(sa.func.connection_id()))
        name = f'cellsched-{_LOCK}-{number}'
        one.execute(sa.select(sa.func.get_lock(name, 0)))
        try:
            return not other.scalar(sa.select(sa.func.is_free_lock(name)))
        finally:
            one.execute(sa.select(sa.func.release_lock(name)))
