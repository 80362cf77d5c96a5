# SPDX-License-Identifier: Apache-2.0
"""Writes of inventories and counters, with the same statements everywhere.

They are less frequent than claims. On PostgreSQL and MariaDB a write is one
round trip, as those of claims are, and all writes lock in the order of
:mod:`.transactions`.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import re
from typing import Any

import sqlalchemy as sa

from cellsched.claims import base
from cellsched.claims.sql import mariadb
from cellsched.claims.sql import queries
from cellsched.claims.sql import schema
from cellsched.db import guarded_statements
from cellsched.db import mysql
from cellsched.db import session

_providers = schema.providers
_inventories = schema.inventories
_allocations = schema.allocations

#: Columns of an inventory, without the used amount.
_FIELDS = ('total', 'reserved', 'allocation_ratio', 'min_unit', 'max_unit',
           'step_size', 'capacity')

_SET = ', '.join(f'{name} = %({name}_{{n}})s' for name in _FIELDS)

_UPDATE = f'''UPDATE inventories SET {_SET}
WHERE provider = %(of)s AND resource_class = %(resource_{{n}})s'''

_INSERT = f'''
INSERT INTO inventories (provider, resource_class, used, {", ".join(_FIELDS)})
VALUES (%(of)s, %(resource_{{n}})s, {{used:d}},
    {", ".join(f"%({name}_{{from_}})s" for name in _FIELDS)})'''

#: Moves a provider in the feed.
_MOVE = ['UPDATE feed_lanes SET position = position + 1 WHERE lane = %(lane)s',
         '''UPDATE providers SET lane = %(lane)s, position = (
    SELECT position FROM feed_lanes WHERE lane = %(lane)s)
WHERE uuid = %(of)s''']

#: A parameter, as the drivers of servers write it.
_PARAMETER = re.compile(r'%\((\w+)\)s')


def set_inventory(
    database: session.Database, provider: str,
    inventory: Mapping[str, base.Inventory],
) -> None:
    """Replace the inventory of a provider, which may be new.

    :raises cellsched.exception.ConstraintViolated: another transaction was
        faster
    :raises cellsched.db.guarded_statements.StatementRefused: likewise
    """
    with database.reader() as connection:
        known = queries.inventory(connection, provider)
    # The used amount of a removed class is kept.
    gone = {resource: base.Inventory(total=0)
            for resource in (known or {}).keys() - inventory.keys()}
    if known == {**inventory, **gone}:
        return
    parameters = _parameters(provider)
    # 1. Lock the provider, which protects its inventories.
    statements = ['UPDATE providers SET consumers = consumers '
                  'WHERE uuid = %(of)s']
    if known is None:
        statements = ['INSERT INTO providers (uuid, consumers, lane, position)'
                      ' VALUES (%(of)s, 0, 0, 0)']
    # 2. Write its classes, and empty all others.
    for n, (resource, has) in enumerate(sorted(inventory.items())):
        parameters |= {f'resource_{n}': resource, **_values(has, n)}
        statements.append(
            _UPDATE.format(n=n) if resource in (known or ())
            else _INSERT.format(n=n, from_=n, used=0))
    named = ''.join(f', %(resource_{n})s' for n in range(len(inventory)))
    statements.append(
        f'UPDATE inventories SET {_SET.format(n="none")} '
        f"WHERE provider = %(of)s AND resource_class NOT IN (''{named})")
    _write(database, [*statements, *_MOVE], parameters)


@dataclasses.dataclass(frozen=True)
class Correction:
    """The right counters of a provider.

    :param lane: of the feed, as the provider was read
    :param position: likewise; each change of the counters changes it
    :param consumers: number of consumers
    :param wrong: used amounts and capacities by resource class, of rows that
        have others
    :param lost: used amounts by resource class, of rows that are missing
    """

    lane: int
    position: int
    consumers: int
    wrong: Mapping[str, tuple[int, int]]
    lost: Mapping[str, int]


_STATE = sa.select(
    _providers.c.consumers, _providers.c.lane, _providers.c.position,
).where(_providers.c.uuid == sa.bindparam('of'))

_TAKEN = sa.select(
    _allocations.c.resource_class, sa.func.sum(_allocations.c.amount),
).where(_allocations.c.provider == sa.bindparam('of')).group_by(
    _allocations.c.resource_class)

_CONSUMERS = sa.select(
    sa.func.count(_allocations.c.consumer.distinct()),
).where(_allocations.c.provider == sa.bindparam('of'))


def find_correction(
    connection: sa.Connection, provider: str
) -> Correction | None:
    """Return the right counters of a provider, or None if it has them.

    The position is read first. It has changed by the end of any concurrent
    transaction that the later reads can see.
    """
    of = {'of': provider}
    state = connection.execute(_STATE, of).one_or_none()
    if state is None:
        return None
    counted, lane, position = state
    taken = {resource: int(amount)
             for resource, amount in connection.execute(_TAKEN, of)}
    consumers = connection.execute(_CONSUMERS, of).scalar_one()
    inventory = queries.inventory(connection, provider) or {}
    [usage] = queries.usages_of(connection, [provider])
    wrong = {}
    for resource, has in sorted(inventory.items()):
        right = taken.get(resource, 0), has.capacity
        if right != (usage.used[resource], usage.capacity[resource]):
            wrong[resource] = right
    lost = {resource: taken[resource]
            for resource in sorted(taken.keys() - inventory.keys())}
    if not wrong and not lost and consumers == counted:
        return None
    return Correction(lane, position, consumers, wrong, lost)


def correct(
    database: session.Database, provider: str, correction: Correction
) -> None:
    """Write the right counters of a provider.

    :raises cellsched.exception.ConstraintViolated: the provider has changed
        since they were read
    :raises cellsched.db.guarded_statements.StatementRefused: likewise
    """
    parameters = _parameters(provider) | {
        'read_lane': correction.lane, 'read_position': correction.position}
    statements = [
        'UPDATE providers SET consumers = '
        f'{correction.consumers:d} WHERE uuid = %(of)s',
        # If the provider has changed, this violates its key.
        '''
INSERT INTO providers (uuid, consumers, lane, position)
SELECT uuid, 0, 0, 0 FROM providers WHERE uuid = %(of)s
AND NOT (lane = %(read_lane)s AND position = %(read_position)s)''']
    for n, (resource, (used, capacity)) in enumerate(
            correction.wrong.items()):
        parameters[f'wrong_{n}'] = resource
        statements.append(
            f'UPDATE inventories SET used = {used:d}, capacity = {capacity:d} '
            f'WHERE provider = %(of)s AND resource_class = %(wrong_{n})s')
    for n, (resource, used) in enumerate(correction.lost.items()):
        parameters[f'resource_{n}'] = resource
        statements.append(_INSERT.format(n=n, from_='none', used=used))
    _write(database, [*statements, *_MOVE], parameters)


def _parameters(provider: str) -> dict[str, Any]:
    """Return the parameters of each write."""
    return {'of': provider, 'lane': schema.FEED.lane(provider),
            **_values(base.Inventory(total=0), 'none')}


def _values(inventory: base.Inventory, suffix: Any) -> dict[str, Any]:
    return {f'{name}_{suffix}': getattr(inventory, name) for name in _FIELDS}


def _write(
    database: session.Database, statements: Iterable[str],
    parameters: Mapping[str, Any],
) -> None:
    """Execute statements as one transaction, in one round trip if possible."""
    dialect: Any = database.engine.dialect
    if dialect.name == 'postgresql':
        guarded_statements.execute(
            database, ';'.join(statements), parameters, is_script=True)
    elif dialect.name in mysql.DIALECTS and dialect.is_mariadb:
        guarded_statements.execute(
            database,
            mariadb.compound(*(f'{each};' for each in statements)), parameters)
    else:
        with database.writer() as connection:
            for each in statements:
                connection.execute(
                    sa.text(_PARAMETER.sub(r':\1', each)), parameters)
