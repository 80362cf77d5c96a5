# SPDX-License-Identifier: Apache-2.0
"""Queries for host aggregates."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
from typing import NamedTuple

from oslo_db import exception as db_exc
import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db import feed
from cellsched.db import statements
from cellsched import exception

_TABLE = models.aggregates
_HOSTS = models.aggregate_hosts
_METADATA = models.aggregate_metadata
_SHARED = models.shared_providers
_MAPPINGS = models.host_mappings

#: The most digits of an id that fits into its column.
_DIGITS_MAX = 9

_HOSTS_OF = (
    sa.select(_HOSTS.c.aggregate_id, _HOSTS.c.host)
    .where(statements.in_list(_HOSTS.c.aggregate_id)).order_by(_HOSTS.c.id))

_GROUPS_OF = sa.select(_HOSTS.c.aggregate_id, _HOSTS.c.host).where(
    statements.in_list(_HOSTS.c.host))

_THESE = sa.select(_TABLE.c.id, _TABLE.c.uuid, _TABLE.c.name).where(
    statements.in_list(_TABLE.c.id)).order_by(_TABLE.c.id)

_METADATA_OF = (
    sa.select(_METADATA.c.aggregate_id, _METADATA.c.key, _METADATA.c.value)
    .where(statements.in_list(_METADATA.c.aggregate_id))
    .order_by(_METADATA.c.id))

_CHANGED = sa.select(
    _TABLE.c.id, _TABLE.c.uuid, _TABLE.c.name,
    models.FEED.changed(_TABLE).label('changed'),
).order_by(_TABLE.c.id)

_CHANGE = sa.update(_TABLE).where(
    _TABLE.c.id == sa.bindparam('number')).values(
    {'updated_at': sa.bindparam('now'), **models.FEED.marks})


class AggregateRow(NamedTuple):
    """A host aggregate."""

    id: int
    uuid: str
    name: str
    metadata: dict[str, str]
    hosts: list[str]


class AggregateChanges(NamedTuple):
    """Changes of aggregates since a token; some may be repeated.

    :param token: the token for the next call
    :param complete: whether ``aggregates`` has all aggregates
    :param aggregates: the current state of the changed aggregates, by id
    :param ids: ids of all aggregates, or None if nothing changed
    """

    token: feed.Token
    complete: bool
    aggregates: Sequence[AggregateRow]
    ids: frozenset[int] | None


def changes(
    connection: sa.Connection, since: feed.Token | None = None
) -> AggregateChanges:
    """Return the aggregates that changed since a token.

    Without a token, or with a token of another database, all aggregates are
    returned. The feed does not see rows that another program writes.
    """
    # Read the token first: a change that is committed later is then repeated,
    # not missed.
    until = models.FEED.token(connection)
    if since == until:
        return AggregateChanges(until, False, [], None)
    if since is not None and not feed.follows(since, until):
        since = None
    rows = connection.execute(
        _CHANGED, feed.parameters(since or until)).all()
    return AggregateChanges(
        until, since is None, _filled(connection, [
            row for row in rows if since is None or row.changed]),
        frozenset(row.id for row in rows))


def of_hosts(
    connection: sa.Connection, hosts: Iterable[str]
) -> list[AggregateRow]:
    """Return the aggregates of some hosts, by id, without other hosts."""
    members = statements.read_groups(connection, _GROUPS_OF, hosts)
    found = {row.id: AggregateRow(row.id, row.uuid, row.name, {},
                                  members[row.id])
             for row in statements.read(connection, _THESE, sorted(members))}
    _fill_metadata(connection, found)
    return [found[number] for number in sorted(found)]


def hosts_kept_for(
    connection: sa.Connection, key: str, value: str, limit: int
) -> list[str]:
    """Return hosts of aggregates with a metadata value.

    :param key: prefix of the metadata key
    :param value: value of the key
    :param limit: the most hosts to return
    """
    return list(connection.execute(
        sa.select(_HOSTS.c.host).distinct()
        .join(_METADATA, _METADATA.c.aggregate_id == _HOSTS.c.aggregate_id)
        .where(_METADATA.c.key.startswith(key, autoescape=True),
               _METADATA.c.value == value)
        .order_by(_HOSTS.c.host).limit(limit)).scalars())


def list_all(connection: sa.Connection) -> list[AggregateRow]:
    """Return every aggregate, by id."""
    return _filled(connection, connection.execute(
        sa.select(_TABLE).order_by(_TABLE.c.id)).all())


def get(connection: sa.Connection, name: str) -> AggregateRow:
    """Return an aggregate by its id or else its name.

    :raises cellsched.exception.AggregateNotFound: neither exists
    """
    named = _TABLE.c.name == name
    if name.isascii() and name.isdecimal() and len(name) <= _DIGITS_MAX:
        named = sa.or_(named, _TABLE.c.id == int(name))
    found = _filled(connection, connection.execute(
        sa.select(_TABLE).where(named)).all())
    known = {aggregate.name: aggregate for aggregate in found}
    known.update((str(aggregate.id), aggregate) for aggregate in found)
    if name not in known:
        raise exception.AggregateNotFound(aggregate=name)
    return known[name]


def create(
    connection: sa.Connection, uuid: str, name: str, hosts: Iterable[str],
    metadata: Mapping[str, str], now: datetime.datetime,
) -> int:
    """Add an aggregate with its hosts and metadata; return its id.

    :raises cellsched.exception.AggregateExists: its name is taken
    """
    lane = models.FEED.move(connection, name)
    try:
        key = connection.execute(sa.insert(_TABLE).values(
            created_at=now, uuid=uuid, name=name, lane=lane,
            position=models.FEED.position(connection, lane),
        )).inserted_primary_key
    except db_exc.DBDuplicateEntry:
        raise exception.AggregateExists(name=name) from None
    assert key is not None
    _insert_hosts(connection, key[0], hosts, now)
    _insert_metadata(connection, key[0], metadata, now)
    return int(key[0])


def set_metadata(
    connection: sa.Connection, number: int,
    metadata: Mapping[str, str | None], now: datetime.datetime,
) -> None:
    """Change an aggregate's metadata; None removes a key.

    :raises cellsched.exception.AggregateNotFound: the aggregate is unknown
    """
    _note(connection, number, now)
    statements.write(connection, sa.delete(_METADATA).where(
        _METADATA.c.aggregate_id == number,
        statements.in_list(_METADATA.c.key)), metadata)
    _insert_metadata(connection, number, {
        key: value for key, value in metadata.items() if value is not None},
        now)


def add_hosts(
    connection: sa.Connection, number: int, hosts: Iterable[str],
    now: datetime.datetime,
) -> None:
    """Add hosts to an aggregate; hosts that it has already are ignored.

    :raises cellsched.exception.AggregateNotFound: the aggregate is unknown
    """
    _note(connection, number, now)
    _insert_hosts(connection, number, hosts, now)


def remove_hosts(
    connection: sa.Connection, number: int, hosts: Iterable[str],
    now: datetime.datetime,
) -> None:
    """Remove hosts from an aggregate; hosts that it lacks are ignored.

    :raises cellsched.exception.AggregateNotFound: the aggregate is unknown
    """
    _note(connection, number, now)
    statements.write(connection, sa.delete(_HOSTS).where(
        _HOSTS.c.aggregate_id == number,
        statements.in_list(_HOSTS.c.host)), hosts)


def forget_hosts(
    connection: sa.Connection, hosts: Iterable[str], now: datetime.datetime
) -> None:
    """Remove hosts that are no longer mapped from all aggregates.

    Otherwise another host of the same name would be a member.
    """
    members = statements.read_groups(connection, _GROUPS_OF, hosts)
    for number in sorted(members):
        remove_hosts(connection, number, members[number], now)


def delete(
    connection: sa.Connection, number: int, now: datetime.datetime
) -> None:
    """Delete an aggregate with its hosts and metadata.

    :raises cellsched.exception.AggregateNotFound: the aggregate is unknown
    :raises cellsched.exception.AggregateInUse: its hosts share a provider
    """
    _note(connection, number, now)
    # Adding a provider advances the same lane, so it cannot run meanwhile.
    shared = connection.execute(
        sa.select(_TABLE.c.name.label('aggregate'), _SHARED.c.name)
        .join(_SHARED, _SHARED.c.aggregate_uuid == _TABLE.c.uuid)
        .where(_TABLE.c.id == number).order_by(_SHARED.c.name)).first()
    if shared is not None:
        raise exception.AggregateInUse(
            aggregate=shared.aggregate, provider=shared.name)
    for column in _HOSTS.c.aggregate_id, _METADATA.c.aggregate_id, _TABLE.c.id:
        connection.execute(sa.delete(column.table).where(column == number))


def is_zone_in_cell(
    connection: sa.Connection, zone: str, cell_id: int
) -> bool:
    """Return whether a host of a cell is in an availability zone.

    The default zone, of hosts without a zone, is not known here.
    """
    return connection.execute(
        sa.select(_HOSTS.c.id)
        .join(_METADATA, _METADATA.c.aggregate_id == _HOSTS.c.aggregate_id)
        .join(_MAPPINGS, _MAPPINGS.c.host == _HOSTS.c.host)
        .where(_METADATA.c.key == 'availability_zone',
               _METADATA.c.value == zone, _MAPPINGS.c.cell_id == cell_id)
        .limit(1)).first() is not None


def values_by_host(
    connection: sa.Connection, key: str, hosts: Iterable[str]
) -> dict[str, set[str]]:
    """Return all metadata values of a key by host."""
    query = sa.select(_HOSTS.c.host, _METADATA.c.value).join(
        _METADATA, _METADATA.c.aggregate_id == _HOSTS.c.aggregate_id,
    ).where(_METADATA.c.key == key, statements.in_list(_HOSTS.c.host))
    return {host: set(values) for host, values in statements.read_groups(
        connection, query, hosts).items()}


def _note(
    connection: sa.Connection, number: int, now: datetime.datetime
) -> None:
    """Mark an aggregate as changed in the feed, which locks it."""
    lane = models.FEED.move(connection, str(number))
    if not connection.execute(_CHANGE, {
            'number': number, 'now': now, 'in_lane': lane}).rowcount:
        raise exception.AggregateNotFound(aggregate=number)


def _insert_hosts(
    connection: sa.Connection, number: int, hosts: Iterable[str],
    now: datetime.datetime,
) -> None:
    statements.insert_missing(connection, _HOSTS.c.host, [
        {'created_at': now, 'aggregate_id': number, 'host': host}
        for host in dict.fromkeys(hosts)])


def _insert_metadata(
    connection: sa.Connection, number: int, metadata: Mapping[str, str],
    now: datetime.datetime,
) -> None:
    if metadata:
        connection.execute(sa.insert(_METADATA), [
            {'created_at': now, 'aggregate_id': number, 'key': key,
             'value': value} for key, value in metadata.items()])


def _filled(
    connection: sa.Connection, rows: Sequence[sa.Row]
) -> list[AggregateRow]:
    """Return aggregates with their hosts and metadata."""
    hosts = statements.read_groups(
        connection, _HOSTS_OF, [row.id for row in rows])
    found = {row.id: AggregateRow(
        row.id, row.uuid, row.name, {}, hosts.get(row.id, []))
        for row in rows}
    _fill_metadata(connection, found)
    return list(found.values())


def _fill_metadata(
    connection: sa.Connection, found: Mapping[int, AggregateRow]
) -> None:
    for number, key, value in statements.read(connection, _METADATA_OF, found):
        found[number].metadata[key] = value
