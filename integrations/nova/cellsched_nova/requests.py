# SPDX-License-Identifier: Apache-2.0
"""Requests of Nova's as the product reads them, and which way they go."""

from collections.abc import Sequence

from cellsched import exception
from cellsched import objects
from cellsched.objects import base
from cellsched.objects import request_groups
from cellsched.scheduler import demands
from cellsched.scheduler.placement import group_members


def read(spec, uuids: Sequence[str]) -> objects.RequestSpec:
    """Return a request of Nova's as one of the product's.

    :param spec: Nova's ``RequestSpec``
    :param uuids: of the instances that are asked for now; what the request
        says of their number was so when they were built
    """
    request = base.Object.obj_from_primitive(spec.obj_to_primitive())
    request.num_instances = len(uuids)
    if uuids:
        request.instance_uuid = uuids[0]
    return group_members.with_members(request, uuids)


def beyond_columns(
    spec, request: objects.RequestSpec, unread: demands.Unread,
    given_by_others: frozenset[str], routed: bool,
) -> list[str]:
    """Return why a request cannot be decided on columns; mostly nothing.

    :param unread: finds what no column is read for
    :param given_by_others: resource classes that not only hosts give
    :param routed: whether segments of networks count
    """
    why = []
    if spec.requested_resources:
        why.append('groups of resources')
    if spec.numa_topology is not None:
        why.append('a NUMA topology')
    if spec.pci_requests is not None and spec.pci_requests.requests:
        why.append('PCI devices')
    if routed and request.get('requested_networks'):
        why.append('segments of networks')
    try:
        if request.group_demand() is not request_groups.NO_GROUPS:
            why.append('groups of the flavor')
        shared = sorted(given_by_others & request.resources().keys())
    except exception.InvalidField as exc:
        return [*why, str(exc)]
    if shared:
        why.append(f'{", ".join(shared)}, which not only hosts give')
    return [*why, *unread.names(request)]
