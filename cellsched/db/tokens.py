# SPDX-License-Identifier: Apache-2.0
"""Tokens, which show whether two URLs lead to the same database.

A random token is written through one URL and read through the other. Unlike a
lock, it reaches all nodes of a Galera cluster and all standbys.
"""

from collections.abc import Callable
import pathlib
from typing import Any

from oslo_utils import uuidutils
import sqlalchemy as sa

from cellsched.db import mysql
from cellsched.db.session import Database
from cellsched import exception
from cellsched import urls

#: Name of the table. It may be the only one in a database without a schema.
NAME = 'database_tokens'

#: Seconds after which a token is removed that its process has left.
_KEPT_S = 3600.0

#: Seconds for a token to reach a standby, and between two looks for it.
_REPLICATION_S = 10.0
_LOOK_S = 0.2


def table(metadata: sa.MetaData) -> sa.Table:
    """Return the table of the tokens, as a part of a schema."""
    return sa.Table(
        NAME, metadata,
        sa.Column('token', sa.String(36), primary_key=True),
        # In seconds since the epoch.
        sa.Column('written_at', mysql.DOUBLE, nullable=False))


_TABLE = table(sa.MetaData())

#: A standby or a frozen server is read only, even if the account may write.
_IS_WRITABLE = {
    'postgresql': "SELECT NOT pg_is_in_recovery() "
                  "AND current_setting('transaction_read_only') = 'off'",
    **dict.fromkeys(mysql.DIALECTS, 'SELECT NOT @@global.read_only')}

#: The condition that a server that is read only replicates another one, on
#: PostgreSQL, MariaDB and MySQL.
_IS_REPLICA = {
    'postgresql': 'SELECT pg_is_in_recovery()',
    'mariadb': 'SELECT variable_value FROM information_schema.global_variables'
               " WHERE variable_name = 'gtid_slave_pos'"
               " AND variable_value <> ''",
    'mysql': 'SELECT count(*) FROM '
             'performance_schema.replication_connection_configuration'}

#: What a database has in common with its replicas. A copy can have it, too.
_IDENTITY = {
    'postgresql': 'SELECT system_identifier, oid FROM pg_control_system(), '
                  'pg_database WHERE datname = current_database()',
    **dict.fromkeys(mysql.DIALECTS, 'SELECT lower(database())')}

_GALERA = "SHOW VARIABLES LIKE 'wsrep_on'"

_SYNC_WAIT = 'wsrep_sync_wait'


def is_same_database(first: Database, second: Database) -> bool:
    """Return whether two URLs lead to the same database; connects to both.

    A standby or another node of a cluster has the same database. On servers,
    a token is written through one URL, and removed after it was looked for
    through the other. A database without a schema gets the table for it.

    :raises cellsched.exception.DatabaseUnreachable: one does not answer
    :raises cellsched.exception.DatabaseError: both are read only, or one is
        a replica that lags behind
    """
    backends = {
        'mysql' if name in mysql.DIALECTS else name for name in (
            sa.make_url(each.url).get_backend_name()
            for each in (first, second))}
    if len(backends) > 1:
        return False
    if backends == {'sqlite'}:
        return _is_same_file(first, second)
    # 1. Choose where to write. A service may be unable to create the table.
    writable = [each for each in (first, second)
                if _ask(each, is_writable)]
    if not writable:
        raise exception.DatabaseError(
            schema=first.schema,
            reason=f'it cannot be compared: {urls.mask(first.url)} and '
                   f'{urls.mask(second.url)} are read only')
    ready = [each for each in writable if _ask(each, is_ready)]
    if not ready:
        _create_tokens(writable[0])
    source = [*ready, *writable][0]
    target = second if source is first else first
    # 2. Write the token, look for it, and remove it in any case.
    token = uuidutils.generate_uuid()
    now = source.timestamp()
    with source.writer() as connection:
        write(connection, token, now)
    try:
        return _has_token(target, token, source)
    finally:
        with source.writer() as connection:
            delete(connection, token)


def _is_same_file(first: Database, second: Database) -> bool:
    files = [sa.make_url(each.url).database or ':memory:'
             for each in (first, second)]
    if ':memory:' in files:
        return first is second
    paths = [pathlib.Path(file).resolve() for file in files]
    return paths[0] == paths[1] or (
        all(path.exists() for path in paths) and paths[0].samefile(paths[1]))


def _ask(database: Database, question: Callable[[sa.Connection], Any]) -> Any:
    with database.reader() as connection:
        return question(connection)


def _create_tokens(database: Database) -> None:
    """Create the table of the tokens, maybe together with other processes."""
    try:
        with database.writer() as connection:
            create(connection)
    except exception.DatabaseError:
        if not _ask(database, is_ready):
            raise


def _has_token(database: Database, token: str, source: Database) -> bool:
    """Return whether a token of another database is in this one, too."""
    ends_at = database.clock.monotonic() + _REPLICATION_S
    while True:
        with database.reader() as connection:
            if exists(connection, token):
                return True
            if not may_lag(connection):
                return False
            here = identity(connection)
        if here != _ask(source, identity):
            return False
        if database.clock.monotonic() >= ends_at:
            raise exception.DatabaseError(
                schema=database.schema,
                reason=f'it cannot be compared: {urls.mask(database.url)} is a'
                       f' replica that did not get a row of '
                       f'{urls.mask(source.url)} in {_REPLICATION_S:.0f} s')
        database.clock.sleep(_LOOK_S)


def is_writable(connection: sa.Connection) -> bool:
    """Return whether the server accepts writes."""
    return bool(connection.exec_driver_sql(
        _IS_WRITABLE[connection.dialect.name]).scalar())


def is_ready(connection: sa.Connection) -> bool:
    """Return whether the table exists, as it does in each current schema."""
    return sa.inspect(connection).has_table(NAME)


def create(connection: sa.Connection) -> None:
    """Create the table."""
    mysql.create_tables(connection, [_TABLE])


def write(connection: sa.Connection, token: str, now: float) -> None:
    """Write a token, and remove old ones.

    :param now: seconds since the epoch
    """
    connection.execute(sa.delete(_TABLE).where(
        _TABLE.c.written_at < now - _KEPT_S))
    connection.execute(sa.insert(_TABLE), {'token': token, 'written_at': now})


def delete(connection: sa.Connection, token: str) -> None:
    """Remove a token."""
    connection.execute(sa.delete(_TABLE).where(_TABLE.c.token == token))


def exists(connection: sa.Connection, token: str) -> bool:
    """Return whether a token is in the database.

    A node of a Galera cluster first gets what the others have committed.
    """
    if connection.dialect.name in mysql.DIALECTS:
        galera = connection.exec_driver_sql(_GALERA).first()
        # It waits only at the begin of a transaction.
        connection.rollback()
        if galera is not None and galera[1] == 'ON':
            _catch_up(connection)
    return is_ready(connection) and connection.scalar(
        sa.select(_TABLE.c.token).where(_TABLE.c.token == token)) is not None


def _catch_up(connection: sa.Connection) -> None:
    """Wait until the node has all transactions of the cluster."""
    dialect: Any = connection.dialect
    if dialect.is_mariadb:
        connection.exec_driver_sql(mysql.CATCH_UP)
        return
    # MySQL sets variables for a session only.
    before = int(connection.exec_driver_sql(
        f'SELECT @@session.{_SYNC_WAIT}').scalar_one())
    connection.rollback()
    connection.exec_driver_sql(f'SET SESSION {_SYNC_WAIT} = 1')
    connection.exec_driver_sql(mysql.FIRST_READ)
    connection.rollback()
    connection.exec_driver_sql(f'SET SESSION {_SYNC_WAIT} = {before}')


def may_lag(connection: sa.Connection) -> bool:
    """Return whether commits at another server may arrive here later."""
    dialect: Any = connection.dialect
    server = dialect.name if dialect.name not in mysql.DIALECTS else (
        'mariadb' if dialect.is_mariadb else 'mysql')
    return not is_writable(connection) and bool(
        connection.exec_driver_sql(_IS_REPLICA[server]).scalar())


def identity(connection: sa.Connection) -> tuple[Any, ...]:
    """Return values that a database shares with its replicas."""
    return tuple(connection.exec_driver_sql(
        _IDENTITY[connection.dialect.name]).one())
