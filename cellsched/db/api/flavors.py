# SPDX-License-Identifier: Apache-2.0
"""Queries for flavors."""

from collections.abc import Iterable
from collections.abc import Mapping
import datetime
from typing import Any

from oslo_db import exception as db_exc
import sqlalchemy as sa

from cellsched.db.api import models
from cellsched import exception
from cellsched import objects

_TABLE = models.flavors
_SPECS = models.flavor_extra_specs

_ALL = (
    sa.select(_TABLE, _SPECS.c.key, _SPECS.c.value)
    .outerjoin(_SPECS, _SPECS.c.flavor_id == _TABLE.c.id)
    .order_by(_TABLE.c.id))

_NAMED = _ALL.where(sa.or_(
    _TABLE.c.flavorid == sa.bindparam('name'),
    _TABLE.c.name == sa.bindparam('name')))


def create(
    connection: sa.Connection, flavor: objects.Flavor, now: datetime.datetime
) -> None:
    """Add a flavor.

    :raises cellsched.exception.FlavorExists: the name or id exists
    """
    taken = connection.execute(
        sa.select(_TABLE.c.name).where(_TABLE.c.name == flavor.name)).first()
    try:
        result = connection.execute(sa.insert(_TABLE).values(
            created_at=now, name=flavor.name, flavorid=flavor.flavorid,
            memory_mb=flavor.memory_mb, vcpus=flavor.vcpus,
            root_gb=flavor.root_gb, ephemeral_gb=flavor.ephemeral_gb,
            swap=flavor.swap, rxtx_factor=1.0, disabled=False,
            is_public=True, description=flavor.get('description')))
    except db_exc.DBDuplicateEntry:
        raise exception.FlavorExists(
            field='name' if taken else 'id',
            value=flavor.name if taken else flavor.flavorid) from None
    extra_specs = flavor.get('extra_specs') or {}
    key = result.inserted_primary_key
    if extra_specs and key:
        connection.execute(sa.insert(_SPECS), [
            {'created_at': now, 'flavor_id': key[0],
             'key': name, 'value': value}
            for name, value in extra_specs.items()])


def list_all(connection: sa.Connection) -> list[objects.Flavor]:
    """Return every flavor, by id."""
    return _from_rows(connection.execute(_ALL))


def get(connection: sa.Connection, name: str) -> objects.Flavor:
    """Return a flavor by its id or else its name.

    :raises cellsched.exception.FlavorNotFound: neither exists
    """
    rows = connection.execute(_NAMED, {'name': name}).all()
    if not rows:
        raise exception.FlavorNotFound(flavor=name)
    found = {flavor.flavorid: flavor for flavor in _from_rows(rows)}
    return found.get(name) or next(iter(found.values()))


def is_known(connection: sa.Connection, name: str) -> bool:
    """Return whether a flavor has an id or a name."""
    return connection.execute(
        _NAMED.with_only_columns(_TABLE.c.id), {'name': name}
    ).first() is not None


def set_extra_specs(
    connection: sa.Connection, flavor_id: int,
    extra_specs: Mapping[str, str | None], now: datetime.datetime,
) -> None:
    """Change extra specs of a flavor; None removes a key."""
    # Lock the flavor, so that two changes of the same key are serialized.
    connection.execute(sa.select(_TABLE.c.id).where(
        _TABLE.c.id == flavor_id).with_for_update())
    connection.execute(sa.delete(_SPECS).where(
        _SPECS.c.flavor_id == flavor_id, _SPECS.c.key.in_([*extra_specs])))
    rows = [{'created_at': now, 'flavor_id': flavor_id, 'key': key,
             'value': value}
            for key, value in extra_specs.items() if value is not None]
    if rows:
        connection.execute(sa.insert(_SPECS), rows)


def delete(connection: sa.Connection, name: str) -> None:
    """Delete a flavor by its id or else its name; its servers stay.

    :raises cellsched.exception.FlavorNotFound: neither exists
    """
    flavor = get(connection, name)
    connection.execute(
        sa.delete(_SPECS).where(_SPECS.c.flavor_id == flavor.id))
    connection.execute(sa.delete(_TABLE).where(_TABLE.c.id == flavor.id))


def _from_rows(rows: Iterable[sa.Row[Any]]) -> list[objects.Flavor]:
    """Return flavors from rows; a flavor has a row for each extra spec."""
    found: dict[int, objects.Flavor] = {}
    for row in rows:
        flavor = found.get(row.id)
        if flavor is None:
            flavor = found[row.id] = objects.Flavor(
                id=row.id, name=row.name, flavorid=row.flavorid,
                memory_mb=row.memory_mb, vcpus=row.vcpus, root_gb=row.root_gb,
                ephemeral_gb=row.ephemeral_gb or 0, swap=row.swap or 0,
                rxtx_factor=row.rxtx_factor, disabled=bool(row.disabled),
                is_public=row.is_public is not False,
                description=row.description, extra_specs={})
        if row.key is not None:
            flavor.extra_specs[row.key] = row.value
    return list(found.values())
