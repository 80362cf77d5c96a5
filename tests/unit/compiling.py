# SPDX-License-Identifier: Apache-2.0
"""Statements, compiled once for all databases of a process of tests.

Each engine of SQLAlchemy compiles for itself. A test makes one for each
database and service, uses each statement a few times, and would spend a
quarter of its time on that.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import event


class Compiled(dict[Any, Any]):
    """What was compiled for a dialect serves another one of its kind.

    A key that does not begin with one is as in any dictionary.
    """

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_of_kind(key), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_of_kind(key), value)


def _of_kind(key: Any) -> Any:
    if isinstance(key, tuple) and key and isinstance(key[0], sa.Dialect):
        return (type(key[0]), *key[1:])
    return key


def share() -> None:
    """Have all engines of SQLite use what others have compiled, from now on.

    What differs between servers of other kinds is not in their class.
    """
    compiled = Compiled()

    @event.listens_for(sa.Engine, 'engine_connect')
    def use(connection: sa.Connection) -> None:
        if connection.dialect.name == 'sqlite':
            connection.execution_options(compiled_cache=compiled)
