# SPDX-License-Identifier: Apache-2.0
"""Queries for builds that a compute host was told of and has not ended.

What it was told stays here, in the database of its cell, until the server is
there, in ERROR or deleted. So it can be told again, or another host be told.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db import statements
from cellsched import objects

_TABLE = models.build_casts

_ONE = sa.select(_TABLE).where(
    _TABLE.c.instance_uuid == sa.bindparam('uuid'))

_DROP = sa.delete(_TABLE).where(statements.in_list(_TABLE.c.instance_uuid))

_TAKE = (
    sa.update(_TABLE).where(statements.in_list(_TABLE.c.instance_uuid))
    .values(cast_at=sa.bindparam('now')))

_AGAIN = (
    sa.update(_TABLE)
    .where(_TABLE.c.instance_uuid == sa.bindparam('of'),
           _TABLE.c.casts == sa.bindparam('was'))
    .values(casts=_TABLE.c.casts + 1, cast_at=sa.bindparam('now')))


@dataclasses.dataclass(frozen=True)
class BuildCast:
    """A build that a compute host was told of.

    :param host: the host that was told
    :param message: the arguments of ``build_and_run_instance`` but for the
        instance, as JSON has them
    :param cast_at: when it was told last, in seconds since the epoch
    :param casts: how often it was told
    """

    instance_uuid: str
    host: str
    node: str
    message: str
    cast_at: float
    casts: int = 1


def create(connection: sa.Connection, casts: Iterable[BuildCast]) -> None:
    """Add builds; one that is there already stays as it is."""
    rows = [dataclasses.asdict(each) for each in casts]
    if rows:
        statements.insert_missing(connection, _TABLE.c.instance_uuid, rows)


def replace(connection: sa.Connection, cast: BuildCast) -> None:
    """Keep what the next host is told of a build, in place of the last."""
    drop(connection, [cast.instance_uuid])
    connection.execute(sa.insert(_TABLE), dataclasses.asdict(cast))


def get(connection: sa.Connection, uuid: str) -> BuildCast | None:
    """Return what was told of a build, or None."""
    row = connection.execute(_ONE, {'uuid': uuid}).first()
    return None if row is None else _from_row(row)


def is_any_before(connection: sa.Connection, before: float) -> bool:
    """Return whether there are builds that were told of before a time.

    :param before: in seconds since the epoch
    """
    return connection.execute(
        sa.select(sa.literal(1)).select_from(_TABLE)
        .where(_TABLE.c.cast_at < before).limit(1)).first() is not None


def take_before(
    connection: sa.Connection, before: float, now: float, limit: int
) -> list[BuildCast]:
    """Return builds that were told of before a time, the oldest first.

    They count as told of now, so that of several that look each is given
    others. What somebody has locked is left out.

    :param before: in seconds since the epoch
    """
    taken = [_from_row(row) for row in connection.execute(
        sa.select(_TABLE).where(_TABLE.c.cast_at < before)
        .order_by(_TABLE.c.cast_at).limit(limit)
        .with_for_update(skip_locked=True))]
    for chunk in statements.chunks(each.instance_uuid for each in taken):
        connection.execute(_TAKE, {'these': chunk, 'now': now})
    return taken


def tell_again(
    connection: sa.Connection, cast: BuildCast, now: float
) -> bool:
    """Count one more telling; of several that would tell again, one may."""
    return bool(connection.execute(_AGAIN, {
        'of': cast.instance_uuid, 'was': cast.casts, 'now': now}).rowcount)


def drop(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Forget builds that ended; those that are not there are left out."""
    for chunk in statements.chunks(uuids):
        connection.execute(_DROP, {'these': chunk})


def _from_row(row: sa.Row[Any]) -> BuildCast:
    return BuildCast(
        instance_uuid=row.instance_uuid, host=row.host, node=row.node,
        message=row.message, cast_at=row.cast_at, casts=row.casts)


@dataclasses.dataclass(frozen=True)
class BuildMessage:
    """The arguments of ``build_and_run_instance`` but for the instance.

    :param chosen: the place where it is to be built
    :param host_list: the places that are left to try if this one fails
    :param filter_properties: what goes along from one try to the next
    """

    chosen: objects.Selection
    host_list: Sequence[objects.Selection]
    request_spec: objects.RequestSpec | None
    filter_properties: Mapping[str, Any]

    @classmethod
    def first(
        cls, selections: Sequence[objects.Selection],
        request_spec: objects.RequestSpec | None,
    ) -> 'BuildMessage':
        """Return the message for the first of the places to try."""
        chosen, *alternates = selections
        return cls(chosen, alternates, request_spec, {
            'retry': {'num_attempts': 1,
                      'hosts': [[chosen.service_host, chosen.nodename]]},
            'limits': chosen.to_dict()['limits']})

    @classmethod
    def read(cls, cast: BuildCast) -> 'BuildMessage':
        """Return what was kept in a cell."""
        kept = jsonutils.loads(cast.message)
        spec = kept['request_spec']
        chosen, *host_list = (
            objects.Selection.obj_from_primitive(each)
            for each in kept['selections'])
        return cls(
            chosen, host_list,
            spec and objects.RequestSpec.obj_from_primitive(spec),
            kept['filter_properties'])

    def kept(self, uuid: str, now: float) -> BuildCast:
        """Return it as a cell keeps it.

        :param now: in seconds since the epoch
        """
        return BuildCast(
            instance_uuid=uuid, host=self.chosen.service_host,
            node=self.chosen.nodename, cast_at=now,
            message=jsonutils.dumps({
                'selections': [each.obj_to_primitive() for each
                               in (self.chosen, *self.host_list)],
                'request_spec': (self.request_spec
                                 and self.request_spec.obj_to_primitive()),
                'filter_properties': self.filter_properties}))

    def arguments(self) -> dict[str, Any]:
        """Return what the RPC client is called with, by name."""
        return {
            'host': self.chosen.service_host, 'node': self.chosen.nodename,
            'request_spec': self.request_spec,
            'filter_properties': self.filter_properties,
            'limits': self.filter_properties['limits'],
            'host_list': list(self.host_list)}

    @property
    def retry(self) -> Mapping[str, Any] | None:
        """The tries so far, or None if nothing else may be tried."""
        return self.filter_properties.get('retry') or None

    @property
    def tried(self) -> int | None:
        """The number of this try, or None where nobody said."""
        return None if self.retry is None else self.retry['num_attempts']

    @property
    def requested_networks(self) -> Any:
        """The networks that the user wished for, or None."""
        return None if self.request_spec is None else self.request_spec.get(
            'requested_networks')

    def failed(self, reason: Exception) -> dict[str, Any]:
        """Return the filter properties for the next try."""
        return {**self.filter_properties, 'retry': {
            **(self.retry or {}), 'exc_reason': str(reason)}}
