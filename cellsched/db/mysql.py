# SPDX-License-Identifier: Apache-2.0
"""MariaDB and MySQL: engine settings and the collation of tables."""

from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any

import sqlalchemy as sa

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

_TEXT_COLUMNS = sa.text(
    'SELECT table_name, column_name, column_type, is_nullable '
    'FROM information_schema.columns WHERE table_schema = DATABASE() '
    'AND table_name IN :tables AND collation_name <> :collation '
    'ORDER BY table_name, ordinal_position').bindparams(
    sa.bindparam('tables', expanding=True))


def engine_arguments(url: sa.URL) -> dict[str, Any]:
    """Return arguments for ``create_engine``; none for another dialect."""
    if url.get_backend_name() not in DIALECTS:
        return {}
    arguments: dict[str, Any] = {'isolation_level': ISOLATION}
    if 'charset' not in url.query:
        arguments['connect_args'] = {'charset': CHARSET}
    return arguments


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


def set_collation(connection: sa.Connection, tables: Sequence[str]) -> None:
    """Set the character set and collation of all text columns of tables.

    Each migration that creates tables or text columns calls this. The columns
    must have no default. Their types are kept; ``CONVERT TO CHARACTER SET``
    would enlarge them. Does nothing on other databases.
    """
    dialect: Any = connection.dialect
    if dialect.name not in DIALECTS:
        return
    collation = MARIADB_COLLATION if dialect.is_mariadb else MYSQL_COLLATION
    unicode = f'CHARACTER SET {CHARSET} COLLATE {collation}'
    changes: dict[str, dict[str, str]] = {}
    for table, column, type_, nullable in connection.execute(_TEXT_COLUMNS, {
            'tables': list(tables), 'collation': collation}):
        changes.setdefault(table, {})[column] = (
            f'MODIFY `{column}` {type_} {unicode} '
            f'{"" if nullable == "YES" else "NOT "}NULL')
    # A column cannot be changed while a foreign key refers to it.
    inspector = sa.inspect(connection)
    keys = [(table, key) for table, columns in changes.items()
            for key in inspector.get_foreign_keys(table)
            if not columns.keys().isdisjoint(key['constrained_columns'])]
    for table, key in keys:
        connection.exec_driver_sql(
            f'ALTER TABLE `{table}` DROP FOREIGN KEY `{key["name"]}`')
    for table, columns in changes.items():
        connection.exec_driver_sql(
            f'ALTER TABLE `{table}` DEFAULT {unicode}, '
            f'{", ".join(columns.values())}')
    for table, key in keys:
        connection.exec_driver_sql(
            f'ALTER TABLE `{table}` ADD CONSTRAINT `{key["name"]}` '
            f'FOREIGN KEY ({_listed(key["constrained_columns"])}) '
            f'REFERENCES `{key["referred_table"]}` '
            f'({_listed(key["referred_columns"])})')


def _listed(columns: Sequence[str]) -> str:
    return ', '.join(f'`{column}`' for column in columns)
