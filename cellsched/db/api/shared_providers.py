# SPDX-License-Identifier: Apache-2.0
"""Queries for sharing providers, which the hosts of an aggregate share."""

from collections.abc import Mapping
import dataclasses
import datetime
import json
import logging
from typing import Any
from typing import NamedTuple

from oslo_db import exception as db_exc
import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db import feed
from cellsched import exception
from cellsched.objects import resources
from cellsched.observability.conditions import Conditions

_TABLE = models.shared_providers
_AGGREGATES = models.aggregates

_ALL = sa.select(
    _TABLE.c.uuid, _TABLE.c.name, _TABLE.c.aggregate_uuid, _TABLE.c.traits,
    _TABLE.c.inventories).order_by(_TABLE.c.name)


class SharedProvider(NamedTuple):
    """A resource provider that the hosts of an aggregate share.

    :ivar aggregate_uuid: uuid of the aggregate
    :ivar traits: names of traits
    :ivar inventories: the inventory by resource class, as an operator set it;
        the claim store has the inventory in force, and the usage
    """

    uuid: str
    name: str
    aggregate_uuid: str
    traits: frozenset[str] = frozenset()
    inventories: Mapping[str, resources.Inventory] = {}


def fingerprint(connection: sa.Connection) -> feed.Token:
    """Return a value that changes when a sharing provider changes.

    It changes with aggregates, too. Rows that another program writes do not
    change it.
    """
    return models.FEED.token(connection)


def list_all(
    connection: sa.Connection, conditions: Conditions
) -> list[SharedProvider]:
    """Return every sharing provider, by name; without unreadable ones.

    :param conditions: logs the unreadable ones
    """
    found = []
    for row in connection.execute(_ALL):
        unreadable = f'Sharing provider {row.uuid} is left out'
        try:
            found.append(_from_row(row))
            conditions.end(unreadable)
        except exception.DatabaseError as exc:
            # It keeps no other provider.
            conditions.occur(unreadable, exc, logging.ERROR)
    return found


def get(
    connection: sa.Connection, name: str, to_change: bool = False
) -> SharedProvider:
    """Return a sharing provider by its uuid or else its name.

    :param to_change: whether to lock sharing providers against other changes
    :raises cellsched.exception.ResourceProviderNotFound: neither exists
    """
    if to_change:
        models.FEED.move(connection, name)
    found = [_from_row(row) for row in connection.execute(_ALL.where(
        sa.or_(_TABLE.c.uuid == name, _TABLE.c.name == name)))]
    if not found:
        raise _not_found(name)
    return max(found, key=lambda provider: provider.uuid == name)


def create(
    connection: sa.Connection, provider: SharedProvider,
    now: datetime.datetime,
) -> None:
    """Add a sharing provider.

    :raises cellsched.exception.ResourceProviderExists: the name or the uuid
        exists
    :raises cellsched.exception.AggregateNotFound: the aggregate is unknown
    """
    _lock(connection, provider)
    _write(connection, sa.insert(_TABLE).values(created_at=now), provider)


def update(
    connection: sa.Connection, provider: SharedProvider,
    now: datetime.datetime,
) -> None:
    """Replace all fields of a sharing provider except its uuid.

    :raises cellsched.exception.ResourceProviderNotFound: the uuid is unknown
    :raises cellsched.exception.ResourceProviderExists: the name exists
    :raises cellsched.exception.AggregateNotFound: the aggregate is unknown
    """
    _lock(connection, provider)
    changed = _write(connection, sa.update(_TABLE).where(
        _TABLE.c.uuid == provider.uuid).values(updated_at=now), provider)
    if not changed.rowcount:
        raise _not_found(provider.uuid)


def delete(connection: sa.Connection, uuid: str) -> None:
    """Delete a sharing provider, even if it has allocations.

    :raises cellsched.exception.ResourceProviderNotFound: the uuid is unknown
    """
    models.FEED.move(connection, uuid)
    if not connection.execute(
            sa.delete(_TABLE).where(_TABLE.c.uuid == uuid)).rowcount:
        raise _not_found(uuid)


def _lock(connection: sa.Connection, provider: SharedProvider) -> None:
    """Advance the feed, and check that the aggregate exists.

    Deleting the aggregate needs the same lane, and therefore waits.
    """
    models.FEED.move(connection, provider.uuid)
    if connection.execute(sa.select(_AGGREGATES.c.id).where(
            _AGGREGATES.c.uuid == provider.aggregate_uuid)).first() is None:
        raise exception.AggregateNotFound(aggregate=provider.aggregate_uuid)


def _write(
    connection: sa.Connection, statement: Any, provider: SharedProvider
) -> sa.CursorResult[Any]:
    try:
        return connection.execute(statement.values(
            uuid=provider.uuid, name=provider.name,
            aggregate_uuid=provider.aggregate_uuid,
            traits=json.dumps(sorted(provider.traits)),
            inventories=json.dumps({
                name: dataclasses.asdict(inventory)
                for name, inventory in sorted(provider.inventories.items())})))
    except db_exc.DBDuplicateEntry:
        raise exception.ResourceProviderExists(name=provider.name) from None


def _from_row(row: Any) -> SharedProvider:
    try:
        found = SharedProvider(
            row.uuid, row.name, row.aggregate_uuid,
            frozenset(json.loads(row.traits)),
            {name: resources.Inventory(**value)
             for name, value in json.loads(row.inventories).items()})
        # Fails for fields that are no numbers.
        for inventory in found.inventories.values():
            inventory.capacity, inventory.admits(1)
        return found
    except (ArithmeticError, AttributeError, RecursionError, TypeError,
            ValueError):
        raise exception.DatabaseError(
            schema='api', reason=f'the traits or the inventories of the '
            f'sharing provider {row.name!r:.80} cannot be read') from None


def _not_found(name: str) -> exception.ResourceProviderNotFound:
    return exception.ResourceProviderNotFound(
        f'There is no sharing provider {name}.', provider=name)
