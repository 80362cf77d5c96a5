# SPDX-License-Identifier: Apache-2.0
"""Opening databases: engines that do no more than is asked of them."""

import sqlite3
from typing import Any

from oslo_db.sqlalchemy import engines
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy import pool

from cellsched import clock
from cellsched.db import mysql
from cellsched.db import pinging
from cellsched.db import pooling
from cellsched.db import postgresql
from cellsched.db import refusing


def open_(url: str, options: dict[str, Any]) -> sa.Engine:
    """Return an engine that calls no listener with each statement.

    What oslo.db adds to transactions, for SQLite and for savepoints, is not
    needed here, and an engine that has such listeners asks for others with
    each statement. What it adds to connections and errors holds for whatever
    shares them.
    """
    options = {'max_retries': 1, 'retry_interval': 1, **options}
    heard = []

    def make(url: sa.URL, **arguments: Any) -> tuple[sa.Engine, sa.Engine]:
        engine = _engine(url, **arguments)
        heard.append(engine.execution_options())
        return engine, heard[0]

    engine = engines.create_engine(
        url, sqlite_fk=True, thread_checkin=False, _engine_target=make,
        **options)
    # They are what connection_trace asks for.
    for listener in heard[0].dispatch.before_cursor_execute:
        event.listen(engine, 'before_cursor_execute', listener, retval=True)
    return engine


def _engine(url: sa.URL, **arguments: Any) -> sa.Engine:
    """Make the engine; for SQLite one that threads can write through.

    oslo.db opens a SQLite file anew for each transaction, which costs four
    times the transaction. SQLAlchemy's own pool keeps it open.
    """
    sqlite = url.get_backend_name() == 'sqlite'
    if sqlite and arguments.get('poolclass') is pool.NullPool:
        # A file does not go away as a server does, so nothing is pinged.
        # As many stay open as there ever were at a time.
        arguments.update(poolclass=pool.QueuePool, pool_size=0,
                         max_overflow=-1, pool_pre_ping=False)
    if arguments.get('poolclass', pool.QueuePool) is pool.QueuePool:
        # What was used last has prepared and read most.
        arguments.update(pool_use_lifo=True)
        if not sqlite:
            arguments.update(poolclass=pooling.LingeringPool)
    url, connecting = postgresql.connect_arguments(url)
    tuned = mysql.engine_arguments(url)
    arguments['connect_args'] = {
        **arguments.get('connect_args', {}), **connecting,
        **tuned.pop('connect_args', {})}
    arguments.update(tuned)
    # Parameters hold passwords too: those of the cells' URLs.
    engine = sa.create_engine(url, hide_parameters=True, **arguments)
    if sqlite:
        event.listen(engine, 'connect', _tune_sqlite)
    else:
        pinging.ask_seldom(engine, clock.Clock())
        refusing.listen(engine)
        postgresql.tune(engine)
    return engine


def _tune_sqlite(connection: Any, record: Any) -> None:
    """Let writers queue up instead of failing."""
    connection.execute('PRAGMA journal_mode=WAL')
    connection.execute('PRAGMA synchronous=NORMAL')
    connection.execute('PRAGMA busy_timeout=30000')


def begin_immediate(connection: sa.Connection) -> None:
    """Begin a transaction of SQLite's as a writer.

    One that begins as a reader cannot become a writer while another one
    writes, whatever the timeout.
    """
    statement = 'BEGIN IMMEDIATE'
    raw: Any = connection.connection.driver_connection
    try:
        raw.execute(statement)
    except sqlite3.Error as exc:
        raise sa.exc.DBAPIError.instance(
            statement, None, exc, sqlite3.Error) from exc
