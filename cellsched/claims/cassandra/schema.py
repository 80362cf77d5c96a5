# SPDX-License-Identifier: Apache-2.0
"""A keyspace, its tables and their indexes: what is there, and making it."""

from typing import Any

from cellsched.claims.cassandra import statements

#: Where the server says what there is, and under which name.
_TOLD = {'tables': 'table_name', 'indexes': 'index_name'}

#: From here on a server has storage-attached indexes.
_SAI_MIN = 5


def version(session: Any) -> str:
    """Return the release of the server."""
    [local] = session.execute('SELECT release_version FROM system.local')
    release: str = local['release_version']
    return release


def missing(session: Any, keyspace: str) -> tuple[str, ...]:
    """Return the tables and indexes that are not there."""
    there = {row[name] for kind, name in _TOLD.items()
             for row in session.execute(
                 f'SELECT {name} FROM system_schema.{kind} '
                 'WHERE keyspace_name = %s', [keyspace])}
    return tuple(f'{keyspace}.{name}'
                 for name in (*statements.TABLES, *statements.INDEXES)
                 if name not in there)


def create(session: Any, keyspace: str, copies: int) -> None:
    """Make what is not there."""
    first, _, _ = version(session).partition('.')
    for text in statements.create(
            keyspace, copies, sai=int(first) >= _SAI_MIN):
        session.execute(text)
