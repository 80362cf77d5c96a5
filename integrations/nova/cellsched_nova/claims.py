# SPDX-License-Identifier: Apache-2.0
"""Claims in Placement, by Nova's report client."""

from collections.abc import Mapping
from typing import Any

from keystoneauth1 import exceptions as ks_exceptions
from nova import exception as nova_exception
from nova.scheduler import utils
from oslo_log import log

from cellsched_nova import placement

LOG = log.getLogger(__name__)

#: Errors after which nobody knows whether a claim was taken. The client looks
#: for a list of errors in an answer, which servers in between do not make.
_UNKNOWN = (ks_exceptions.ClientException, KeyError, ValueError)


class ServerClaims:
    """Claims the hosts of one request, and gives them back.

    Nova's client writes the body that each move wants: a server that holds a
    claim already, as one that is evacuated, has both.

    :param context: an administrator's
    :param client: Nova's report client
    :param spec: Nova's request
    """

    def __init__(self, context: Any, client: Any, spec: Any) -> None:
        self._context = context
        self._client = client
        self._spec = spec
        # By instance, what was claimed here.
        self._claimed: dict[str, Mapping[str, Any]] = {}

    def claim(self, uuid: str, allocation_request: Mapping[str, Any]) -> bool:
        """Claim an allocation request; return False if there is no room.

        :param uuid: of the instance
        :raises nova.exception.AllocationUpdateFailed: somebody else changes
            what the instance holds
        :raises keystoneauth1.exceptions.ClientException: Placement did not
            answer, and nothing is claimed, as far as it says
        """
        try:
            taken = utils.claim_resources(
                self._context, self._client, self._spec, uuid,
                allocation_request,
                allocation_request_version=placement.CANDIDATES)
        except _UNKNOWN as exc:
            LOG.warning('Instance %s: the outcome of a claim is unknown, and '
                        'is read: %s', uuid, exc)
            taken = self._holds(uuid, allocation_request)
            if not taken:
                raise
        if taken:
            self._claimed[uuid] = allocation_request
        return bool(taken)

    def give_back(self) -> None:
        """Release what was claimed here; what was held before stays."""
        for uuid, request in self._claimed.items():
            try:
                self._release(uuid, request)
            except (*_UNKNOWN, nova_exception.NovaException):
                LOG.exception('Instance %s: its claim could not be released, '
                              'and stays', uuid)
        self._claimed.clear()

    def _release(self, uuid: str, request: Mapping[str, Any]) -> None:
        held = self._client.get_allocs_for_consumer(
            self._context, uuid)['allocations']
        mine = request['allocations'].keys()
        if held.keys() <= mine:
            self._client.delete_allocation_for_instance(
                self._context, uuid, force=True)
            return
        for provider in mine & held.keys():
            self._client.remove_provider_tree_from_instance_allocation(
                self._context, uuid, provider)

    def _holds(self, uuid: str, request: Mapping[str, Any]) -> bool:
        """Return whether an instance has what was asked for."""
        held = self._client.get_allocs_for_consumer(
            self._context, uuid)['allocations']
        return bool(held) and all(
            provider in held and all(
                held[provider]['resources'].get(name, 0) >= amount
                for name, amount in asked['resources'].items())
            for provider, asked in request['allocations'].items())
