# SPDX-License-Identifier: Apache-2.0
"""Hosts that the networks of a request restrict it to."""

from collections.abc import Sequence
from collections.abc import Set
import copy

from cellsched.context import RequestContext
from cellsched import exception
from cellsched.network import base
from cellsched import objects

#: The trait of hosts with devices that manage ports remotely.
REMOTE_MANAGED = 'COMPUTE_REMOTE_MANAGED_PORTS'


class NetworkRequirements:
    """Adds the requirements of a request's networks to the request.

    A network plug-in without host requirements is not called.

    :param routed: whether to restrict requests to the aggregates of the
        segments of routed networks
    """

    def __init__(self, network: base.NetworkAPI, routed: bool) -> None:
        self._network = network
        # Check the class of the plug-in itself, inside its failure wrapper.
        kind = network.__class__
        self._routed = routed and (
            kind.segment_aggregates is not base.NetworkAPI.segment_aggregates)
        self._managed = (kind.has_remote_managed_port
                         is not base.NetworkAPI.has_remote_managed_port)

    def add(
        self, context: RequestContext, request: objects.RequestSpec
    ) -> objects.RequestSpec:
        """Return the request with its networks' requirements; may block.

        :raises cellsched.exception.NoValidHost: the plug-in cannot determine
            the requirements
        """
        networks = request.get('requested_networks')
        if not networks or not (self._routed or self._managed):
            return request
        try:
            if self._routed:
                request = _in_aggregates(
                    request, self._network.segment_aggregates(
                        context, networks))
            if self._managed and self._network.has_remote_managed_port(
                    context, networks):
                request = _with_trait(request, REMOTE_MANAGED)
        except exception.NetworkError as exc:
            raise exception.NoValidHost(
                reason=exc.format_message(), rejections=[], placed=0) from exc
        return request


def _in_aggregates(
    request: objects.RequestSpec, aggregates: Sequence[Set[str]]
) -> objects.RequestSpec:
    """Return a request for hosts in one aggregate of each set."""
    if not aggregates:
        return request
    request = copy.copy(request)
    target = copy.copy(request.get('requested_destination'))
    if target is None:
        target = objects.Destination()
    target.aggregates = [*(target.get('aggregates') or ()), *(
        ','.join(sorted(each)) for each in aggregates)]
    request.requested_destination = target
    return request


def _with_trait(
    request: objects.RequestSpec, trait: str
) -> objects.RequestSpec:
    value = copy.deepcopy(request.get('request_level_params') or {
        'nova_object.name': 'RequestLevelParams',
        'nova_object.namespace': 'nova', 'nova_object.version': '1.1'})
    data = value.setdefault('nova_object.data', {})
    data['root_required'] = [*(data.get('root_required') or ()), trait]
    request = copy.copy(request)
    request.request_level_params = value
    return request
