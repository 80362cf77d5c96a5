# SPDX-License-Identifier: Apache-2.0
"""Requests of the schema with arbitrary values."""

import copy
from typing import Any

from hypothesis import strategies as st
from oslo_versionedobjects import fields

from cellsched import objects
from cellsched.objects import base
from tests.functional import hostile

#: Names that mean something to a filter or a stage.
TEXTS = st.sampled_from([
    'hosta', 'hostb', 'moon', 'nova', 'x86_64', 'qemu', 'affinity',
    'anti-affinity', 'soft-affinity', 'GPU', '1', 'required', 'user'])

#: What is often right, where any value of the type would hardly ever be.
_USUAL = {
    'vcpus': st.integers(1, 4), 'memory_mb': st.integers(1, 1024),
    'root_gb': st.integers(0, 9), 'ephemeral_gb': st.integers(0, 9),
    'swap': st.integers(0, 2048), 'num_instances': st.integers(1, 3),
    'availability_zone': st.sampled_from(['moon', 'nova', 'mars']),
    'policy': st.sampled_from(['affinity', 'anti-affinity']),
    'ignore_hosts': st.lists(TEXTS, max_size=1), 'rules': st.just({}),
    'force_hosts': st.just(['hosta']), 'force_nodes': st.just(['hosta']),
    '_rules': st.dictionaries(
        st.sampled_from(['max_server_per_host', 'spread', 'max_skew', 'x']),
        st.sampled_from(['1', '2', 'cell', 'host']), max_size=2),
    'scheduler_hints': st.dictionaries(
        st.sampled_from(['query', 'same_host', 'different_host', 'cidr',
                         'build_near_host_ip', 'spread', 'x']),
        st.lists(st.sampled_from([
            '["=", "$host", "hosta"]', hostile.ID, '/24', '10.0.0.1',
            'host']), min_size=1, max_size=1), max_size=2),
    'extra_specs': st.dictionaries(
        st.sampled_from(['capabilities:free_ram_mb', 'hw:cpu_policy',
                         'aggregate_instance_extra_specs:x', 'trait:GPU',
                         'resources:VCPU']),
        st.sampled_from(['>= 1', 's== x', '<or> 1 <or> 2', '1',
                         'required', '<in> x']), max_size=2),
}

#: What every request has to have.
_REQUIRED = {'RequestSpec': ('flavor',),
             'Flavor': ('vcpus', 'memory_mb', 'root_gb'),
             'Destination': ('host',)}

#: Properties of images; there is no schema of them.
_PROPERTIES = st.dictionaries(
    st.sampled_from(['hw_architecture', 'img_hv_type', 'hw_vm_mode',
                     'traits_required', 'os_distro', 'x']),
    TEXTS | st.lists(TEXTS, max_size=2), max_size=2)

_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
        TEXTS, inner, max_size=2), max_leaves=3)

UUIDS = st.uuids().map(str)

_SCALARS = {fields.String: TEXTS, fields.Integer: st.integers(0, 9),
            fields.Float: st.floats(0, 9), fields.Boolean: st.booleans(),
            fields.UUID: UUIDS,
            fields.DateTime: st.just('2026-01-02T03:04:05Z')}


def envelopes(name):
    """Draw the envelope of an object of this name."""
    kind = base.Registry.obj_classes()[name][0]
    if kind is objects.ImageMetaProps:
        data = _PROPERTIES
    else:
        each = {field: _USUAL.get(field, _values(kind.fields[field]))
                for field in kind.fields}
        required = {field: each.pop(field)
                    for field in _REQUIRED.get(name, ())}
        # Half of them would be in nearly every request, and refuse it.
        data = st.builds(
            _together, st.fixed_dictionaries(required), st.lists(
                st.one_of([st.tuples(st.just(field), values)
                           for field, values in each.items()]), max_size=5))
    return data.map(lambda said: envelope(name, said, kind.VERSION))


def envelope(name, data, version='1.0'):
    """Return the envelope of an object of any name."""
    return {'nova_object.name': name, 'nova_object.namespace': 'nova',
            'nova_object.version': version, 'nova_object.data': data}


def _together(required, optional):
    return {**dict(optional), **required}


def _values(field):
    """Draw the serialized value of a field."""
    kind = field._type
    if isinstance(kind, fields.Object):
        values = st.deferred(lambda: envelopes(kind._obj_name))
    elif isinstance(kind, (fields.List, fields.Set)):
        values = st.lists(_values(kind._element_type), max_size=2)
    elif isinstance(kind, fields.Dict):
        values = st.dictionaries(
            TEXTS, _values(kind._element_type), max_size=2)
    elif isinstance(kind, base.Raw):
        values = _ANYTHING
    else:
        values = next(each for known, each in reversed(_SCALARS.items())
                      if isinstance(kind, known))
    return st.none() | values if field.nullable else values


def nested(depth):
    """Return a list in a list, and so on."""
    outer: list[Any] = []
    for _ in range(depth):
        outer = [outer]
    return outer


#: What nobody who means well would send.
HOSTILE = st.sampled_from([
    None, True, False, 0, -1, 1.5, 2 ** 31, 2 ** 63, 10 ** 400,
    float('nan'), float('inf'), '', '1', 'x', '%s%n%(x)s', '{0.__class__}',
    '../', hostile.CRLF, '\ud800', 'a\0', 'x' * 100_000, [], {}, [[]], [None],
    ['x'], {'x': 'x'}, {'': None}, {hostile.CRLF: hostile.CRLF},
    ['x'] * 10_000, nested(50), nested(400), envelope('Unknown', {}),
    envelope('RequestSpec', {}), envelope('Flavor', {'vcpus': 1}),
    envelope('InstanceList', {'objects': [envelope('Instance', {})]}),
    envelope('Flavor', {}, '99.0'), envelope('Flavor', {}, 'x'),
    envelope([], {}), envelope('Flavor', [])])

#: Names that something is given that it does not have.
_NAMES = st.sampled_from([
    'x', '__class__', '_x', hostile.CRLF, '%s%n', '', '\ud800',
    'nova_object.changes', 'nova_object.version', 'nova_object.name'])


@st.composite
def mutated(draw, whole, most=2):
    """Draw something with up to so many places of it replaced or added."""
    whole = copy.deepcopy(draw(whole))
    for _ in range(draw(st.sampled_from([1, 0, most]))):
        # Most places are deep inside; those outside count as much.
        places = [*_places(whole, draw(st.sampled_from([1, 2, 9])))]
        inside, key = draw(st.sampled_from(places)) if places else (whole, '')
        if isinstance(inside, dict) and draw(st.integers(0, 5)) == 0:
            key = draw(_NAMES)
        inside[key] = copy.deepcopy(draw(HOSTILE))
    return whole


def _places(value, depth):
    """Yield each container and key in something, down to a depth."""
    if not depth:
        return
    pairs = (value.items() if isinstance(value, dict)
             else enumerate(value) if isinstance(value, list) else ())
    for key, inner in pairs:
        yield value, key
        yield from _places(inner, depth - 1)


def specs():
    """Draw the arguments of callers that know a RequestSpec."""
    return st.fixed_dictionaries(
        {'spec_obj': envelopes('RequestSpec'),
         'instance_uuids': st.none() | st.lists(
             UUIDS, min_size=1, max_size=3, unique=True)},
        optional={
            'return_objects': st.booleans(),
            'return_alternates': st.booleans()})


def dicts():
    """Draw the arguments of callers from before that."""
    spec = base.Registry.obj_classes()['RequestSpec'][0].fields
    instance = st.fixed_dictionaries({}, optional={
        name: _USUAL.get(name, TEXTS)
        for name in ('project_id', 'user_id', 'availability_zone')})
    wishes = st.fixed_dictionaries({}, optional={
        **{name: _USUAL.get(name, _values(spec[name])) for name in (
            'ignore_hosts', 'scheduler_hints', 'requested_destination')},
        'retry': st.just({'num_attempts': 1, 'hosts': [['hosta', 'n']]}),
        'limits': st.just({'vcpu': 4}),
        'group_updated': st.just(True),
        'group_policies': st.just(['affinity']),
        'group_members': st.just([hostile.ID]),
        'group_hosts': st.just(['hosta'])})
    flavors = envelopes('Flavor')
    images = envelopes('ImageMeta')
    return st.fixed_dictionaries({
        'request_spec': st.fixed_dictionaries({
            'instance_type': flavors | flavors.map(_data),
            'instance_properties': instance,
            'num_instances': st.integers(1, 3),
            'image': st.just({}) | images | images.map(_data)}),
        'filter_properties': wishes})


def _data(envelope):
    return envelope['nova_object.data']
