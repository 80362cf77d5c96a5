# SPDX-License-Identifier: Apache-2.0
"""Queries for the resource providers that the agents of a cell report."""

import json
from typing import NamedTuple

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.objects import child_providers

_TABLE = models.compute_nodes

_ALL = sa.select(
    _TABLE.c.uuid, _TABLE.c.hypervisor_hostname, _TABLE.c.host,
    _TABLE.c.traits, _TABLE.c.providers,
).where(
    # Rows that others made may have no host, or no uuid.
    _TABLE.c.deleted == 0, _TABLE.c.uuid.is_not(None),
    _TABLE.c.host.is_not(None),
).order_by(_TABLE.c.hypervisor_hostname, _TABLE.c.id)


class RootRow(NamedTuple):
    """A compute node, which is a root provider.

    :ivar name: of the node
    :ivar children: all that are below it, by name
    """

    uuid: str
    name: str
    host: str
    traits: frozenset[str]
    children: tuple[child_providers.Child, ...] = ()


def list_all(connection: sa.Connection) -> list[RootRow]:
    """Return every compute node with what is below it, by name."""
    return [
        RootRow(row.uuid, row.hypervisor_hostname or row.host, row.host,
                _traits(row.traits), tuple(child_providers.load(
                    row.providers)))
        for row in connection.execute(_ALL)]


def _traits(text: str | None) -> frozenset[str]:
    """Return the names in a text; there are none in what is no list."""
    try:
        said = json.loads(text) if text else ()
    except (RecursionError, ValueError):
        said = ()
    return frozenset(map(str, said) if isinstance(said, list) else ())
