# SPDX-License-Identifier: Apache-2.0
"""The payload of a request for servers.

============================  =============================================
Field of the versioned form   Content
============================  =============================================
``instance_uuid``             the uuid in the request, or else the first uuid
                              of the call
``num_instances``             the number in the request, or else the number
                              of uuids of the call
``project_id``, ``user_id``   the owner of the servers
``availability_zone``         the requested zone
``flavor``                    ``FlavorPayload``
``image``                     ``ImageMetaPayload``, without secrets
``numa_topology``             ``InstanceNUMATopologyPayload``
``pci_requests``              ``InstancePCIRequestsPayload``
``instance_group``            ``ServerGroupPayload``
``scheduler_hints``           lists of texts, by hint
``ignore_hosts``              names of hosts
``force_hosts``               the name of the first one
``force_nodes``               the name of the first one
``requested_destination``     ``DestinationPayload``; host, node and cell
                              only if they are set; the cell without its URLs
``retry``                     ``SchedulerRetriesPayload``, with the names of
                              nodes as hosts
``security_groups``           uuids, or names where there is no uuid
============================  =============================================
"""

from collections.abc import Sequence
from typing import Any

from cellsched.notify.payloads import envelope
from cellsched import objects
from cellsched import urls


NUMA_TOPOLOGY = envelope.Form('InstanceNUMATopologyPayload', '1.0', (
    'emulator_threads_policy',))

NUMA_CELL = envelope.Form('InstanceNUMACellPayload', '1.2', (
    'id', 'cpuset', 'pcpuset', 'cpuset_reserved', 'memory', 'pagesize',
    'cpu_pinning_raw', 'cpu_policy', 'cpu_thread_policy'))

CPU_TOPOLOGY = envelope.Form('VirtCPUTopologyPayload', '1.0', (
    'sockets', 'cores', 'threads'))

PCI_REQUESTS = envelope.Form('InstancePCIRequestsPayload', '1.0')

PCI_REQUEST = envelope.Form('InstancePCIRequestPayload', '1.1', (
    'count', 'spec', 'alias_name', 'request_id', 'numa_policy'))


def numa_topology(
    topology: Any, instance_uuid: str | None
) -> dict[str, Any] | None:
    """Return the payload of a topology, or None without one."""
    fields = envelope.fields_of(topology)
    if fields is None:
        return None
    return NUMA_TOPOLOGY.fill(
        fields, instance_uuid=fields.get('instance_uuid', instance_uuid),
        cells=[
            NUMA_CELL.fill(cell, cpu_topology=CPU_TOPOLOGY.fill(
                cell and cell.get('cpu_topology')))
            for cell in map(envelope.fields_of, envelope.members_of(
                fields.get('cells')))])


def pci_requests(
    requests: Any, instance_uuid: str | None
) -> dict[str, Any] | None:
    """Return the payload of requests for devices, or None without any."""
    fields = envelope.fields_of(requests)
    if fields is None:
        return None
    return PCI_REQUESTS.fill(
        fields, instance_uuid=fields.get('instance_uuid', instance_uuid),
        requests=[*map(PCI_REQUEST.fill, envelope.members_of(
            fields.get('requests')))])


IMAGE = envelope.Form('ImageMetaPayload', '1.0', (
    'id', 'name', 'status', 'visibility', 'protected', 'checksum', 'owner',
    'size', 'virtual_size', 'container_format', 'disk_format', 'created_at',
    'updated_at', 'tags', 'direct_url', 'min_ram', 'min_disk'))


def versioned_image(image: Any) -> dict[str, Any] | None:
    """Return the payload of an image, or None without one."""
    fields = _shown_image(image)
    if fields is None:
        return None
    properties = fields.pop('properties')
    return IMAGE.fill(fields, properties=envelope.wrap(
        'ImageMetaPropsPayload', '1.20', properties))


def legacy_image(image: Any) -> dict[str, Any]:
    """Return the image as one dict; an empty one without an image."""
    fields = _shown_image(image) or {}
    for name in ('created_at', 'updated_at'):
        if name in fields:
            fields[name] = envelope.legacy_time(fields[name])
    return fields


def _shown_image(image: Any) -> dict[str, Any] | None:
    """Return the fields of an image, without secrets.

    The URL of its store is masked, and properties with ``secret`` in their
    names are omitted.
    """
    fields = envelope.fields_of(image)
    if fields is None:
        return None
    shown = {name: envelope.plain(fields[name])
             for name in IMAGE.fields if name in fields}
    if shown.get('direct_url') is not None:
        shown['direct_url'] = urls.mask(shown['direct_url'])
    properties = envelope.fields_of(fields.get('properties')) or {}
    shown['properties'] = {
        name: envelope.plain(value) for name, value in properties.items()
        if 'secret' not in name}
    return shown


REQUEST_SPEC = envelope.Form('RequestSpecPayload', '1.1', (
    'project_id', 'user_id', 'availability_zone', 'ignore_hosts',
    'scheduler_hints'))

FLAVOR = envelope.Form('FlavorPayload', '1.4', (
    'flavorid', 'memory_mb', 'vcpus', 'root_gb', 'ephemeral_gb', 'name',
    'swap', 'rxtx_factor', 'vcpu_weight', 'disabled', 'is_public',
    'extra_specs', 'projects', 'description'))

SERVER_GROUP = envelope.Form('ServerGroupPayload', '1.1', (
    'uuid', 'name', 'user_id', 'project_id', 'policies', 'members', 'hosts',
    'policy'))

DESTINATION = envelope.Form('DestinationPayload', '1.0', ('aggregates',))

CELL = envelope.Form('CellMappingPayload', '2.0', ('uuid', 'name', 'disabled'))

RETRIES = envelope.Form('SchedulerRetriesPayload', '1.0', ('num_attempts',))


def versioned(
    request: objects.RequestSpec, instance_uuids: Sequence[str]
) -> dict[str, Any]:
    """Return the payload of versioned notifications."""
    fields = envelope.fields_of(request) or {}
    uuid = fields.get('instance_uuid', _first(instance_uuids))
    group = envelope.fields_of(fields.get('instance_group'))
    # On the wire, the rules are in the field _rules.
    rules = group and (group.get('_rules') or group.get('rules'))
    security_groups = filter(None, map(
        envelope.fields_of,
        envelope.members_of(fields.get('security_groups'))))
    payload = REQUEST_SPEC.fill(
        fields,
        instance_uuid=uuid,
        num_instances=fields.get('num_instances', len(instance_uuids) or 1),
        flavor=FLAVOR.fill(fields.get('flavor')),
        image=versioned_image(fields.get('image')),
        numa_topology=numa_topology(fields.get('numa_topology'), uuid),
        pci_requests=pci_requests(fields.get('pci_requests'), uuid),
        instance_group=SERVER_GROUP.fill(
            group, rules=envelope.plain(rules) or {}),
        force_hosts=_first(fields.get('force_hosts')),
        force_nodes=_first(fields.get('force_nodes')),
        requested_destination=_destination(
            fields.get('requested_destination')),
        retry=_retry(fields.get('retry')),
        security_groups=[
            each.get('uuid') or each.get('name') for each in security_groups])
    assert payload is not None
    return payload


def legacy(
    request: objects.RequestSpec, instance_uuids: Sequence[str]
) -> dict[str, Any]:
    """Return the payload of unversioned notifications.

    An unset property of the instance is omitted.
    """
    fields = envelope.fields_of(request) or {}
    flavor = envelope.plain(fields.get('flavor')) or {}
    instance: dict[str, Any] = {
        name: envelope.plain(fields[name])
        for name in ('numa_topology', 'pci_requests', 'project_id', 'user_id',
                     'availability_zone') if name in fields}
    uuid = fields.get('instance_uuid', _first(instance_uuids))
    if uuid is not None:
        instance['uuid'] = uuid
    if flavor:
        instance |= {name: flavor.get(name) for name in (
            'root_gb', 'ephemeral_gb', 'memory_mb', 'vcpus')}
    return {'request_spec': {
        'num_instances': fields.get(
            'num_instances', len(instance_uuids) or 1),
        'image': legacy_image(fields.get('image')),
        'instance_properties': instance,
        'instance_type': flavor,
    }}


def _first(values: Sequence[str] | None) -> str | None:
    return values[0] if values else None


def _destination(destination: Any) -> dict[str, Any] | None:
    fields = envelope.fields_of(destination)
    if fields is None:
        return None
    requested = {name: fields[name] for name in ('host', 'node')
                 if fields.get(name) is not None}
    cell = CELL.fill(fields.get('cell'))
    if cell is not None:
        requested['cell'] = cell
    return DESTINATION.fill(fields, **requested)


def _retry(retry: Any) -> dict[str, Any] | None:
    fields = envelope.fields_of(retry)
    if fields is None:
        return None
    nodes = map(envelope.fields_of, envelope.members_of(fields.get('hosts')))
    return RETRIES.fill(fields, hosts=[
        node.get('hypervisor_hostname') for node in nodes if node])
