# SPDX-License-Identifier: Apache-2.0
"""Requests of callers and schedulers that know no RequestSpec.

Up to ``select_destinations`` 4.2, and from newer callers that are pinned to
it, a request is two dicts: ``request_spec`` describes the instances and
``filter_properties`` the destination. :func:`request_spec` reads them, and
:func:`dicts` writes them for a client that is pinned below 4.3.

Fields that a decision does not need are passed on if they can be read, and
ignored otherwise. Amounts are validated elsewhere.
"""

from typing import Any

from cellsched import exception
from cellsched import objects
from cellsched.objects import base
from cellsched.objects import keys

_SIZES = ('vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb')

#: Prefix of the flavor's fields in an instance's system metadata.
_FLAVOR_PREFIX = 'instance_type_'

#: The most digits of a size; parsing a very long number takes long.
_DIGITS_MAX = 18

#: Prefix of an image property that names a trait.
_TRAIT_PREFIX = 'trait:'


def request_spec(
    request_spec: Any, filter_properties: Any
) -> objects.RequestSpec:
    """Return the RequestSpec for the two dicts.

    Objects in them are deserialized already. Sets may have become lists.

    :raises cellsched.exception.InvalidField: names a field that a decision
        needs and that cannot be read
    """
    spec = _fields_of('request_spec', request_spec)
    properties = _fields_of('filter_properties', filter_properties)
    path = 'request_spec.instance_properties'
    instance = _fields_of(
        path, spec.get('instance_properties'), objects.Instance)
    is_bfv = spec.get('is_bfv', False)
    if not isinstance(is_bfv, bool):
        raise _invalid('request_spec.is_bfv', 'true or false')
    values: dict[str, Any] = {
        name: _text_or_none(f'{path}.{name}', instance.get(name))
        for name in ('project_id', 'user_id', 'availability_zone')}
    for name in ('numa_topology', 'pci_requests'):
        # A NUMA topology or a PCI request is a requirement in any form, also
        # in one that this release cannot read.
        values[name] = instance.get(name)
    if instance.get('uuid') is not None:
        values['instance_uuid'] = _text(f'{path}.uuid', instance.get('uuid'))
    values |= {
        **_of_properties('filter_properties', properties),
        'num_instances': _number(
            'request_spec.num_instances', spec.get('num_instances'), 1),
        'is_bfv': is_bfv,
        'image': _image('request_spec.image', spec.get('image')),
        'flavor': _flavor(spec, properties, instance),
    }
    return objects.RequestSpec(**values)


def _of_properties(path: str, properties: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {
        name: None if properties.get(name) is None else _texts(
            f'{path}.{name}', properties[name])
        for name in ('ignore_hosts', 'force_hosts', 'force_nodes')}
    return {
        **values,
        'retry': _retry(f'{path}.retry', properties.get('retry')),
        'limits': _limits(properties.get('limits')),
        'instance_group': _group(path, properties),
        # A single value often comes without a list.
        'scheduler_hints': {
            name: [_scalar(_below(f'{path}.scheduler_hints', name), each)
                   for each in (value if isinstance(value, (list, tuple))
                                else [value])]
            for name, value in _fields_of(
                f'{path}.scheduler_hints',
                properties.get('scheduler_hints')).items()},
        'requested_destination': _object(
            f'{path}.requested_destination', objects.Destination,
            properties.get('requested_destination')),
    }


def _flavor(spec: Any, properties: Any, instance: Any) -> objects.Flavor:
    """Return the flavor from the first place that has one.

    A missing size is taken from the instance.
    """
    path = 'request_spec.instance_type'
    places = ((path, spec.get('instance_type')),
              ('filter_properties.instance_type',
               properties.get('instance_type')),
              ('request_spec.instance_properties.flavor',
               instance.get('flavor')),
              ('request_spec.instance_properties.system_metadata',
               _flavor_in_metadata(instance)))
    path, given = next((place for place in places if place[1]), (path, {}))
    if isinstance(given, objects.Flavor):
        return given
    fields = _fields_of(path, given)
    values = _readable(objects.Flavor, fields)
    for name in _SIZES:
        size = fields.get(name)
        values[name] = _number(
            f'{path}.{name}', instance.get(name) if size is None else size,
            0 if name == 'ephemeral_gb' else None)
    # Older callers send an empty string for None.
    values['swap'] = _number(f'{path}.swap', fields.get('swap') or 0)
    values['name'] = _text_or_none(f'{path}.name', fields.get('name'))
    values['extra_specs'] = {
        name: _scalar(_below(f'{path}.extra_specs', name), value)
        for name, value in _fields_of(
            f'{path}.extra_specs', fields.get('extra_specs')).items()}
    return objects.Flavor(**values)


def _flavor_in_metadata(instance: Any) -> dict[str, Any]:
    """Return the flavor in an instance's system metadata."""
    metadata = instance.get('system_metadata')
    if not isinstance(metadata, dict):
        return {}
    flavor = {name.removeprefix(_FLAVOR_PREFIX): value
              for name, value in metadata.items()
              if name.startswith(_FLAVOR_PREFIX)}
    for name in (*_SIZES, 'swap'):
        text = flavor.get(name)
        if (isinstance(text, str) and len(text) <= _DIGITS_MAX
                and text.isascii() and text.isdigit()):
            flavor[name] = int(text)
    return flavor


def _image(path: str, given: Any) -> objects.ImageMeta | None:
    if not given:
        return None
    if isinstance(given, objects.ImageMeta):
        return given
    fields = _fields_of(path, given)
    values = _readable(objects.ImageMeta, fields)
    for name in ('id', 'disk_format'):
        values[name] = _text_or_none(f'{path}.{name}', fields.get(name))
    values['properties'] = _image_properties(
        f'{path}.properties', fields.get('properties'))
    return objects.ImageMeta(**values)


def _image_properties(path: str, given: Any) -> objects.ImageMetaProps:
    """Return the image properties by their current names.

    A property under its current name overrides one under a former name.
    """
    if isinstance(given, objects.ImageMetaProps):
        return given
    found = {name: value for name, value in _fields_of(path, given).items()
             if value is not None}
    names = keys.FORMER_PROPERTIES
    properties = {names[name]: value for name, value in found.items()
                  if name in names}
    adapter = found.pop('vmware_adaptertype', None)
    if adapter == 'ide':
        properties['hw_disk_bus'] = 'ide'
    elif adapter:
        properties |= {'hw_disk_bus': 'scsi', 'hw_scsi_model': adapter}
    traits = [name.removeprefix(_TRAIT_PREFIX)
              for name, value in found.items()
              if name.startswith(_TRAIT_PREFIX) and value == 'required']
    if traits:
        properties['traits_required'] = traits
    properties |= {name: value for name, value in found.items()
                   if name not in names}
    return objects.ImageMetaProps(**properties)


def _retry(path: str, given: Any) -> objects.SchedulerRetries | None:
    if not given:
        return None
    fields = _fields_of(path, given)
    nodes = []
    for pair in _listed(f'{path}.hosts', fields.get('hosts')):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise _invalid(f'{path}.hosts', 'a list of [host, node]')
        nodes.append(objects.ComputeNode(
            host=_text(f'{path}.hosts', pair[0]),
            hypervisor_hostname=_text_or_none(f'{path}.hosts', pair[1])))
    return objects.SchedulerRetries(
        num_attempts=_number(
            f'{path}.num_attempts', fields.get('num_attempts'), len(nodes)),
        hosts=objects.ComputeNodeList(objects=nodes))


def _limits(given: Any) -> objects.SchedulerLimits:
    """Return the limits of an earlier decision; no later one reads them."""
    if isinstance(given, objects.SchedulerLimits):
        return given
    fields = given if isinstance(given, dict) else {}
    unset: dict[str, Any] = dict.fromkeys(objects.SchedulerLimits.fields)
    return objects.SchedulerLimits(
        **unset | _readable(objects.SchedulerLimits, fields))


def _group(
    path: str, properties: dict[str, Any]
) -> objects.InstanceGroup | None:
    group: objects.InstanceGroup | None = _object(
        f'{path}.instance_group', objects.InstanceGroup,
        properties.get('instance_group'))
    if group is not None or properties.get('group_updated') is not True:
        return group
    policies = _listed(
        f'{path}.group_policies', properties.get('group_policies'))
    if not policies:
        raise _invalid(f'{path}.group_policies', 'a list of one policy')
    rules = _fields_of(f'{path}.group_rules', properties.get('group_rules'))
    group = objects.InstanceGroup(
        policy=_text_or_none(f'{path}.group_policies', policies[0]),
        hosts=_texts(f'{path}.group_hosts', properties.get('group_hosts')),
        members=_texts(
            f'{path}.group_members', properties.get('group_members')),
        rules={name: _text(_below(f'{path}.group_rules', name), value)
               for name, value in rules.items()})
    if properties.get('group_uuid') is not None:
        group.uuid = _text(f'{path}.group_uuid', properties['group_uuid'])
    # Refuse an invalid rule here, and not during a decision.
    _ = group.rules
    return group


def _readable(
    kind: type[base.Object], fields: dict[str, Any],
) -> dict[str, Any]:
    """Return the fields of a class whose values can be read."""
    readable, empty = {}, kind()
    for name, field in kind.fields.items():
        if fields.get(name) is not None:
            try:
                readable[name] = field.coerce(empty, name, fields[name])
            except (ArithmeticError, AttributeError, TypeError, ValueError):
                continue
    return readable


def _object(path: str, kind: type[base.Object], value: Any) -> Any:
    if value is not None and not isinstance(value, kind):
        raise _invalid(path, f'a {kind.obj_name()}')
    return value


def _fields_of(
    path: str, value: Any, kind: type[base.Object] | None = None
) -> Any:
    """Return a dict, or an object of a class; both have ``get``.

    None becomes an empty dict.
    """
    if value is None:
        return {}
    if isinstance(value, dict) or kind and isinstance(value, kind):
        return value
    raise _invalid(path, 'a mapping of names to values')


def _listed(path: str, value: Any) -> list[Any]:
    """Return a list; None becomes an empty list."""
    if value is None:
        return []
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise _invalid(path, 'a list')
    return list(value)


def _texts(path: str, value: Any) -> list[str]:
    return [_text(path, each) for each in _listed(path, value)]


def _text(path: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _invalid(path, 'a string')
    return value


def _text_or_none(path: str, value: Any) -> str | None:
    return None if value is None else _text(path, value)


def _scalar(path: str, value: Any) -> str:
    """Return a string or number as a string."""
    if isinstance(value, (bool, int, float)):
        return str(value)
    return _text(path, value)


def _number(path: str, value: Any, default: int | None = None) -> int:
    if value is None and default is not None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise _invalid(path, 'a whole number')
    return value


def _below(path: str, name: str) -> str:
    return f'{path}.{ascii(name[:40])[1:-1]}'


def _invalid(path: str, expected: str) -> exception.InvalidField:
    return exception.InvalidField(
        where='select_destinations', field=path, expected=expected)


#: Fields of ``instance_properties``, by the names in RequestSpec.
_OF_INSTANCE = {
    'numa_topology': 'numa_topology', 'pci_requests': 'pci_requests',
    'project_id': 'project_id', 'user_id': 'user_id',
    'availability_zone': 'availability_zone', 'instance_uuid': 'uuid'}


def dicts(spec: objects.RequestSpec) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ``request_spec`` and ``filter_properties`` of a request.

    Two keys are additions that Nova ignores: ``request_spec['is_bfv']`` for a
    request whose root disk is on a volume, and
    ``filter_properties['group_rules']`` for a group that has rules.
    """
    # 1. The request, with the sizes of the flavor beside it.
    flavor = spec.get('flavor')
    instance = {name: spec.get(field) for field, name
                in _OF_INSTANCE.items() if spec.obj_attr_is_set(field)}
    if flavor is not None:
        instance |= {name: flavor.get(name, 0) for name in _SIZES}
    request = {
        'image': _write_image(spec.get('image')),
        'instance_properties': instance,
        'instance_type': {} if flavor is None else flavor,
        'num_instances': spec.get('num_instances', 1),
    }
    if spec.get('is_bfv'):
        request['is_bfv'] = True
    # 2. The properties, without unset keys.
    properties = {name: spec.get(name) for name in (
        'ignore_hosts', 'force_hosts', 'force_nodes', 'requested_destination')}
    properties['scheduler_hints'] = {
        name: spec.get_scheduler_hint(name)
        for name in spec.get('scheduler_hints') or ()}
    retry, limits = spec.get('retry'), spec.get('limits')
    if retry is not None:
        properties['retry'] = {
            'num_attempts': retry.get('num_attempts', 0),
            'hosts': [[node.get('host'), node.get('hypervisor_hostname')]
                      for node in retry.get('hosts') or ()]}
    properties = {name: value for name, value in properties.items() if value}
    if limits is not None:
        properties['limits'] = limits.to_dict()
    return request, properties | _write_group(spec.get('instance_group'))


def _write_image(image: objects.ImageMeta | None) -> dict[str, Any]:
    """Return an image as plain dicts, without envelopes."""
    if image is None:
        return {}
    properties = image.get('properties')
    fields = {name: image.get(name) for name in image.fields
              if image.obj_attr_is_set(name)}
    return fields | {'properties': dict(properties.items() if properties
                                        else ())}


def _write_group(group: objects.InstanceGroup | None) -> dict[str, Any]:
    if group is None:
        return {}
    written = {
        'group_updated': True,
        'group_hosts': sorted(set(group.get('hosts') or ())),
        'group_policies': [group.get('policy')],
        'group_members': sorted(set(group.get('members') or ())),
    }
    if group.get('uuid') is not None:
        written['group_uuid'] = group.uuid
    if group.get('_rules'):
        written['group_rules'] = dict(group.get('_rules'))
    return written
