# SPDX-License-Identifier: Apache-2.0
"""The schemas of release 1.0, as statements of each kind of database.

The files in ``released`` next to this module have the tables of the first
revision of each schema, and do not change any more after the release. Before
it, make them again with ``python -m tests.unit.db.released``.
"""

import datetime
import pathlib

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects import sqlite

from cellsched.claims.sql import schema as claims
from cellsched.db import api
from cellsched.db import cell
from cellsched.db import mysql as mysql_schema

SCHEMAS = {'api': api.SCHEMA, 'cell': cell.SCHEMA, 'claims': claims.SCHEMA}

#: The revision of release 1.0 of each schema.
REVISIONS = {'api': '1a0c5e7d9b32', 'cell': '5e9a2d7c41b6',
             'claims': 'b7f24c90e1d3'}

DIALECTS = {'sqlite': sqlite.dialect(), 'postgresql': postgresql.dialect(),
            'mysql': mysql.dialect()}

_FILES = pathlib.Path(__file__).with_name('released')

_AT = datetime.datetime(2026, 11, 26, 12)


def tables(name):
    """Return the tables that the first revision of a schema makes."""
    return SCHEMAS[name].metadata.sorted_tables


def statements(name, dialect):
    """Return the statements that make the tables of a schema."""
    made = []
    for table in tables(name):
        # A migration of a server in the same process has set them, too.
        table.dialect_kwargs.update(
            mysql_engine='InnoDB', mysql_charset=mysql_schema.CHARSET)
        table.dialect_kwargs.pop('mysql_collate', None)
        made.append(sa.schema.CreateTable(table))
        made += map(sa.schema.CreateIndex, sorted(
            table.indexes, key=lambda index: index.name))
    return [str(each.compile(dialect=DIALECTS[dialect])).strip()
            for each in made]


def stored(name, dialect):
    """Return the stored statements."""
    text = (_FILES / f'{name}.{dialect}.sql').read_text()
    return [each for each in text.split(';\n') if each.strip()]


def create(database, name):
    """Make a database of release 1.0 with a row in each table.

    :returns: the rows by table
    """
    dialect = {'mariadb': 'mysql'}.get(
        database.engine.dialect.name, database.engine.dialect.name)
    version_table = SCHEMAS[name].version_table
    rows = {}
    with database.writer() as connection:
        for each in stored(name, dialect):
            if dialect == 'mysql' and each.endswith(mysql_schema.CHARSET):
                each += f' COLLATE {mysql_schema.MARIADB_COLLATION}'
            connection.execute(sa.text(each))
        connection.execute(sa.text(
            f'CREATE TABLE {version_table} (version_num VARCHAR(32) NOT NULL '
            'PRIMARY KEY)'))
        connection.execute(sa.text(
            f'INSERT INTO {version_table} VALUES (:of)'),
            {'of': REVISIONS[name]})
        for table in tables(name):
            rows[table.name] = {
                column.name: _value(column, rows) for column in table.c}
            connection.execute(sa.insert(table), rows[table.name])
    return rows


def read(database, name):
    """Return the first row of each table, with the columns of release 1.0."""
    with database.reader() as connection:
        return {table.name: dict(connection.execute(
            sa.select(table)).mappings().first())
            for table in tables(name)}


def _value(column, rows):
    for key in column.foreign_keys:
        table, name = key.target_fullname.split('.')
        return rows[table][name]
    kind = column.type
    if isinstance(kind, sa.DateTime):
        return _AT
    if isinstance(kind, sa.Boolean):
        return True
    if isinstance(kind, sa.Float):
        return 1.5
    if isinstance(kind, sa.Integer):
        return 7
    if isinstance(kind, sa.LargeBinary):
        return b'7'
    return f'{column.name} ü'[:kind.length or 36]


def write():
    """Make the files."""
    _FILES.mkdir(exist_ok=True)
    for name in SCHEMAS:
        for dialect in DIALECTS:
            (_FILES / f'{name}.{dialect}.sql').write_text(
                ';\n'.join(statements(name, dialect)) + ';\n')


if __name__ == '__main__':
    write()
