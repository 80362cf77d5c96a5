# SPDX-License-Identifier: Apache-2.0
"""Setting the figures of a provider to what they follow from.

Its row is locked first, as by all that move what is taken of it. Who has
allocations and waits for the row adds or subtracts them afterwards; of those
that are not committed nothing is seen here. So each is counted once.
"""

import sqlalchemy as sa

from cellsched.claims import base
from cellsched.claims.sql import queries
from cellsched.claims.sql import schema

_providers = schema.providers
_inventories = schema.inventories
_allocations = schema.allocations

_LOCK = sa.select(_providers.c.consumers).where(
    _providers.c.uuid == sa.bindparam('of')).with_for_update()

_TAKEN = sa.select(
    _allocations.c.resource_class, sa.func.sum(_allocations.c.amount),
).where(_allocations.c.provider == sa.bindparam('of')).group_by(
    _allocations.c.resource_class)

_CONSUMERS = sa.select(
    sa.func.count(_allocations.c.consumer.distinct()),
).where(_allocations.c.provider == sa.bindparam('of'))

_CAPACITIES = sa.select(
    _inventories.c.resource_class, _inventories.c.capacity,
).where(_inventories.c.provider == sa.bindparam('of')).with_for_update()


def recount(connection: sa.Connection, provider: str) -> bool:
    """Set a provider's figures right; return whether they were wrong."""
    of = {'of': provider}
    counted = connection.execute(_LOCK, of).scalar()
    if counted is None:
        return False
    taken = {resource: int(amount)
             for resource, amount in connection.execute(_TAKEN, of)}
    consumers = connection.execute(_CONSUMERS, of).scalar_one()
    capacities = {resource: capacity for resource, capacity
                  in connection.execute(_CAPACITIES, of)}
    has, used = queries.inventories(connection, [provider])
    inventory, counts = has.get(provider, {}), used.get(provider, {})
    wrong = [
        resource for resource in sorted(capacities)
        if counts[resource] != taken.get(resource, 0)
        or capacities[resource] != inventory[resource].capacity]
    for resource in wrong:
        connection.execute(
            sa.update(_inventories).where(
                _inventories.c.provider == provider,
                _inventories.c.resource_class == resource)
            .values(used=taken.get(resource, 0),
                    capacity=inventory[resource].capacity))
    lost = sorted(taken.keys() - capacities.keys())
    for resource in lost:
        nothing = base.Inventory(total=0)
        connection.execute(sa.insert(_inventories).values(
            provider=provider, resource_class=resource,
            used=taken[resource], capacity=nothing.capacity,
            **vars(nothing)))
    if not wrong and not lost and consumers == counted:
        return False
    connection.execute(
        sa.update(_providers).where(_providers.c.uuid == provider)
        .values(consumers=consumers, **schema.FEED.marks),
        {'in_lane': schema.FEED.move(connection, provider)})
    return True
