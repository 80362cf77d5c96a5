# SPDX-License-Identifier: Apache-2.0
"""Statements that psycopg 3 sends without a cursor.

For what is done all the time and has numbers and texts for parameters: what a
cursor does about them takes as long as PostgreSQL takes for a short statement.
"""

from collections.abc import Mapping
import dataclasses
import select
from typing import Any

import psycopg
from psycopg import pq
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import asyncpg

from cellsched.db import bare

#: Writes statements as libpq takes them. Nothing of that driver is needed.
_NUMBERED = asyncpg.dialect()


@dataclasses.dataclass(frozen=True)
class Statement:
    """A statement with numbered parameters.

    :param names: of the parameters, in the order of their numbers
    :param constants: parameters that are always the same, by name
    """

    text: bytes
    names: tuple[str, ...]
    constants: Mapping[str, Any]


def statement(written: sa.ClauseElement) -> Statement:
    """Return what SQLAlchemy writes as libpq takes it."""
    compiled: Any = written.compile(dialect=_NUMBERED)
    return Statement(str(compiled).encode(), tuple(compiled.positiontup), {
        name: value for name, value in compiled.params.items()
        if value is not None})


def execute(
    connection: bare.Connection, statement: Statement,
    parameters: Mapping[str, int | str],
) -> None:
    """Execute a statement that returns no rows.

    It is prepared first, unless the connection prepares nothing.

    :param parameters: by name; no text may have a NUL
    :raises psycopg.Error: as a cursor raises it
    """
    if not send(connection, statement, parameters):
        name = b'cellsched_%d' % len(connection.prepared)
        connection.raw.pgconn.send_prepare(name, statement.text)
        receive(connection)
        connection.prepared[statement.text] = name
        send(connection, statement, parameters)
    receive(connection)


def send(
    connection: bare.Connection, statement: Statement,
    parameters: Mapping[str, int | str],
) -> bool:
    """Send a statement that returns no rows, and do not wait for its end.

    That is what :func:`receive` does, which is to be called next.

    :param parameters: as those of :func:`execute`
    :returns: whether it was sent; False where it is still to be prepared
    :raises psycopg.Error: the connection is lost
    """
    values = [
        str(parameters[name]).encode() for name in statement.names]
    pgconn = connection.raw.pgconn
    if connection.raw.prepare_threshold is None:
        pgconn.send_query_params(statement.text, values)
        return True
    name = connection.prepared.get(statement.text)
    if name is None:
        return False
    pgconn.send_query_prepared(name, values)
    return True


def receive(connection: bare.Connection) -> None:
    """Wait for what a statement ends with.

    :raises psycopg.Error: it failed, as a cursor raises it
    """
    pgconn = connection.raw.pgconn
    waiting = select.poll()
    waiting.register(pgconn.socket, select.POLLIN | select.POLLOUT)
    while pgconn.flush():
        waiting.poll()
        pgconn.consume_input()
    waiting.modify(pgconn.socket, select.POLLIN)
    failed = None
    while True:
        while pgconn.is_busy():
            waiting.poll()
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            break
        if result.status != pq.ExecStatus.COMMAND_OK:
            failed = result
    if failed is not None:
        raise _error(failed)


def _error(result: pq.abc.PGresult) -> psycopg.Error:
    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b'').decode()
    try:
        kind: type[psycopg.Error] = psycopg.errors.lookup(state)
    except KeyError:
        kind = psycopg.OperationalError
    return kind(result.error_message.decode(errors='replace'))
