# SPDX-License-Identifier: Apache-2.0
"""MariaDB and MySQL: engine settings, and the definition of tables."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import math
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.ext.compiler import compiles

from cellsched import exception

#: SQLAlchemy's names of the two dialects.
DIALECTS = ('mysql', 'mariadb')

#: The servers' default, REPEATABLE READ, reads a snapshot of the first read,
#: even after the transaction waited for a lock. It also locks the gaps between
#: rows, which makes unrelated inserts deadlock.
ISOLATION = 'READ COMMITTED'

#: All of Unicode. The servers' ``utf8`` has no characters of four bytes.
CHARSET = 'utf8mb4'

#: Collations that distinguish case, accents and trailing spaces, and sort by
#: code points, as Python and other databases do.
MARIADB_COLLATION = 'utf8mb4_nopad_bin'
MYSQL_COLLATION = 'utf8mb4_0900_bin'

#: A floating-point number of 53 bits; the two servers call it DOUBLE.
DOUBLE = sa.Float(53).with_variant(sa.Double(), *DIALECTS)


class MediumText(sa.Text):
    """Nova's MediumText: 16 MB where the database makes a difference.

    SQLAlchemy's own type would import the drivers of these databases.
    """


@compiles(MediumText, *DIALECTS)
def _definition(*args: Any, **kwargs: Any) -> str:
    return 'MEDIUMTEXT'


#: Errors of a definition that has taken effect already: the table, the column,
#: the index or the constraint exists, or what is dropped does not.
_DONE = frozenset({1050, 1051, 1060, 1061, 1091, 1826})

#: MariaDB's error and text for a foreign key that exists.
_KEY_EXISTS = 1005, 'errno: 121'

_COLUMNS = sa.text(
    'SELECT table_name, column_name, collation_name '
    'FROM information_schema.columns WHERE table_schema = DATABASE()')

#: The name of a lock of a server, for one database.
_LOCK = "concat('cellsched-', sha1(database()))"

_TAKE_LOCK = sa.text(f'SELECT get_lock({_LOCK}, 0)')
_LOCK_HOLDER = sa.text(f'SELECT is_used_lock({_LOCK})')

#: The name of another lock of a server, for one database.
_NAMED_LOCK = "concat(:name, ' ', sha1(database()))"

_AWAIT_LOCK = sa.text(f'SELECT get_lock({_NAMED_LOCK}, :wait_s)')
_RELEASE_LOCK = sa.text(f'SELECT release_lock({_NAMED_LOCK})')

#: Session variables, by name, and the options of oslo.db that set them.
VARIABLES = {'sql_mode': 'mysql_sql_mode',
             'wsrep_sync_wait': 'mysql_wsrep_sync_wait'}

#: A read before which a node of Galera can wait for all transactions of the
#: cluster, if it is the first statement of a transaction.
FIRST_READ = ('SELECT count(*) FROM information_schema.tables '
              'WHERE table_schema = DATABASE()')

#: The same, with the wait. MySQL sets variables for a session only.
CATCH_UP = f'SET STATEMENT wsrep_sync_wait = 1 FOR {FIRST_READ}'

#: The code of the error about an unknown variable.
_UNKNOWN_VARIABLE = 1193


def engine_arguments(url: sa.URL) -> dict[str, Any]:
    """Return arguments for ``create_engine``; none for another dialect."""
    if url.get_backend_name() not in DIALECTS:
        return {}
    arguments: dict[str, Any] = {'isolation_level': ISOLATION}
    if 'charset' not in url.query:
        arguments['connect_args'] = {'charset': CHARSET}
    return arguments


@contextlib.contextmanager
def known_variables(engine: sa.Engine) -> Iterator[None]:
    """Translate the error about a variable that the server does not have.

    :raises cellsched.exception.ConfigurationInvalid: names the option
    """
    try:
        yield
    except engine.dialect.loaded_dbapi.Error as exc:
        code, text = (*exc.args, '', '')[:2]
        for variable, option in VARIABLES.items():
            if code == _UNKNOWN_VARIABLE and variable in text:
                raise exception.ConfigurationInvalid(
                    field=option, problem='the database server '
                    f'{engine.url.host} has no variable {variable}',
                    expected='a server with Galera, or no such option'
                ) from None
        raise


def catch_up(connection: Any) -> None:
    """Make a new connection see what other nodes of Galera have committed.

    A proxy opens it at another node if a node fails. That node can have yet to
    apply transactions which the former node confirmed. A release would not
    find its claim there, and the claim would come back. The wait ends with an
    error after Galera's ``repl.causal_read_timeout``, 30 seconds by default.
    Other servers do not wait.

    :param connection: of PyMySQL, to MariaDB, with no open transaction
    """
    with connection.cursor() as cursor:
        try:
            cursor.execute(CATCH_UP)
        except connection.Error as exc:
            if exc.args[0] != _UNKNOWN_VARIABLE:
                raise
    connection.commit()


def limits(options: Mapping[str, float], is_mariadb: bool) -> dict[str, float]:
    """Return the session variables for the limits of an engine.

    :param options: seconds by the name of the option
    """
    found: dict[str, float] = {}
    if 'lock_timeout' in options:
        # For rows, and for the definitions of tables.
        found['innodb_lock_wait_timeout'] = math.ceil(options['lock_timeout'])
        found['lock_wait_timeout'] = found['innodb_lock_wait_timeout']
    if 'statement_timeout' in options:
        if is_mariadb:
            found['max_statement_time'] = options['statement_timeout']
        else:
            found['max_execution_time'] = math.ceil(
                options['statement_timeout'] * 1000)
    if is_mariadb and 'idle_transaction_timeout' in options:
        found['idle_transaction_timeout'] = math.ceil(
            options['idle_transaction_timeout'])
    return found


def create_tables(
    connection: sa.Connection, tables: Iterable[sa.Table],
    missing: bool = False,
) -> None:
    """Create tables of a schema and their indexes, on any database.

    :param missing: create the missing tables only
    """
    dialect, chosen = connection.dialect, [*tables]
    if dialect.name in DIALECTS:
        for table in chosen:
            table.dialect_kwargs.update({
                f'{dialect.name}_engine': 'InnoDB',
                f'{dialect.name}_charset': CHARSET,
                f'{dialect.name}_collate': _collation(dialect)})
    chosen[0].metadata.create_all(connection, chosen, checkfirst=missing)


def accept_repetition(engine: sa.Engine) -> None:
    """Make an engine ignore errors of definitions that are repeated.

    These servers commit each definition at once, so a migration that was cut
    off has taken effect in part.
    """
    error = engine.dialect.loaded_dbapi.Error

    def do_execute(
        cursor: Any, statement: str, parameters: Any, context: Any
    ) -> bool:
        try:
            cursor.execute(statement, parameters)
        except error as exc:
            number, text = exc.args[0], str(exc)
            if number not in _DONE and not (
                    number == _KEY_EXISTS[0] and _KEY_EXISTS[1] in text):
                raise
        return True

    event.listen(engine, 'do_execute', do_execute)


def unexpected_tables(
    connection: sa.Connection, metadata: sa.MetaData
) -> list[str]:
    """Return the tables that lack a column or have another collation."""
    expected = (None, _collation(connection.dialect))
    found = {(table, column): collation for table, column, collation
             in connection.execute(_COLUMNS)}
    return sorted({
        table.name for table in metadata.tables.values()
        for column in table.columns
        if found.get((table.name, column.name), '') not in expected})


def take_lock(connection: sa.Connection) -> bool:
    """Take a lock of the database, for as long as the connection is open.

    Nodes of a Galera cluster do not share it.
    """
    return bool(connection.scalar(_TAKE_LOCK))


def lock_holder(connection: sa.Connection) -> int | None:
    """Return the number of the connection with the lock of the database."""
    return connection.scalar(_LOCK_HOLDER)


def await_lock(connection: sa.Connection, name: str, wait_s: float) -> bool:
    """Return whether the connection holds a lock of the database in time."""
    return bool(connection.scalar(
        _AWAIT_LOCK, {'name': name, 'wait_s': math.ceil(wait_s)}))


def release_lock(connection: sa.Connection, name: str) -> None:
    """Release a lock that the connection holds."""
    connection.execute(_RELEASE_LOCK, {'name': name})


def _collation(dialect: Any) -> str:
    return MARIADB_COLLATION if dialect.is_mariadb else MYSQL_COLLATION
