# SPDX-License-Identifier: Apache-2.0
"""Tokens, which show whether two URLs lead to the same database.

A random token is written through one URL and read through the other. Unlike a
lock, it reaches all nodes of a Galera cluster and all standbys.
"""

from typing import Any

import sqlalchemy as sa

from cellsched.db import mysql

#: Name of the table. It may be the only one in a database without a schema.
NAME = 'database_tokens'

#: Seconds after which a token is removed that its process has left.
_KEPT_S = 3600.0


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
