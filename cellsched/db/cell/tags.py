# SPDX-License-Identifier: Apache-2.0
"""Queries for the tags of a cell's servers."""

from collections.abc import Iterable
from collections.abc import Mapping

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db import statements

_TABLE = models.tags

_OF = sa.select(_TABLE.c.resource_id, _TABLE.c.tag).where(
    statements.in_list(_TABLE.c.resource_id)).order_by(_TABLE.c.tag)


def create_all(
    connection: sa.Connection, tags: Mapping[str, Iterable[str]]
) -> None:
    """Add the tags of servers that have none, by their uuids.

    One that comes twice is added once: no build is to fail of it.
    """
    statements.insert_missing(connection, _TABLE.c.tag, [
        {'resource_id': uuid, 'tag': tag}
        for uuid, names in tags.items() for tag in names])


def get_many(
    connection: sa.Connection, uuids: Iterable[str]
) -> dict[str, list[str]]:
    """Return the tags of servers, sorted; those without are left out."""
    found: dict[str, list[str]] = {}
    for chunk in statements.chunks(uuids):
        for uuid, tag in connection.execute(_OF, {'these': chunk}):
            found.setdefault(uuid, []).append(tag)
    return found


def delete(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Remove every tag of servers."""
    for chunk in statements.chunks(uuids):
        connection.execute(
            sa.delete(_TABLE).where(_TABLE.c.resource_id.in_(chunk)))
