# SPDX-License-Identifier: Apache-2.0
"""Build messages that were cast to compute hosts and are unfinished.

The message is stored in the cell's database until the server is ACTIVE, in
ERROR or deleted. The conductor can therefore cast it again, or to another
host.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any
from typing import NamedTuple

from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db import statements
from cellsched import exception
from cellsched import objects

_TABLE = models.build_casts

_ONE = sa.select(_TABLE).where(_TABLE.c.instance_uuid == sa.bindparam('uuid'))

_DROP = sa.delete(_TABLE).where(statements.in_list(_TABLE.c.instance_uuid))

_TAKE = (
    sa.update(_TABLE).where(statements.in_list(_TABLE.c.instance_uuid))
    .values(cast_at=sa.bindparam('now')))

_AGAIN = (
    sa.update(_TABLE)
    .where(_TABLE.c.instance_uuid == sa.bindparam('of'),
           _TABLE.c.casts == sa.bindparam('was'))
    .values(casts=_TABLE.c.casts + 1, cast_at=sa.bindparam('now')))

_TAKE_BACK = (
    sa.update(_TABLE)
    .where(_TABLE.c.instance_uuid == sa.bindparam('of'),
           _TABLE.c.casts == sa.bindparam('was') + 1)
    .values(casts=sa.bindparam('was'), cast_at=sa.bindparam('now')))


@dataclasses.dataclass(frozen=True)
class BuildCast:
    """A build message that was cast to a host.

    :param host: the host
    :param message: the arguments of ``build_and_run_instance`` without the
        instance, in JSON
    :param cast_at: time of the last cast, in seconds since the epoch
    :param casts: number of casts
    """

    instance_uuid: str
    host: str
    node: str
    message: str
    cast_at: float
    casts: int = 1


def create(connection: sa.Connection, casts: Iterable[BuildCast]) -> None:
    """Add messages; an existing message of an instance is kept."""
    rows = [dataclasses.asdict(each) for each in casts]
    if rows:
        statements.insert_missing(connection, _TABLE.c.instance_uuid, rows)


def replace(connection: sa.Connection, cast: BuildCast) -> None:
    """Replace the message of a build by the one for the next host."""
    drop(connection, [cast.instance_uuid])
    connection.execute(sa.insert(_TABLE), dataclasses.asdict(cast))


def get(connection: sa.Connection, uuid: str) -> BuildCast | None:
    """Return the message of a build, or None."""
    row = connection.execute(_ONE, {'uuid': uuid}).first()
    return None if row is None else _from_row(row)


def is_any_before(connection: sa.Connection, before: float) -> bool:
    """Return whether a message was last cast before a time.

    :param before: in seconds since the epoch
    """
    return connection.execute(
        sa.select(sa.literal(1)).select_from(_TABLE)
        .where(_TABLE.c.cast_at < before).limit(1)).first() is not None


def take_before(
    connection: sa.Connection, before: float, now: float, limit: int
) -> list[BuildCast]:
    """Return messages that were last cast before a time, the oldest first.

    Their time is set to now, so that several conductors get different
    messages. Locked rows are skipped.

    :param before: in seconds since the epoch
    """
    taken = [_from_row(row) for row in connection.execute(
        sa.select(_TABLE).where(_TABLE.c.cast_at < before)
        .order_by(_TABLE.c.cast_at).limit(limit)
        .with_for_update(skip_locked=True))]
    statements.write(
        connection, _TAKE, [each.instance_uuid for each in taken], now=now)
    return taken


def tell_again(connection: sa.Connection, cast: BuildCast, now: float) -> bool:
    """Count another cast; of several callers, one succeeds."""
    return bool(connection.execute(_AGAIN, {
        'of': cast.instance_uuid, 'was': cast.casts, 'now': now}).rowcount)


def take_back(
    connection: sa.Connection, cast: BuildCast, cast_at: float
) -> None:
    """Undo :func:`tell_again` for a message that could not be sent.

    :param cast_at: the time of the last cast, in seconds since the epoch
    """
    connection.execute(_TAKE_BACK, {
        'of': cast.instance_uuid, 'was': cast.casts, 'now': cast_at})


def dropping(uuids: sa.Select[Any]) -> sa.Delete:
    """Return the statement that deletes the messages of selected servers."""
    return sa.delete(_TABLE).where(_TABLE.c.instance_uuid.in_(uuids))


def drop(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Delete the messages of finished builds; missing ones are ignored."""
    statements.write(connection, _DROP, uuids)


def _from_row(row: sa.Row[Any]) -> BuildCast:
    return BuildCast(
        instance_uuid=row.instance_uuid, host=row.host, node=row.node,
        message=row.message, cast_at=row.cast_at, casts=row.casts)


class BuildMessage(NamedTuple):
    """The arguments of ``build_and_run_instance`` without the instance.

    :param chosen: the selection for this attempt
    :param host_list: the alternates for later attempts
    :param filter_properties: data that is passed from attempt to attempt
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
        """Return the message for the first selection."""
        chosen, *alternates = selections
        return cls(chosen, alternates, request_spec, {
            'retry': {'num_attempts': 1,
                      'hosts': [[chosen.service_host, chosen.nodename]]},
            'limits': chosen.to_dict()['limits']})

    @classmethod
    def read(cls, cast: BuildCast) -> 'BuildMessage':
        """Return the message from the form stored in a cell.

        A host or a node that got another name since has its present one.
        """
        kept = jsonutils.loads(cast.message)
        spec = kept['request_spec']
        chosen, *host_list = (
            objects.Selection.obj_from_primitive(each)
            for each in kept['selections'])
        chosen.service_host, chosen.nodename = cast.host, cast.node
        return cls(
            chosen, host_list,
            spec and objects.RequestSpec.obj_from_primitive(spec),
            kept['filter_properties'])

    def kept(self, uuid: str, now: float) -> BuildCast:
        """Return the form that is stored in a cell.

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
        """Return the keyword arguments for the RPC client."""
        return {
            'host': self.chosen.service_host, 'node': self.chosen.nodename,
            'request_spec': self.request_spec,
            'filter_properties': self.filter_properties,
            'limits': self.filter_properties['limits'],
            'host_list': list(self.host_list),
            'node_uuid': self.chosen.get('compute_node_uuid')}

    @property
    def retry(self) -> Mapping[str, Any] | None:
        """The attempts so far, or None if no other host may be tried."""
        return self.filter_properties.get('retry') or None

    @property
    def tried(self) -> int | None:
        """The number of this attempt, or None if it is unknown."""
        return None if self.retry is None else self.retry['num_attempts']

    @property
    def requested_networks(self) -> Any:
        """The networks that the user requested, or None."""
        return None if self.request_spec is None else self.request_spec.get(
            'requested_networks')

    def failed(self, reason: Exception) -> dict[str, Any]:
        """Return the filter properties for the next attempt."""
        return {**self.filter_properties, 'retry': {
            **(self.retry or {}), 'exc_reason': exception.user_text(reason)}}
