# SPDX-License-Identifier: Apache-2.0
"""Requests of Nova's, as its scheduler's notifications tell of them.

They tell a part. The rest is read where Nova's API keeps it; what is nowhere
is named.
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

#: What a flavor is known by, and what is asked for by it.
_FLAVOR = ('flavorid', 'memory_mb', 'vcpus', 'root_gb', 'ephemeral_gb', 'swap')

#: What else flavors have that is told.
_FLAVOR_BESIDE = ('name', 'rxtx_factor', 'vcpu_weight', 'disabled',
                  'is_public', 'description')

_DEVICE_PROFILE = 'accel:device_profile'

_UNTOLD_OF_MOVES = 'destinations of moves and hosts to ignore'


class RequestUnknown(exception.CellschedException):
    """A request of which too little is known."""

    msg_fmt = 'The request is not known: %(reason)s'


@dataclasses.dataclass(frozen=True)
class NotifiedRequest:
    """A request that Nova's scheduler told of.

    :param instance: uuid of the first instance
    :param spec: Nova's request
    :param missing: what nobody tells of it, and what may be asked for by it
    """

    instance: str
    spec: Any
    missing: tuple[str, ...] = ()


def instance_of(payload: Mapping[str, Any]) -> str:
    """Return the uuid of the instance that a notification is about.

    Of several that one is named which is chosen for at that moment.

    :raises RequestUnknown: none is named
    """
    said = _versioned(payload)
    properties = _part(_part(payload, 'request_spec'), 'instance_properties')
    uuid = properties.get('uuid') if said is None else said.get(
        'instance_uuid')
    if not isinstance(uuid, str):
        raise RequestUnknown(reason='no instance is named')
    return uuid


def read(
    context: Any, payload: Mapping[str, Any], conf: Any
) -> NotifiedRequest:
    """Return the request that a notification is about, of either form.

    May block: what Nova's API keeps of it is read.

    :param context: the requester's, as it was told
    :param conf: Nova's configuration
    :raises RequestUnknown: nothing of it is kept any more, or it makes no
        sense
    """
    uuid = instance_of(payload)
    try:
        spec = nova_objects.RequestSpec.get_by_instance_uuid(
            context.elevated(), uuid)
        said = _versioned(payload)
        missing = (_read_dict(context, spec, payload['request_spec'])
                   if said is None else _read_object(context, spec, said))
        spec.requested_resources = []
        if spec.pci_requests is not None:
            spec.generate_request_groups_from_pci_requests()
    except (nova_exception.NovaException, AttributeError, LookupError,
            TypeError, ValueError) as exc:
        raise RequestUnknown(
            reason=str(exc) or type(exc).__name__) from exc
    if _DEVICE_PROFILE in (spec.flavor.extra_specs or {}):
        missing.append('devices of a device profile')
    if conf.scheduler.query_placement_for_routed_network_aggregates:
        missing.append('networks')
    return NotifiedRequest(uuid, spec, tuple(missing))


def _read_object(
    context: Any, spec: Any, said: Mapping[str, Any]
) -> list[str]:
    """Take over what a versioned notification says; return what it lacks."""
    _set_flavor(spec, _data(said['flavor']))
    spec.num_instances = said['num_instances']
    spec.availability_zone = said['availability_zone']
    spec.ignore_hosts = said['ignore_hosts']
    spec.scheduler_hints = said['scheduler_hints']
    for name in ('force_hosts', 'force_nodes'):
        setattr(spec, name, [said[name]] if said[name] else None)
    spec.instance_group = _group(said['instance_group'])
    target = _data(said['requested_destination'])
    spec.requested_destination = None
    if target:
        # Aggregates are worked out again.
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
    context: Any, spec: Any, said: Mapping[str, Any]
) -> list[str]:
    """Take over what a notification without versions says."""
    _set_flavor(spec, _part(said, 'instance_type'))
    spec.num_instances = said['num_instances']
    spec.availability_zone = said['instance_properties'].get(
        'availability_zone')
    spec.requested_destination = None
    utils.setup_instance_group(context.elevated(), spec)
    mapping = nova_objects.InstanceMapping.get_by_instance_uuid(
        context.elevated(), spec.instance_uuid)
    # One that was never placed is in no cell yet.
    return [] if mapping.cell_mapping is None else [_UNTOLD_OF_MOVES]


def _set_flavor(spec: Any, said: Mapping[str, Any]) -> None:
    """Take over a flavor; one of a resize is another than is kept."""
    kept = spec.flavor
    # Whether extra specs are told depends on who had loaded them.
    extra_specs = said.get('extra_specs')
    if not said or all(said.get(name) == getattr(kept, name)
                       for name in _FLAVOR) and (
            extra_specs is None or extra_specs == kept.extra_specs):
        return
    spec.flavor = flavor = nova_objects.Flavor(
        extra_specs=dict(extra_specs or {}),
        **{name: said.get(name) for name in (*_FLAVOR, *_FLAVOR_BESIDE)
           if said.get(name) is not None})
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


def _group(said: Any) -> Any | None:
    group = _data(said)
    if not group:
        return None
    return nova_objects.InstanceGroup(
        uuid=group['uuid'], name=group['name'], user_id=group['user_id'],
        project_id=group['project_id'], policy=group['policy'],
        members=group['members'] or [], hosts=group['hosts'] or [],
        rules=group['rules'] or {})


def _versioned(payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what a versioned notification says; None of one that is none."""
    if payload.get('nova_object.name') != 'RequestSpecPayload':
        return None
    return _data(payload)


def _data(said: Any) -> Mapping[str, Any]:
    """Return the fields of an object that was told; of none nothing."""
    return {} if said is None else _part(said, 'nova_object.data')


def _part(said: Any, name: str) -> Mapping[str, Any]:
    found = said.get(name) if isinstance(said, Mapping) else None
    return found if isinstance(found, Mapping) else {}
