# SPDX-License-Identifier: Apache-2.0
"""Nova's requests, restored from the notifications of nova-scheduler.

A notification has some fields of a request. The database of Nova's API has
more. The result names the missing ones.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from nova import exception as nova_exception
from nova import objects as nova_objects
from nova.pci import request as pci_request
from nova.scheduler import utils
from nova.virt import hardware

from cellsched import exception

#: The fields that identify a flavor, and the requested resources.
_FLAVOR = ('flavorid', 'memory_mb', 'vcpus', 'root_gb', 'ephemeral_gb', 'swap')

#: Other fields of flavors in notifications.
_FLAVOR_DETAILS = ('name', 'rxtx_factor', 'vcpu_weight', 'disabled',
                   'is_public', 'description')

_DEVICE_PROFILE = 'accel:device_profile'

_MISSING_OF_MOVES = 'destinations of moves and hosts to ignore'


class RequestUnknown(exception.CellschedException):
    """A request with too few known fields for a decision."""

    msg_fmt = 'The request cannot be restored: %(reason)s'


@dataclasses.dataclass(frozen=True)
class NotifiedRequest:
    """A request from a notification.

    :param instance: uuid of the first instance
    :param spec: Nova's request
    :param missing: the requirements that no source has
    """

    instance: str
    spec: Any
    missing: tuple[str, ...] = ()


def instance_of(payload: Mapping[str, Any]) -> str:
    """Return the uuid of the instance in a notification.

    In a request for several instances, this is the current one.

    :raises RequestUnknown: the notification names no instance
    """
    fields = _versioned(payload)
    properties = _part(_part(payload, 'request_spec'), 'instance_properties')
    uuid = properties.get('uuid') if fields is None else fields.get(
        'instance_uuid')
    if not isinstance(uuid, str):
        raise RequestUnknown(reason='no instance is named')
    return uuid


def refused(payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the request of a versioned error of Nova's conductor.

    The result is None unless Nova found no host. In a request for several
    instances, each has an error, and only that of the first has a result.
    """
    if payload.get('nova_object.name') != 'ComputeTaskPayload':
        return None
    error = _data(payload)
    request = error.get('request_spec')
    if (_data(error.get('reason')).get('exception') != 'NoValidHost'
            or _data(request).get('instance_uuid')
            != error.get('instance_uuid')):
        return None
    return _part(error, 'request_spec')


def read(
    context: Any, payload: Mapping[str, Any], conf: Any
) -> NotifiedRequest:
    """Return the request of a notification, in either format.

    Blocks while the database of Nova's API is read.

    :param context: the requester's context from the notification
    :param conf: Nova's configuration
    :raises RequestUnknown: the request was deleted, or the notification is
        invalid
    """
    uuid = instance_of(payload)
    try:
        spec = nova_objects.RequestSpec.get_by_instance_uuid(
            context.elevated(), uuid)
        fields = _versioned(payload)
        missing = (_read_dict(context, spec, payload['request_spec'])
                   if fields is None else _read_object(context, spec, fields))
        spec.requested_resources = []
        if spec.pci_requests is not None:
            spec.generate_request_groups_from_pci_requests()
    except (nova_exception.NovaException, AttributeError, LookupError,
            TypeError, ValueError) as exc:
        raise RequestUnknown(reason=str(exc) or type(exc).__name__) from exc
    if _DEVICE_PROFILE in (spec.flavor.extra_specs or {}):
        missing.append('devices of a device profile')
    if conf.scheduler.query_placement_for_routed_network_aggregates:
        missing.append('networks')
    return NotifiedRequest(uuid, spec, tuple(missing))


def _read_object(
    context: Any, spec: Any, fields: Mapping[str, Any]
) -> list[str]:
    """Copy the fields of a versioned notification; return missing fields."""
    _set_flavor(spec, _data(fields['flavor']))
    spec.num_instances = fields['num_instances']
    spec.availability_zone = fields['availability_zone']
    spec.ignore_hosts = fields['ignore_hosts']
    spec.scheduler_hints = fields['scheduler_hints']
    for name in ('force_hosts', 'force_nodes'):
        setattr(spec, name, [fields[name]] if fields[name] else None)
    spec.instance_group = _group(fields['instance_group'])
    target = _data(fields['requested_destination'])
    spec.requested_destination = None
    if target:
        # The filters compute the aggregates again.
        spec.requested_destination = nova_objects.Destination(**{
            name: target[name] for name in ('host', 'node')
            if target.get(name)})
        cell = _data(target.get('cell'))
        if cell:
            spec.requested_destination.cell = (
                nova_objects.CellMapping.get_by_uuid(
                    context.elevated(), cell['uuid']))
    return []


def _read_dict(
    context: Any, spec: Any, fields: Mapping[str, Any]
) -> list[str]:
    """Copy the fields of an unversioned notification; return missing fields.

    It lacks the hosts to ignore and the destination.
    """
    _set_flavor(spec, _part(fields, 'instance_type'))
    spec.num_instances = fields['num_instances']
    spec.availability_zone = fields['instance_properties'].get(
        'availability_zone')
    spec.requested_destination = None
    utils.setup_instance_group(context.elevated(), spec)
    mapping = nova_objects.InstanceMapping.get_by_instance_uuid(
        context.elevated(), spec.instance_uuid)
    # Only a server in a cell can move.
    return [] if mapping.cell_mapping is None else [_MISSING_OF_MOVES]


def _set_flavor(spec: Any, fields: Mapping[str, Any]) -> None:
    """Set the flavor; during a resize it differs from the stored flavor."""
    kept = spec.flavor
    # Extra specs are missing if Nova had not loaded them.
    extra_specs = fields.get('extra_specs')
    if not fields or all(fields.get(name) == getattr(kept, name)
                         for name in _FLAVOR) and (
            extra_specs is None or extra_specs == kept.extra_specs):
        return
    spec.flavor = flavor = nova_objects.Flavor(
        extra_specs=dict(extra_specs or {}),
        **{name: fields.get(name) for name in (*_FLAVOR, *_FLAVOR_DETAILS)
           if fields.get(name) is not None})
    image = spec.image or nova_objects.ImageMeta(
        properties=nova_objects.ImageMetaProps())
    spec.numa_topology = hardware.numa_get_constraints(flavor, image)
    requests = pci_request.get_pci_requests_from_flavor(
        flavor, affinity_policy=hardware.get_pci_numa_policy_constraint(
            flavor, image))
    if spec.pci_requests is not None:
        requests.requests += [
            each for each in spec.pci_requests.requests
            if each.source == nova_objects.InstancePCIRequest.NEUTRON_PORT]
    spec.pci_requests = requests


def _group(payload: Any) -> Any | None:
    group = _data(payload)
    if not group:
        return None
    return nova_objects.InstanceGroup(
        uuid=group['uuid'], name=group['name'], user_id=group['user_id'],
        project_id=group['project_id'], policy=group['policy'],
        members=group['members'] or [], hosts=group['hosts'] or [],
        rules=group['rules'] or {})


def _versioned(payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the fields of a versioned notification, otherwise None."""
    if payload.get('nova_object.name') != 'RequestSpecPayload':
        return None
    return _data(payload)


def _data(payload: Any) -> Mapping[str, Any]:
    """Return the fields of an object in a notification, or no fields."""
    return {} if payload is None else _part(payload, 'nova_object.data')


def _part(payload: Any, name: str) -> Mapping[str, Any]:
    found = payload.get(name) if isinstance(payload, Mapping) else None
    return found if isinstance(found, Mapping) else {}
