# SPDX-License-Identifier: Apache-2.0
"""Lists as parameters, each in its dialect's words.

Where a list is one parameter, a statement's text is the same for each length:
it is neither made anew for each execution, nor prepared for each length.
"""

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext import compiler as compiling
from sqlalchemy.sql import functions


class InList(functions.FunctionElement[bool]):
    """The condition that a column is one of a parameter, which is a list."""

    type = sa.Boolean()
    inherit_cache = True

    def __init__(self, column: sa.ColumnElement[Any], name: str) -> None:
        super().__init__(column, sa.bindparam(name, type_=column.type))

    def self_group(self, against: Any = None) -> 'InList':
        # It needs no parentheses, and is no number to compare with 1 either,
        # for which SQLite would not use an index.
        return self


@compiling.compiles(InList)
def _expand(element: InList, compiler: Any, **kw: Any) -> str:
    column, these = element.clauses
    return str(compiler.process(
        column.in_(sa.bindparam(these.key, expanding=True)), **kw))


@compiling.compiles(InList, 'sqlite')
def _from_json(element: InList, compiler: Any, **kw: Any) -> str:
    column, these = element.clauses
    column = compiler.process(column, **kw)
    these = compiler.process(sa.bindparam(these.key, type_=_JSON()), **kw)
    return f'{column} IN (SELECT value FROM json_each({these}))'


@compiling.compiles(InList, 'postgresql')
def _from_array(element: InList, compiler: Any, **kw: Any) -> str:
    column, these = element.clauses
    # What is too long is nothing that is there, and must not be cut off.
    each = sa.String() if isinstance(column.type, sa.String) else column.type
    return str(compiler.process(column == sa.any_(sa.cast(
        sa.bindparam(these.key, type_=_Array()), sa.ARRAY(each))), **kw))


class _JSON(sa.types.TypeDecorator[Any]):

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str:
        return json.dumps(value)


class _Array(sa.types.TypeDecorator[Any]):
    """An array as PostgreSQL reads it, which no driver writes as fast."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str:
        return f'{{{",".join(map(_quoted, value))}}}'


def _quoted(value: Any) -> str:
    if value is None:
        return 'NULL'
    text = str(value).replace('\\', '\\\\').replace('"', '\\"')
    return f'"{text}"'
