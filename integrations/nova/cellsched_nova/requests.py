# SPDX-License-Identifier: Apache-2.0
"""Conversion of requests between Nova and the product."""

from collections.abc import Sequence
from typing import Any

from nova import exception as nova_exception
from nova import objects as nova_objects
from nova.objects import base as nova_base
from nova.pci import request as pci_request
from nova.scheduler import utils
from nova.virt import hardware
from oslo_utils import strutils

from cellsched import exception
from cellsched import objects
from cellsched.objects import base
from cellsched.objects import request_groups
from cellsched.scheduler import requirements
from cellsched.scheduler.selection import selector

#: Fields that hold Nova's objects and are passed on unchanged.
_GIVEN = ('network_metadata', 'numa_topology', 'pci_requests',
          'request_level_params', 'requested_networks',
          'requested_resources')

#: The disk format of images that name none.
_DISK_FORMAT = 'raw'


def read(spec, uuids: Sequence[str]) -> objects.RequestSpec:
    """Return the product's request for a request of Nova.

    :param spec: Nova's ``RequestSpec``
    :param uuids: the instances of this call; ``num_instances`` of the spec is
        the number at the first build
    """
    request = base.Object.obj_from_primitive(spec.obj_to_primitive())
    # A request filter of Nova asks Neutron for the same.
    if request.get('requested_networks') and any(
            strutils.bool_from_string(each.get('remote_managed'))
            for asked in (spec.pci_requests.requests
                          if spec.pci_requests else ())
            for each in asked.spec):
        request.require_of_root(requirements.REMOTE_MANAGED)
    request.num_instances = len(uuids)
    if uuids:
        request.instance_uuid = uuids[0]
    return selector.with_members(request, uuids)


def beyond_columns(
    spec, request: objects.RequestSpec,
    unsupported: requirements.RequirementCheck,
    non_host_classes: frozenset[str], routed: bool,
    translated: bool = False,
) -> list[str]:
    """Return why a request cannot be decided on columns; often empty.

    :param unsupported: finds requirements that no column covers
    :param non_host_classes: resource classes of child and sharing providers
    :param routed: whether network segments count
    :param translated: whether a host may serve dedicated CPUs with VCPU
    """
    why = []
    if spec.requested_resources:
        why.append('groups of resources')
    if routed and request.get('requested_networks'):
        why.append('network segments')
    try:
        if request.group_demand() is not request_groups.NO_GROUPS:
            why.append('groups of the flavor')
        shared = sorted(non_host_classes & request.resources().keys())
        request.hardware()
        if translated and 'PCPU' in request.resources():
            why.append('dedicated CPUs, which some hosts offer as VCPU')
    except exception.Invalid as exc:
        return [*why, str(exc)]
    if shared:
        why.append(f'{", ".join(shared)} of child or sharing providers')
    return [*why, *unsupported.names(request)]


def write(context: Any, request: objects.RequestSpec, uuid: str) -> Any:
    """Return the request that Nova's API would make.

    The NUMA topology and PCI devices come from the flavor and the image, and
    the hosts of a server group from its members.

    :param uuid: uuid of the first instance
    :raises cellsched.exception.Invalid: Nova's API would reject the request
    """
    try:
        flavor = _revived(context, request.flavor.obj_to_primitive())
        image = _image(request)
        options = request.values_of((
            'ignore_hosts', 'force_hosts', 'force_nodes'))
        options['scheduler_hints'] = request.get('scheduler_hints') or {}
        target, group = (
            None if each is None else _revived(
                context, each.obj_to_primitive())
            for each in map(request.get, (
                'requested_destination', 'instance_group')))
        spec = nova_objects.RequestSpec.from_components(
            context, uuid, image, flavor,
            hardware.numa_get_constraints(flavor, image),
            pci_request.get_pci_requests_from_flavor(
                flavor, affinity_policy=(
                    hardware.get_pci_numa_policy_constraint(flavor, image))),
            {**options, 'requested_destination': target}, group,
            request.get('availability_zone'),
            project_id=request.get('project_id'),
            user_id=request.get('user_id'))
        spec.num_instances = request.get('num_instances') or 1
        spec.is_bfv = bool(request.get('is_bfv'))
        for name in _GIVEN:
            if request.get(name):
                setattr(spec, name, _revived(context, request.get(name)))
        if group is not None:
            utils.setup_instance_group(context, spec)
    except (nova_exception.NovaException, ValueError) as exc:
        raise exception.Invalid(str(exc)) from exc
    return spec


def _image(request: objects.RequestSpec) -> Any:
    """Return Nova's image, without properties if the request names none."""
    image = request.get('image')
    fields = {} if image is None else {
        name: image.get(name)
        for name in ('id', 'disk_format', 'min_ram', 'min_disk')
        if image.get(name) is not None}
    return nova_objects.ImageMeta.from_dict({
        'disk_format': _DISK_FORMAT, **fields,
        'properties': request.image_properties()})


def _revived(context: Any, primitive: Any) -> Any:
    """Return Nova's objects of their primitive form."""
    if isinstance(primitive, list):
        return [_revived(context, each) for each in primitive]
    return nova_base.NovaObject.obj_from_primitive(primitive, context=context)
