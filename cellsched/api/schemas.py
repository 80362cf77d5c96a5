# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of the input of the API.

:mod:`cellsched.validation.json_schema` validates values by them.
"""

from collections.abc import Collection
from typing import Any

from cellsched.claims.validation import RATIO_MAX
from cellsched.objects import requests
from cellsched.objects.resources import AMOUNT_MAX

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


def text(most: int = TEXT_MAX, **more: Any) -> Schema:
    """Return the schema of a name or another text in one line."""
    return {'type': 'string', 'minLength': 1, 'maxLength': most,
            'format': 'printable', **more}


def count(least: int, most: int = NUMBER_MAX) -> Schema:
    """Return the schema of a whole number."""
    return {'type': 'integer', 'minimum': least, 'maximum': most}


def choice(names: Collection[str]) -> Schema:
    """Return the schema of one of several texts."""
    return {'type': 'string', 'enum': list(names)}


def nullable(schema: Schema) -> Schema:
    """Return a schema that accepts None too."""
    return {**schema, 'type': [schema['type'], 'null']}


def fields(properties: Schema, required: Collection[str] = ()) -> Schema:
    """Return the schema of a mapping of known fields."""
    return {'type': 'object', 'additionalProperties': False,
            'properties': properties, 'required': list(required)}


#: A tag; some databases store no characters beyond U+FFFF.
_TAG = text(TAG_LENGTH, pattern='^[^/,\U00010000-\U0010ffff]*$', description=(
    f'1 to {TAG_LENGTH} printable characters up to U+FFFF, without slash and '
    'comma'))

TAGS: Schema = {'type': 'array', 'maxItems': TAGS_MAX, 'items': _TAG}

#: The values of hints, by name. A group is one server group.
_HINT: Schema = {'type': 'array', 'minItems': 1, 'maxItems': HINT_VALUES_MAX,
                 'items': text()}
HINTS: Schema = {
    'type': 'object', 'additionalProperties': _HINT,
    'properties': {'query': {**_HINT, 'items': text(16384)},
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
        'destination_type': choice(destinations),
        **{other: _unused(f'the source is {name}')
           for _, other in _SOURCES.values() if other is not None}}}
    if name == 'volume':
        then['properties']['volume_type'] = _unused('the volume exists')
    if id_field is not None:
        then['properties'][id_field] = text(36)
        then['required'] = [id_field]
    return {'if': {'properties': {'source_type': {'const': name}}},
            'then': then}


_DEVICE: Schema = {
    **fields({
        'source_type': choice(_SOURCES),
        'destination_type': choice(('local', 'volume')),
        'delete_on_termination': {'type': 'boolean'},
        **{name: nullable(text()) for name in (
            'guest_format', 'device_type', 'disk_bus', 'device_name',
            'volume_type', 'tag')},
        **{name: nullable(text(36)) for name in (
            'snapshot_id', 'volume_id', 'image_id')},
        'boot_index': nullable(count(-1)), 'volume_size': nullable(count(1)),
    }, ['source_type', 'destination_type']),
    'allOf': [*map(_source, _SOURCES), {
        'if': {'properties': {'source_type': {'const': 'blank'},
                              'destination_type': {'const': 'volume'}}},
        'then': {'properties': {'volume_size': count(1)},
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
ZONE = nullable(text(pattern='^[^:]*$', description=(
    f'1 to {TEXT_MAX} printable characters without a colon')))

#: A request for servers, whose counts are validated.
SERVER = fields({
    'name': text(), 'flavor': text(), 'image_ref': nullable(text()),
    'availability_zone': ZONE, 'hints': HINTS, 'tags': TAGS,
    'block_device_mappings': BLOCK_DEVICES,
    **{name: nullable(text()) for name in (
        'forced_host', 'forced_node', 'host', 'hypervisor_hostname')},
}, ['name', 'flavor'])

FLAVOR = fields({
    'name': text(), 'id': text(), 'vcpus': count(1), 'ram': count(1),
    'disk': count(0), 'ephemeral': count(0), 'swap': count(0)})

#: Extra specs, with the keys that Nova allows; None removes a key.
EXTRA_SPECS: Schema = {
    'type': 'object', 'additionalProperties': nullable(text()),
    'propertyNames': text(pattern='^[A-Za-z0-9-_:. ]+$', description=(
        'a key of letters, digits, spaces and any of -_:.'))}

HOSTS: Schema = {'type': 'array', 'minItems': 1, 'maxItems': NAMES_MAX,
                 'items': text()}

#: Metadata of an aggregate; None removes a key.
METADATA: Schema = {
    'type': 'object', 'maxProperties': NAMES_MAX, 'propertyNames': text(),
    'properties': {'availability_zone': ZONE},
    'additionalProperties': nullable(text())}

RULES = fields({
    'spread': choice(requests.SPREADS),
    **{name: count(*bounds)
       for name, bounds in requests.BOUNDS.items()}})

#: Fields of an inventory, after they are merged with the known ones.
INVENTORY = fields({
    'total': count(0, AMOUNT_MAX), 'reserved': count(0, AMOUNT_MAX),
    'min_unit': count(1, AMOUNT_MAX), 'max_unit': count(1, AMOUNT_MAX),
    'step_size': count(1, AMOUNT_MAX),
    'allocation_ratio': {
        'type': 'number', 'exclusiveMinimum': 0, 'maximum': RATIO_MAX},
}, ['total'])


def limits(resources: Collection[str]) -> Schema:
    """Return the schema of quota limits; -1 means no limit."""
    return {**fields({name: count(-1) for name in resources}),
            'minProperties': 1,
            'description': f'a limit of {", ".join(resources)}'}
