# SPDX-License-Identifier: Apache-2.0
"""Conversion of build requests between rows and objects."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any
from typing import NamedTuple

from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.db.api import request_specs
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


@dataclasses.dataclass(frozen=True)
class LeasedRequest:
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


def from_row(row: sa.Row[Any]) -> objects.BuildRequest:
    """Return the request of a row.

    An unreadable request has the values of the columns and a ``failure``.
    """
    return from_rows([row])[0]


def from_rows(rows: Iterable[sa.Row[Any]]) -> list[objects.BuildRequest]:
    """Return the requests of rows, each as :func:`from_row` does."""
    instances = _Alike(objects.Instance, *_OWN)
    return [_request(row, instances)[0] for row in rows]


def read(row: sa.Row[Any]) -> objects.BuildRequest:
    """Return the request of a row, for a change.

    :raises cellsched.exception.RequestUnreadable: the row cannot be parsed
    """
    request, broken = _request(row, _Alike(objects.Instance))
    if broken is not None:
        raise broken
    return request


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
    return LeasedRequest(
        request=request, min_count=row.min_count, tries=row.lease_count,
        revision=row.revision, spec=spec, broken=broken,
        quota=row.quota and jsonutils.loads(row.quota),
        alike=(row.spec or '').replace(row.instance_uuid, ''))


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
    primitive = request_specs.get(connection, uuid)
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
