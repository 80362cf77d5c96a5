# SPDX-License-Identifier: Apache-2.0
"""Validation of the input of the API: JSON schemas, and further checks."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from cellsched.claims.validation import RATIO_MAX
from cellsched import exception
from cellsched import objects
from cellsched.objects import keys
from cellsched.objects import requests
from cellsched.objects.resources import AMOUNT_MAX
from cellsched.validation.json_schema import check
from cellsched.validation.json_schema import shown
from cellsched.validation.uuids import canonical

Schema = dict[str, Any]

TEXT_MAX = 255

#: The largest whole number that a column of the databases stores.
NUMBER_MAX = 2 ** 31 - 1

#: Values of one scheduler hint.
HINT_VALUES_MAX = 100

#: Tags of one server, and characters of one tag.
TAGS_MAX = 50
TAG_LENGTH = 60

#: Block devices of one server.
DEVICES_MAX = 64

#: Hosts or metadata keys of an aggregate that one call names.
NAMES_MAX = 10_000

#: Resource classes or traits of one provider.
CONTENTS_MAX = 1000


def _text(most: int = TEXT_MAX, **more: Any) -> Schema:
    """Return the schema of a name or another text in one line."""
    return {'type': 'string', 'minLength': 1, 'maxLength': most,
            'format': 'printable', **more}


def _count(least: int, most: int = NUMBER_MAX) -> Schema:
    """Return the schema of a whole number."""
    return {'type': 'integer', 'minimum': least, 'maximum': most}


def _choice(names: Collection[str]) -> Schema:
    """Return the schema of one of several texts."""
    return {'type': 'string', 'enum': list(names)}


def _nullable(schema: Schema) -> Schema:
    """Return a schema that accepts None too."""
    return {**schema, 'type': [schema['type'], 'null']}


def _fields(properties: Schema, required: Collection[str] = ()) -> Schema:
    """Return the schema of a mapping of known fields."""
    return {'type': 'object', 'additionalProperties': False,
            'properties': properties, 'required': list(required)}


#: A tag; some databases store no characters beyond U+FFFF.
_TAG = _text(TAG_LENGTH, pattern='^[^/,\U00010000-\U0010ffff]*$', description=(
    f'1 to {TAG_LENGTH} printable characters up to U+FFFF, without slash and '
    'comma'))

TAGS: Schema = {'type': 'array', 'maxItems': TAGS_MAX, 'items': _TAG}

#: The values of hints, by name. A group is one server group.
_HINT: Schema = {'type': 'array', 'minItems': 1, 'maxItems': HINT_VALUES_MAX,
                 'items': _text()}
_HINTS: Schema = {
    'type': 'object', 'additionalProperties': _HINT,
    'properties': {'query': {**_HINT, 'items': _text(16384)},
                   'group': {**_HINT, 'maxItems': 1}}}

#: The destinations of a block device, and the field with its id, by source.
_SOURCES: dict[str, tuple[tuple[str, ...], str | None]] = {
    'blank': (('local', 'volume'), None),
    'image': (('local', 'volume'), 'image_id'),
    'snapshot': (('volume',), 'snapshot_id'),
    'volume': (('volume',), 'volume_id'),
}


def _unused(reason: str) -> Schema:
    """Return the schema of a field that is not used, so must be None."""
    return {'type': 'null', 'description': f'no value, because {reason}'}


def _source(name: str) -> Schema:
    """Return the conditional schema of the devices of a source."""
    destinations, id_field = _SOURCES[name]
    then: Schema = {'properties': {
        'destination_type': _choice(destinations),
        **{other: _unused(f'the source is {name}')
           for _, other in _SOURCES.values() if other is not None}}}
    if name == 'volume':
        then['properties']['volume_type'] = _unused('the volume exists')
    if id_field is not None:
        then['properties'][id_field] = _text(36)
        then['required'] = [id_field]
    return {'if': {'properties': {'source_type': {'const': name}}},
            'then': then}


_DEVICE: Schema = {
    **_fields({
        'source_type': _choice(_SOURCES),
        'destination_type': _choice(('local', 'volume')),
        'delete_on_termination': {'type': 'boolean'},
        **{name: _nullable(_text()) for name in (
            'guest_format', 'device_type', 'disk_bus', 'device_name',
            'volume_type', 'tag')},
        **{name: _nullable(_text(36)) for name in (
            'snapshot_id', 'volume_id', 'image_id')},
        'boot_index': _nullable(_count(-1)),
        'volume_size': _nullable(_count(1)),
    }, ['source_type', 'destination_type']),
    'allOf': [*map(_source, _SOURCES), {
        'if': {'properties': {'source_type': {'const': 'blank'},
                              'destination_type': {'const': 'volume'}}},
        'then': {'properties': {'volume_size': _count(1)},
                 'required': ['volume_size']}}, {
        'if': {'properties': {'destination_type': {'const': 'local'}}},
        'then': {'properties': {
            'volume_type': _unused('the destination is local')}}}, {
        # A copy of an image is the root disk: the flavor has no other one.
        'if': {'properties': {'source_type': {'const': 'image'},
                              'destination_type': {'const': 'local'}}},
        'then': {'properties': {'boot_index': {
            'type': 'integer', 'const': 0,
            'description': '0, because the copy is the root disk'}},
            'required': ['boot_index']}}],
}

BLOCK_DEVICES: Schema = {
    'type': 'array', 'maxItems': DEVICES_MAX, 'items': _DEVICE}

#: A zone. A request can name a host as ZONE:HOST, so a zone has no colon.
ZONE = _nullable(_text(pattern='^[^:]*$', description=(
    f'1 to {TEXT_MAX} printable characters without a colon')))

#: A request for servers, whose counts are validated.
SERVER = _fields({
    'name': _text(), 'flavor': _text(), 'image_ref': _nullable(_text()),
    'availability_zone': ZONE, 'hints': _HINTS, 'tags': TAGS,
    'block_device_mappings': BLOCK_DEVICES,
    **{name: _nullable(_text()) for name in (
        'forced_host', 'forced_node', 'host', 'hypervisor_hostname')},
}, ['name', 'flavor'])

FLAVOR = _fields({
    'name': _text(), 'id': _text(), 'vcpus': _count(1), 'ram': _count(1),
    'disk': _count(0), 'ephemeral': _count(0), 'swap': _count(0)})

#: Extra specs, with the keys that Nova allows; None removes a key.
EXTRA_SPECS: Schema = {
    'type': 'object', 'additionalProperties': _nullable(_text()),
    'propertyNames': _text(pattern='^[A-Za-z0-9-_:. ]+$', description=(
        'a key of letters, digits, spaces and any of -_:.'))}

HOSTS: Schema = {'type': 'array', 'minItems': 1, 'maxItems': NAMES_MAX,
                 'items': _text()}

#: Metadata of an aggregate; None removes a key.
METADATA: Schema = {
    'type': 'object', 'maxProperties': NAMES_MAX, 'propertyNames': _text(),
    'properties': {'availability_zone': ZONE},
    'additionalProperties': _nullable(_text())}

RULES = _fields({
    'spread': _choice(requests.SPREADS),
    **{name: _count(*bounds)
       for name, bounds in requests.BOUNDS.items()}})

#: Fields of an inventory, after they are merged with the known ones.
INVENTORY = _fields({
    'total': _count(0, AMOUNT_MAX), 'reserved': _count(0, AMOUNT_MAX),
    'min_unit': _count(1, AMOUNT_MAX), 'max_unit': _count(1, AMOUNT_MAX),
    'step_size': _count(1, AMOUNT_MAX),
    'allocation_ratio': {
        'type': 'number', 'exclusiveMinimum': 0, 'maximum': RATIO_MAX},
}, ['total'])


def limits(resources: Collection[str]) -> Schema:
    """Return the schema of quota limits; -1 means no limit."""
    return {**_fields({name: _count(-1) for name in resources}),
            'minProperties': 1,
            'description': f'a limit of {", ".join(resources)}'}


#: Scheduler hints that every deployment supports.
HINTS = frozenset({'group'})

#: Values of fields of a request that are not given.
_DEFAULTS: Mapping[str, Any] = {
    'image_ref': None, 'availability_zone': None, 'hints': {}, 'tags': (),
    'block_device_mappings': (), 'forced_host': None, 'forced_node': None,
    'host': None, 'hypervisor_hostname': None}

#: The forms of a zone with the host that a request is forced to.
_ZONE_FORMS = 'ZONE, ZONE:HOST, ZONE:HOST:NODE or ZONE::NODE'


@dataclasses.dataclass(frozen=True)
class ServerBounds:
    """The bounds that a deployment sets.

    :param instances_max: servers of one request
    :param limit_max: servers of one page of a listing
    :param hints: returns the names of the scheduler hints that the enabled
        filters support; None allows any name that does not begin with ``_``
    :param group_members_max: members of a server group
    """

    instances_max: int
    limit_max: int
    hints: Callable[[], frozenset[str] | None]
    group_members_max: int = 1000


@dataclasses.dataclass(frozen=True)
class ServerRequest:
    """A request for servers, as a user made it.

    :param forced_host: the only possible host, which no filter checks
    :param forced_node: the only possible node, which no filter checks
    :param host: the only possible host, which filters check
    :param hypervisor_hostname: the only possible node, which filters check
    """

    name: Any
    flavor: Any
    image_ref: Any
    availability_zone: Any
    hints: Any
    min_count: Any
    max_count: Any
    tags: Any = ()
    block_device_mappings: Any = ()
    forced_host: Any = None
    forced_node: Any = None
    host: Any = None
    hypervisor_hostname: Any = None

    def check(self, bounds: ServerBounds) -> None:
        """Make sure that the request is valid.

        :raises cellsched.exception.InvalidField: names the field and the
            bound
        """
        most = bounds.instances_max
        check_count('server', 'min_count', self.min_count, most)
        check_count('server', 'max_count', self.max_count, most,
                    self.min_count)
        # Most requests have a name and a flavor alone.
        fields = {'name': self.name, 'flavor': self.flavor}
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if value is not default and value != default:
                fields[name] = value
        check('server', fields, SERVER)
        if self.max_count > 1:
            # The number of each server is added to the name.
            check_text('server', 'name', self.name,
                       TEXT_MAX - len(f'-{self.max_count}'))
        if self.hints:
            known = bounds.hints()
            _check_hint_names(self.hints, known)
            if known is not None:
                keys.check_hints(self.hints, 'server', 'hints')
        _check_devices(self.block_device_mappings, self.max_count > 1)
        boot = self.boot_device
        image_ref = boot.get('image_id') if boot else None
        if self.image_ref and image_ref and self.image_ref != image_ref:
            raise exception.InvalidField(
                where='server', field='image_ref',
                problem='the servers boot from another image, which is that '
                        'of the block device with boot_index 0',
                expected=f'{shown(image_ref)}, or no value')

    def check_local_disks(self, flavor: objects.Flavor) -> None:
        """Make sure that the flavor has disk for the local block devices.

        A server claims the disks of its flavor, and no more.

        :raises cellsched.exception.InvalidField: names the first device for
            which the flavor has no disk
        """
        free = {name: flavor.get(name) or 0
                for name in ('root_gb', 'ephemeral_gb', 'swap')}
        whole = dict(free)
        for number, device in enumerate(self.block_device_mappings):
            if device['destination_type'] != 'local':
                continue
            disk = ('root_gb' if device['source_type'] == 'image' else
                    'swap' if device.get('guest_format') == 'swap'
                    else 'ephemeral_gb')
            size = device.get('volume_size')
            if size is None:
                size = whole[disk]
            if size > free[disk]:
                raise exception.InvalidField(
                    where='server',
                    field=f'block_device_mappings[{number}].volume_size',
                    problem=f'{size} is too large for {disk} {whole[disk]} of '
                            'the flavor, with the local devices before it',
                    expected=f'at most {free[disk]}')
            free[disk] -= size

    @property
    def boot_device(self) -> objects.BlockDeviceMapping | None:
        """The block device from which the servers boot, if they name one."""
        return next((
            objects.BlockDeviceMapping(**device)
            for device in self.block_device_mappings
            if device.get('boot_index') == 0), None)

    @property
    def group(self) -> str | None:
        """The server group that the servers join."""
        values = self.hints.get('group')
        return canonical(values[0]) or values[0] if values else None


def parse_zone(text: Any) -> tuple[Any, str | None, str | None]:
    """Return the zone, the forced host and the forced node of a text.

    :param text: ``ZONE``, ``ZONE:HOST``, ``ZONE:HOST:NODE`` or
        ``ZONE::NODE``; the zone may be missing before a colon
    :raises cellsched.exception.InvalidField: it has another form
    """
    if not isinstance(text, str) or ':' not in text:
        return text, None, None
    zone, *names = text.split(':')
    if len(names) > 2 or not any(names):
        raise exception.InvalidField(
            where='server', field='availability_zone',
            problem=f'{shown(text)} is not valid', expected=_ZONE_FORMS)
    host, node = [*names, ''][:2]
    return zone or None, host or None, node or None


def check_text(
    where: str, field: str, value: Any, most: int = TEXT_MAX
) -> None:
    """Make sure that a value is a name or another text in one line.

    :raises cellsched.exception.InvalidField: it is not
    """
    if not (isinstance(value, str) and 0 < len(value) <= most
            and value.isprintable() and not value.isspace()):
        raise exception.InvalidField(
            where=where, field=field, problem=f'{shown(value)} is not valid',
            expected=f'1 to {most} printable characters')


def check_count(
    where: str, field: str, value: Any, most: int, least: int = 1
) -> None:
    """Make sure that a value is a whole number between two bounds.

    :raises cellsched.exception.InvalidField: it is not
    """
    if not (isinstance(value, int) and not isinstance(value, bool)
            and least <= value <= most):
        raise exception.InvalidField(
            where=where, field=field,
            problem=f'{shown(value)} is out of range',
            expected=f'a whole number from {least} to {most}')


def check_choice(
    where: str, field: str, value: Any, choices: Sequence[str]
) -> None:
    """Make sure that a value is one of several texts.

    :raises cellsched.exception.InvalidField: it is not
    """
    if not (isinstance(value, str) and value in choices):
        raise exception.InvalidField(
            where=where, field=field, problem=f'{shown(value)} is not valid',
            expected=f'one of {", ".join(choices)}')


def _check_hint_names(
    hints: Mapping[Any, Any], known: frozenset[str] | None
) -> None:
    """Make sure that every scheduler hint is supported."""
    for hint in hints:
        if known is None:
            check_text('server', 'hints', hint)
            if hint.startswith('_'):
                raise exception.InvalidField(
                    where='server', field='hints',
                    problem=f'the name {shown(hint)} is reserved',
                    expected='a name that does not begin with _')
        elif hint not in known | HINTS:
            raise exception.InvalidField(
                where='server', field='hints',
                problem=f'no enabled filter supports {shown(hint)}',
                expected=f'one of {", ".join(sorted(known | HINTS))}')


def _check_devices(
    devices: Sequence[Mapping[str, Any]], several: bool
) -> None:
    """Check the constraints of block devices that no schema has.

    :param several: whether more than one server gets them
    """
    where, field = 'server', 'block_device_mappings'
    boots = [device['boot_index'] for device in devices
             if (device.get('boot_index') or 0) >= 0
             and device.get('boot_index') is not None]
    if len(boots) != len(set(boots)):
        raise exception.InvalidField(
            where=where, field=field, problem='a boot_index is repeated',
            expected='each boot_index once')
    for number, device in enumerate(devices):
        if several and device['source_type'] == 'volume':
            raise exception.InvalidField(
                where=where, field=f'{field}[{number}].source_type',
                problem='a volume belongs to one server, and several are '
                        'requested', expected='another source')
