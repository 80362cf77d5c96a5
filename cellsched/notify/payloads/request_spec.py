# SPDX-License-Identifier: Apache-2.0
"""The payload of a request for servers.

============================  =============================================
Field of the versioned form   What it says
============================  =============================================
``instance_uuid``             the request's; else the first that was asked
                              for
``num_instances``             the request's; else how many were asked for
``project_id``, ``user_id``   who asks
``availability_zone``         the zone that was asked for
``flavor``                    ``FlavorPayload``
``image``                     ``ImageMetaPayload``, without what is secret
``numa_topology``             ``InstanceNUMATopologyPayload``
``pci_requests``              ``InstancePCIRequestsPayload``
``instance_group``            ``ServerGroupPayload``
``scheduler_hints``           lists of texts, by hint
``ignore_hosts``              names of hosts
``force_hosts``               the name of the first one
``force_nodes``               the name of the first one
``requested_destination``     ``DestinationPayload``; host, node and cell
                              only where they are asked for; the cell
                              without its URLs
``retry``                     ``SchedulerRetriesPayload``, the hosts by their
                              nodes' names
``security_groups``           uuids, or names where there is no uuid
============================  =============================================
"""

from collections.abc import Sequence
from typing import Any

from cellsched.notify.payloads import envelope
from cellsched.notify.payloads import hardware
from cellsched.notify.payloads import image
from cellsched import objects

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

CELL = envelope.Form('CellMappingPayload', '2.0', (
    'uuid', 'name', 'disabled'))

RETRIES = envelope.Form('SchedulerRetriesPayload', '1.0', ('num_attempts',))


def versioned(
    request: objects.RequestSpec, instance_uuids: Sequence[str]
) -> dict[str, Any]:
    """Return the payload of versioned notifications."""
    asked = envelope.fields_of(request) or {}
    uuid = asked.get('instance_uuid', _first(instance_uuids))
    payload = REQUEST_SPEC.fill(
        asked,
        instance_uuid=uuid,
        num_instances=asked.get('num_instances', len(instance_uuids) or 1),
        flavor=FLAVOR.fill(envelope.fields_of(asked.get('flavor'))),
        image=image.versioned(asked.get('image')),
        numa_topology=hardware.numa_topology(
            asked.get('numa_topology'), uuid),
        pci_requests=hardware.pci_requests(asked.get('pci_requests'), uuid),
        instance_group=_group(asked.get('instance_group')),
        force_hosts=_first(asked.get('force_hosts')),
        force_nodes=_first(asked.get('force_nodes')),
        requested_destination=_destination(
            asked.get('requested_destination')),
        retry=_retry(asked.get('retry')),
        security_groups=_security_groups(asked.get('security_groups')))
    assert payload is not None
    return payload


def legacy(
    request: objects.RequestSpec, instance_uuids: Sequence[str]
) -> dict[str, Any]:
    """Return the payload of unversioned notifications.

    A property of the instance that the request does not have is left out.
    """
    asked = envelope.fields_of(request) or {}
    flavor = envelope.plain(asked.get('flavor')) or {}
    instance: dict[str, Any] = {
        name: envelope.plain(asked[name])
        for name in ('numa_topology', 'pci_requests', 'project_id', 'user_id',
                     'availability_zone') if name in asked}
    uuid = asked.get('instance_uuid', _first(instance_uuids))
    if uuid is not None:
        instance['uuid'] = uuid
    if flavor:
        instance |= {name: flavor.get(name) for name in (
            'root_gb', 'ephemeral_gb', 'memory_mb', 'vcpus')}
    return {'request_spec': {
        'num_instances': asked.get('num_instances', len(instance_uuids) or 1),
        'image': image.legacy(asked.get('image')),
        'instance_properties': instance,
        'instance_type': flavor,
    }}


def _first(values: Sequence[str] | None) -> str | None:
    return values[0] if values else None


def _group(group: Any) -> dict[str, Any] | None:
    fields = envelope.fields_of(group)
    # On the wire rules have another name than everywhere else.
    rules = fields and (fields.get('_rules') or fields.get('rules'))
    return SERVER_GROUP.fill(fields, rules=envelope.plain(rules) or {})


def _destination(destination: Any) -> dict[str, Any] | None:
    fields = envelope.fields_of(destination)
    if fields is None:
        return None
    wanted = {name: fields[name] for name in ('host', 'node')
              if fields.get(name) is not None}
    cell = CELL.fill(envelope.fields_of(fields.get('cell')))
    if cell is not None:
        wanted['cell'] = cell
    return DESTINATION.fill(fields, **wanted)


def _retry(retry: Any) -> dict[str, Any] | None:
    fields = envelope.fields_of(retry)
    if fields is None:
        return None
    nodes = map(envelope.fields_of, envelope.members_of(fields.get('hosts')))
    return RETRIES.fill(fields, hosts=[
        node.get('hypervisor_hostname') for node in nodes if node])


def _security_groups(groups: Any) -> list[str | None]:
    known = filter(None, map(envelope.fields_of, envelope.members_of(groups)))
    return [group.get('uuid') or group.get('name') for group in known]
