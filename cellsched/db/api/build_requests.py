# SPDX-License-Identifier: Apache-2.0
"""Queries for build requests, accepted builds without a cell, and their specs.

A row that this release cannot read affects no other row.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
from typing import Any
from typing import NamedTuple

from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db import statements
from cellsched import exception
from cellsched import objects


#: Fields in which the instances of a batch differ.
_OWN = ('uuid', 'display_name', 'launch_index')


#: Limits of the project and of the user, each by resource, under the keys
#: ``project`` and ``user``.
RecordedQuota = Mapping[str, Mapping[str, int]]


#: Key of the trace beside the serialized instance. Releases that do not know
#: it ignore it.
_TRACE = 'cellsched.traceparent'


class StoredRequest(NamedTuple):
    """A request, with the primitives of its objects.

    :param trace: the span that accepted it, as ``traceparent`` of W3C; may be
        empty. A change by the user removes it
    """

    uuid: str
    project_id: str
    instance: Mapping[str, Any]
    tags: Mapping[str, Any] | None = None
    block_device_mappings: Mapping[str, Any] | None = None
    buried: bool = False
    trace: str = ''


class LeasedRequest(NamedTuple):
    """A leased request with its request spec.

    :param min_count: if fewer of its batch can be built, none is built
    :param tries: number of attempts, including this one
    :param revision: number of changes by its user
    :param broken: why this release can never build it, or None. A broken
        request has only the values of its columns, and its spec has only the
        owner
    :param quota: the limits under which it was accepted, if recorded
    :param alike: a text that requests with equal specs share; empty if it is
        unknown
    """

    request: objects.BuildRequest
    spec: objects.RequestSpec
    min_count: int
    tries: int = 1
    revision: int = 0
    broken: exception.RequestUnreadable | None = None
    quota: RecordedQuota | None = None
    alike: str = ''


def stored_form(request: objects.BuildRequest) -> StoredRequest:
    """Return a request as primitives."""
    def primitive(name: str) -> dict[str, Any] | None:
        kept = request.get(name)
        return None if kept is None else kept.obj_to_primitive()

    return StoredRequest(
        request.instance_uuid, request.project_id,
        request.instance.obj_to_primitive(), primitive('tags'),
        primitive('block_device_mappings'), request.get('buried', False))


def texts(requested: StoredRequest) -> dict[str, Any]:
    """Return the columns that contain serialized objects."""
    instance = requested.instance
    if requested.trace:
        instance = {**instance, _TRACE: requested.trace}
    return {'instance': jsonutils.dumps(instance),
            'tags': requested.tags and jsonutils.dumps(requested.tags),
            'block_device_mappings': requested.block_device_mappings
            and jsonutils.dumps(requested.block_device_mappings)}


def leased(rows: Iterable[sa.Row[Any]]) -> list[LeasedRequest]:
    """Return requests with their request specs.

    An unreadable request is ``broken`` and does not affect the rest.
    """
    instances = _Alike(objects.Instance, *_OWN)
    specs = _Alike(objects.RequestSpec, 'instance_uuid')
    return [_leased(row, instances, specs) for row in rows]


def from_rows(rows: Iterable[sa.Row[Any]]) -> list[objects.BuildRequest]:
    """Return the requests of rows.

    An unreadable request has the values of the columns and a ``failure``.
    """
    instances = _Alike(objects.Instance, *_OWN)
    return [_request(row, instances)[0] for row in rows]


def batch_of(row: sa.Row[Any]) -> str:
    """Return the key of a request's batch; unique if the row has none."""
    try:
        found = jsonutils.loads(row.instance)['nova_object.data'].get(
            'reservation_id')
    except objects.READ_ERRORS:
        found = None
    return found if isinstance(found, str) else str(row.instance_uuid)


def trace_of(row: sa.Row[Any]) -> str:
    """Return the span that accepted a request; empty if none is stored."""
    try:
        found = jsonutils.loads(row.instance).get(_TRACE)
    except objects.READ_ERRORS:
        found = None
    return found if isinstance(found, str) else ''


def _leased(
    row: sa.Row[Any], instances: '_Alike', specs: '_Alike'
) -> LeasedRequest:
    request, broken = _request(row, instances)
    spec = objects.RequestSpec(instance_uuid=row.instance_uuid)
    if row.spec is None:
        broken = broken or unreadable(
            row.instance_uuid, 'request specification', 'is missing')
    else:
        try:
            spec = specs.read(row.spec)
        except objects.READ_ERRORS as exc:
            broken = broken or unreadable(
                row.instance_uuid, 'request specification', 'cannot be read',
                exc)
    quota = None
    try:
        quota = _limits(row.quota) if row.quota else None
    except objects.READ_ERRORS as exc:
        broken = broken or unreadable(
            row.instance_uuid, 'quota limits', 'cannot be read', exc)
    return LeasedRequest(
        request=request, min_count=row.min_count, tries=row.lease_count,
        revision=row.revision, spec=spec, broken=broken,
        quota=quota,
        alike=(row.spec or '').replace(row.instance_uuid, ''))


def _limits(text: str) -> RecordedQuota:
    return {owner: {name: int(limit) for name, limit in limits.items()}
            for owner, limits in jsonutils.loads(text).items()}


def _request(
    row: sa.Row[Any], instances: '_Alike'
) -> tuple[objects.BuildRequest, exception.RequestUnreadable | None]:
    kept: dict[str, Any] = dict(
        id=row.id, instance_uuid=row.instance_uuid, project_id=row.project_id,
        created_at=row.created_at, updated_at=row.updated_at,
        buried=bool(row.buried), failure=row.failure)
    try:
        return objects.BuildRequest.of(
            **kept, instance=instances.read(row.instance),
            tags=_object(objects.TagList, row.tags),
            block_device_mappings=_object(
                objects.BlockDeviceMappingList,
                row.block_device_mappings)), None
    except objects.READ_ERRORS as exc:
        broken = unreadable(
            row.instance_uuid, 'build request', 'cannot be read', exc)
    kept['failure'] = row.failure or broken.format_message()
    return objects.BuildRequest.of(
        **kept, tags=None, block_device_mappings=None,
        instance=objects.Instance(
            uuid=row.instance_uuid, project_id=row.project_id,
            vm_state='building', task_state='scheduling',
            created_at=row.created_at)), broken


def read_spec(
    connection: sa.Connection, uuid: str
) -> objects.RequestSpec:
    """Return the request spec of a server.

    :raises cellsched.exception.InstanceMappingNotFound: it has none
    :raises cellsched.exception.RequestUnreadable: it cannot be read
    """
    primitive = get_spec(connection, uuid)
    if primitive is None:
        raise exception.InstanceMappingNotFound(uuid=uuid)
    try:
        return objects.RequestSpec.obj_from_primitive(primitive)
    except objects.READ_ERRORS as exc:
        raise unreadable(
            uuid, 'request specification', 'cannot be read', exc)


def unreadable(
    uuid: str, what: str, problem: str, cause: Exception | None = None
) -> exception.RequestUnreadable:
    """Return why a server cannot be built, with the cause for operators.

    A record of a later major version is that of another release.
    """
    kind = exception.RequestUnreadable
    if objects.is_newer(cause):
        kind = exception.RequestTooNew
        problem = 'was written by a later release'
    broken = kind(uuid=uuid, what=what, problem=problem)
    broken.__cause__ = cause
    return broken


class _Alike:
    """Reads many objects that differ in a few fields.

    The texts of one batch are equal except for these fields: parsing a text
    takes ten times as long as comparing it.

    :param own: the fields that differ; they have plain values
    """

    def __init__(self, kind: type[Any], *own: str) -> None:
        self._kind = kind
        self._own = own
        #: The fields that differ, in order, and the texts around their values.
        self._names: Sequence[str] = ()
        self._literals: Sequence[str] = ()
        self._last: Any = None

    def read(self, text: str) -> Any:
        """Return an object from its text."""
        own = self._differences(text)
        if own is not None:
            return self._last.but(**own)
        primitive = jsonutils.loads(text)
        made = self._kind.obj_from_primitive(primitive)
        # Cache it only now: the text may be unreadable.
        self._last = made
        self._split(text, primitive['nova_object.data'])
        return made

    def _split(self, text: str, data: Mapping[str, Any]) -> None:
        """Split a text at the values of the fields that differ."""
        fields = {name: f'"{name}": {jsonutils.dumps(data[name])}'
                  for name in self._own if name in data}
        self._names = sorted(
            fields, key=lambda name: text.find(fields[name]))
        literals, end = [], 0
        for name in self._names:
            if text.count(fields[name]) != 1:
                self._literals = ()
                return
            begin = text.find(fields[name])
            literals.append(f'{text[end:begin]}"{name}": ')
            end = begin + len(fields[name])
        self._literals = [*literals, text[end:]]

    def _differences(self, text: str) -> dict[str, Any] | None:
        """Return the fields that differ; None if other parts differ, too."""
        if not self._literals or not text.startswith(self._literals[0]):
            return None
        values, end = {}, len(self._literals[0])
        for name, literal in zip(self._names, self._literals[1:]):
            begin, end = end, text.find(literal, end)
            if end < 0:
                return None
            try:
                values[name] = jsonutils.loads(text[begin:end])
            except ValueError:
                return None
            end += len(literal)
        return values if end == len(text) else None


def _object(kind: type[objects.TagList | objects.BlockDeviceMappingList],
            text: str | None) -> Any:
    return None if text is None else kind.obj_from_primitive(
        jsonutils.loads(text))


_TABLE = models.build_requests
_SPECS = models.request_specs

_THESE = statements.in_list(_TABLE.c.instance_uuid)

# Without the hint, MariaDB would search the index of lease_expires_at and lock
# unrelated rows.
_LEASE = (
    sa.update(_TABLE)
    .where(_THESE,
           sa.func.coalesce(_TABLE.c.lease_expires_at, 0.0)
           <= sa.bindparam('now'))
    .values(lease_owner=sa.bindparam('owner'),
            lease_expires_at=sa.bindparam('until'),
            lease_count=_TABLE.c.lease_count + 1))

_LEASED = (
    sa.select(_TABLE, _SPECS.c.spec)
    .outerjoin(_SPECS, _SPECS.c.instance_uuid == _TABLE.c.instance_uuid)
    .where(_THESE,
           _TABLE.c.lease_owner == sa.bindparam('owner'))
    .order_by(_TABLE.c.id))

#: Locks the requests in one order, as the other statements do.
_LOCKED = (
    sa.select(_TABLE.c.id).where(_THESE).order_by(_TABLE.c.instance_uuid)
    .with_for_update().cte('locked'))

_UPDATED = _LEASE.where(
    _TABLE.c.id.in_(sa.select(_LOCKED.c.id))).returning(_TABLE).cte('updated')

#: Leases and returns requests in one statement of PostgreSQL.
_LEASE_AND_READ = (
    sa.select(_UPDATED, _SPECS.c.spec)
    .outerjoin(_SPECS, _SPECS.c.instance_uuid == _UPDATED.c.instance_uuid)
    .order_by(_UPDATED.c.id))

_RENEW = (
    sa.update(_TABLE)
    .where(_THESE,
           statements.in_list(_TABLE.c.lease_owner, 'owners'))
    .values(lease_expires_at=sa.bindparam('until')))

_PROJECTS = sa.select(
    _TABLE.c.instance_uuid, _TABLE.c.project_id).where(_THESE)

_INSTANCES = sa.select(
    _TABLE.c.instance_uuid, _TABLE.c.instance).where(_THESE)

_HELD = statements.by_index(
    sa.select(_TABLE.c.instance_uuid, _TABLE.c.revision,
              _TABLE.c.lease_owner)
    .where(_THESE),
    _TABLE.c.instance_uuid).with_for_update()

_ONE = sa.select(_TABLE).where(_TABLE.c.instance_uuid == sa.bindparam('uuid'))

_MANY = (
    sa.select(_TABLE, _SPECS.c.spec)
    .outerjoin(_SPECS, _SPECS.c.instance_uuid == _TABLE.c.instance_uuid)
    .where(_THESE)
    .order_by(_TABLE.c.id))


def create(
    connection: sa.Connection, requests: Iterable[objects.BuildRequest],
    now: datetime.datetime, min_count: int = 1,
    quota: RecordedQuota | None = None, trace: str = '',
) -> None:
    """Add the requests of one batch.

    :param min_count: if fewer can be built, none is built
    :param quota: the limits that hold when they are built; None for those of
        the conductor
    :param trace: see :class:`StoredRequest`
    """
    create_all(connection, [
        stored_form(each)._replace(trace=trace)
        for each in requests], now, min_count, quota)


def create_all(
    connection: sa.Connection, requested: Iterable[StoredRequest],
    now: datetime.datetime, min_count: int = 1,
    quota: RecordedQuota | None = None,
) -> None:
    """Add the requests of one batch, given as primitives.

    The parameters are those of :func:`create`.
    """
    recorded = None if quota is None else jsonutils.dumps(quota)
    statements.insert_all(connection, _TABLE, [
        {'created_at': now, 'instance_uuid': each.uuid,
         'project_id': each.project_id, **texts(each),
         'buried': each.buried, 'min_count': min_count, 'lease_count': 0,
         'quota': recorded}
        for each in requested])


def get(
    connection: sa.Connection, uuid: str, lock: bool = False
) -> objects.BuildRequest | None:
    """Return the request of an instance, or None.

    :param lock: whether to lock the row until the transaction ends
    """
    row = connection.execute(
        _ONE.with_for_update() if lock else _ONE, {'uuid': uuid}).first()
    return None if row is None else from_rows([row])[0]


def read(
    connection: sa.Connection, uuids: Iterable[str]
) -> list[LeasedRequest]:
    """Return the current requests of instances, without deleted ones."""
    return leased(list(statements.read(connection, _MANY, uuids)))


def revise(
    connection: sa.Connection, uuid: str,
    change: Callable[[objects.BuildRequest], None],
) -> bool:
    """Change a request on behalf of its user, and increment its revision.

    A deletion that names an earlier revision then fails.

    :param change: called with the request, changes it
    :returns: whether the request exists
    :raises cellsched.exception.RequestUnreadable: the request cannot be parsed
    """
    row = connection.execute(_ONE.with_for_update(), {'uuid': uuid}).first()
    if row is None:
        return False
    request, broken = _request(row, _Alike(objects.Instance))
    if broken is not None:
        raise broken
    change(request)
    connection.execute(
        sa.update(_TABLE).where(_TABLE.c.id == row.id)
        .values(**texts(stored_form(request)),
                revision=row.revision + 1))
    return True


def explain(
    connection: sa.Connection, uuids: Iterable[str], failure: str,
    owner: str | None = None, again: bool = True,
) -> None:
    """Store why requests failed that cell0 could not record.

    :param owner: only requests that this owner still leases
    :param again: whether to replace an earlier reason
    """
    own = [] if owner is None else [_TABLE.c.lease_owner == owner]
    if not again:
        own.append(_TABLE.c.failure.is_(None))
    for chunk in statements.chunks(uuids):
        chunk = statements.lock(
            connection, _TABLE.c.instance_uuid, chunk, *own)
        connection.execute(
            sa.update(_TABLE).where(_THESE).values(failure=failure),
            {'these': chunk})


def list_all(
    connection: sa.Connection, project_ids: Collection[str] | None = None,
    uuids: Collection[str] | None = None,
) -> list[objects.BuildRequest]:
    """Return the requests of projects and instances; None means all."""
    query = (sa.select(_TABLE).where(_TABLE.c.instance_uuid.is_not(None))
             .order_by(_TABLE.c.id))
    if project_ids is not None:
        query = query.where(_TABLE.c.project_id.in_(project_ids))
    if uuids is not None:
        query = query.where(_TABLE.c.instance_uuid.in_(uuids))
    return from_rows(connection.execute(query))


def lease(
    connection: sa.Connection, uuids: Iterable[str], owner: str, now: float,
    expires_at: float,
) -> list[LeasedRequest]:
    """Lease requests that have no valid lease; return the leased ones.

    A missing request was deleted by its user. On PostgreSQL it is one
    statement, which needs no transaction.

    :param owner: the new owner; unique for each attempt
    :param now: seconds since the epoch
    """
    rows: list[sa.Row[Any]] = []
    for chunk in statements.chunks(uuids):
        lease_of = {
            'these': chunk, 'now': now, 'owner': owner, 'until': expires_at}
        if connection.dialect.name == 'postgresql':
            rows.extend(connection.execute(_LEASE_AND_READ, lease_of))
            continue
        if len(chunk) > 1:
            statements.lock(connection, _TABLE.c.instance_uuid, chunk)
        connection.execute(_LEASE, lease_of)
        rows.extend(connection.execute(
            _LEASED, {'these': chunk, 'owner': owner}))
    return leased(rows)


def unlease(
    connection: sa.Connection, uuids: Iterable[str], owner: str, now: float,
    tried: bool = False,
) -> None:
    """End the leases of an owner, so that any conductor can lease at once.

    The requests have no owner then, so a late renewal does not extend the
    leases.

    :param now: seconds since the epoch
    :param tried: whether the owner attempted to build the requests
    """
    for chunk in statements.chunks(uuids):
        chunk = statements.lock(
            connection, _TABLE.c.instance_uuid, chunk,
            _TABLE.c.lease_owner == owner)
        connection.execute(
            sa.update(_TABLE).where(_THESE)
            .values(lease_owner=None, lease_expires_at=now,
                    lease_count=_TABLE.c.lease_count - (0 if tried else 1)),
            {'these': chunk})


def projects(
    connection: sa.Connection, uuids: Iterable[str]
) -> dict[str, str]:
    """Return the projects of requests, by instance."""
    return {uuid: project for uuid, project in statements.read(
        connection, _PROJECTS, uuids)}


def traces(connection: sa.Connection, uuids: Iterable[str]) -> dict[str, str]:
    """Return the spans that accepted requests, by instance."""
    return {row.instance_uuid: trace_of(row)
            for row in statements.read(connection, _INSTANCES, uuids)}


def present(connection: sa.Connection, uuids: Iterable[str]) -> set[str]:
    """Return the instances that have a request."""
    return statements.find(connection, _TABLE.c.instance_uuid, uuids)


def renew(
    connection: sa.Connection, owners: Mapping[str, str], expires_at: float
) -> set[str]:
    """Extend leases; return the requests that their owners still lease.

    The rows stay locked until the transaction ends, so no other owner can
    lease them: writes of the same transaction are fenced.

    :param owners: the expected owner, by instance
    """
    own = [*owners] if len(owners) == 1 else [*held(connection, owners)]
    # Fewer are renewed if the request is gone or has another owner.
    renewed = extend_leases(connection, own, owners, expires_at)
    return set(own) if renewed == len(own) else set()


def extend_leases(
    connection: sa.Connection, uuids: Iterable[str],
    owners: Mapping[str, str], expires_at: float,
) -> int:
    """Extend leases that their owners still have; return their number."""
    return sum(
        connection.execute(_RENEW, {
            'these': chunk, 'until': expires_at,
            'owners': sorted({owners[uuid] for uuid in chunk})}).rowcount
        for chunk in statements.chunks(uuids))


def mark_unburied(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Mark locked requests as removed from cell0."""
    statements.write(
        connection, sa.update(_TABLE).where(_THESE).values(buried=False),
        uuids)


def held(
    connection: sa.Connection, owners: Mapping[str, str | None]
) -> dict[str, int]:
    """Lock requests with these owners; return their revisions.

    :param owners: the expected owner, by instance; None accepts any owner and
        no owner
    """
    return {row.instance_uuid: row.revision
            for row in statements.read(connection, _HELD, owners)
            if owners[row.instance_uuid] in (None, row.lease_owner)}


def delete(
    connection: sa.Connection, uuids: Iterable[str], owner: str | None = None,
    revisions: Mapping[str, int] | None = None,
) -> set[str]:
    """Delete requests; return the ones that this call deleted.

    The caller that deleted a request decides the outcome of the instance.

    :param owner: delete only requests that this owner still leases
    :param revisions: delete only requests with this revision; the default is
        the revision of an unchanged request
    """
    own = [] if owner is None else [_TABLE.c.lease_owner == owner]
    if revisions is None:
        return statements.delete_counted(
            connection, _TABLE.c.instance_uuid, uuids, *own)
    alike: dict[int, list[str]] = {}
    for uuid in uuids:
        alike.setdefault(revisions.get(uuid, 0), []).append(uuid)
    return {uuid for revision, those in sorted(alike.items())
            for uuid in statements.delete_counted(
                connection, _TABLE.c.instance_uuid, those, *own,
                _TABLE.c.revision == revision)}


def drop(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Delete requests that :func:`held` has locked."""
    statements.delete_locked(connection, _TABLE.c.instance_uuid, uuids)


def create_specs(
    connection: sa.Connection, specs: Iterable[Mapping[str, Any]],
    now: datetime.datetime,
) -> None:
    """Add request specs, given as primitives."""
    statements.insert_all(connection, _SPECS, [
        {'created_at': now,
         'instance_uuid': spec['nova_object.data']['instance_uuid'],
         'spec': jsonutils.dumps(spec)}
        for spec in specs])


def get_spec(connection: sa.Connection, uuid: str) -> dict[str, Any] | None:
    """Return the request spec of an instance as a primitive, or None.

    One that is not JSON is empty.
    """
    spec = connection.execute(
        sa.select(_SPECS.c.spec).where(_SPECS.c.instance_uuid == uuid)
    ).scalar()
    try:
        return None if spec is None else jsonutils.loads(spec)
    except (RecursionError, ValueError):
        return {}


def save_spec(
    connection: sa.Connection, uuid: str, spec: Mapping[str, Any],
    now: datetime.datetime,
) -> None:
    """Replace the request spec of an instance, given as a primitive."""
    connection.execute(
        sa.update(_SPECS).where(_SPECS.c.instance_uuid == uuid)
        .values(spec=jsonutils.dumps(spec), updated_at=now))
