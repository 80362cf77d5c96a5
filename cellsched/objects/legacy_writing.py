# SPDX-License-Identifier: Apache-2.0
"""Requests for schedulers that do not know a RequestSpec.

A client that is held below ``select_destinations`` 4.3 sends these two dicts
instead. Objects in them travel in their envelopes.
"""

from typing import Any

from cellsched import objects

#: What is said of the instance, by what the request calls it.
_OF_INSTANCE = {
    'numa_topology': 'numa_topology', 'pci_requests': 'pci_requests',
    'project_id': 'project_id', 'user_id': 'user_id',
    'availability_zone': 'availability_zone', 'instance_uuid': 'uuid'}

_SIZES = ('root_gb', 'ephemeral_gb', 'memory_mb', 'vcpus')


def dicts(spec: objects.RequestSpec) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ``request_spec`` and ``filter_properties`` of a request.

    They are Nova's, and two keys of ours, which Nova passes over:
    ``request_spec['is_bfv']`` of a request whose root disk is on a volume,
    and ``filter_properties['group_rules']`` of a group that has rules.
    """
    return _request_spec(spec), _filter_properties(spec)


def _request_spec(spec: objects.RequestSpec) -> dict[str, Any]:
    flavor = spec.get('flavor')
    instance = {theirs: spec.get(ours) for ours, theirs
                in _OF_INSTANCE.items() if spec.obj_attr_is_set(ours)}
    if flavor is not None:
        instance |= {name: flavor.get(name, 0) for name in _SIZES}
    asked = {
        'image': _image(spec.get('image')),
        'instance_properties': instance,
        'instance_type': {} if flavor is None else flavor,
        'num_instances': spec.get('num_instances', 1),
    }
    if spec.get('is_bfv'):
        asked['is_bfv'] = True
    return asked


def _image(image: objects.ImageMeta | None) -> dict[str, Any]:
    """Return an image as plain dicts, without envelopes."""
    if image is None:
        return {}
    properties = image.get('properties')
    said = {name: image.get(name) for name in image.fields
            if image.obj_attr_is_set(name)}
    return said | {'properties': dict(properties.items() if properties
                                      else ())}


def _filter_properties(spec: objects.RequestSpec) -> dict[str, Any]:
    """Return where a request wants to go; what it does not say is left out."""
    wishes = {name: spec.get(name) for name in (
        'ignore_hosts', 'force_hosts', 'force_nodes', 'requested_destination')}
    wishes['scheduler_hints'] = {
        name: spec.get_scheduler_hint(name)
        for name in spec.get('scheduler_hints') or ()}
    retry, limits = spec.get('retry'), spec.get('limits')
    if retry is not None:
        wishes['retry'] = {
            'num_attempts': retry.get('num_attempts', 0),
            'hosts': [[node.get('host'), node.get('hypervisor_hostname')]
                      for node in retry.get('hosts') or ()]}
    wishes = {name: value for name, value in wishes.items() if value}
    if limits is not None:
        wishes['limits'] = limits.to_dict()
    return wishes | _group(spec.get('instance_group'))


def _group(group: objects.InstanceGroup | None) -> dict[str, Any]:
    if group is None:
        return {}
    said = {
        'group_updated': True,
        'group_hosts': sorted(set(group.get('hosts') or ())),
        'group_policies': [group.get('policy')],
        'group_members': sorted(set(group.get('members') or ())),
    }
    if group.get('uuid') is not None:
        said['group_uuid'] = group.uuid
    if group.get('_rules'):
        said['group_rules'] = dict(group.get('_rules'))
    return said
