# SPDX-License-Identifier: Apache-2.0
"""Claims of the servers of one request, in Placement."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from keystoneauth1 import exceptions as ks_exceptions
from nova import exception as nova_exception
from nova.scheduler import utils
from oslo_log import log

from cellsched.claims import base
from cellsched import exception
from cellsched_nova import owed_releases
from cellsched_nova import placement

LOG = log.getLogger(__name__)

AllocationRequest = Mapping[str, Any]

#: Errors after which nobody knows whether a claim was taken. The client looks
#: for a list of errors in an answer, which servers in between do not make.
_UNKNOWN = (ks_exceptions.ClientException, KeyError, ValueError)


class NotTogether(Exception):
    """The instances of a request cannot be claimed for together.

    :ivar provider: one that has no room for all; None where an instance holds
        something
    """

    def __init__(self, provider: str | None) -> None:
        super().__init__(provider)
        self.provider = provider


class ServerClaims:
    """Claims the hosts of one request, and gives them back.

    A server that holds nothing is claimed for by the product's claim store,
    which never takes more than there is, and does or undoes what it was not
    answered. One that holds a claim already, as one that is evacuated, has
    both then: Nova's client writes such a body.

    :param context: an administrator's
    :param client: Nova's report client
    :param store: the product's claim store
    :param owed: is told what could not be given back
    :param spec: Nova's request
    """

    def __init__(
        self, context: Any, client: Any, store: base.ClaimStore,
        owed: owed_releases.OwedReleases, spec: Any,
    ) -> None:
        self._context = context
        self._client = client
        self._store = store
        self._owed = owed
        self._project_id = spec.project_id
        # Requests of old servers have no user.
        self._user_id = (spec.user_id if 'user_id' in spec and spec.user_id
                         else context.user_id)
        self._spec = spec
        # Of instances that hold what was claimed here, and nothing else.
        self._new: list[base.Claim] = []
        self._is_answering = True
        # By instance that held something before, what was claimed here.
        self._added: dict[str, AllocationRequest] = {}
        #: For each write what it took of each provider.
        self.writes: list[dict[str, dict[str, int]]] = []

    def claim_all(
        self, wanted: Sequence[tuple[str, AllocationRequest]]
    ) -> str | None:
        """Claim for all of these instances, or for none of them.

        :returns: a provider that has no room for all; None where all have
            what they want
        :raises cellsched.exception.ClaimConflict: one holds something
        :raises cellsched.exception.DatabaseUnreachable: Placement did not
            answer
        """
        claims = [base.Claim(uuid, provider, dict(asked['resources']),
                             project_id=self._project_id,
                             user_id=self._user_id)
                  for uuid, request in wanted
                  for provider, asked in request['allocations'].items()]
        try:
            self._owed.pay([uuid for uuid, _ in wanted])
            taken = self._store.claim(claims)
        except exception.ClaimRefused as exc:
            return exc.provider
        except exception.DatabaseUnreachable:
            # It may be held all the same.
            self._new += claims
            self._is_answering = False
            raise
        self._new += claims
        if taken == len(claims):
            self.writes.append(_total(claims))
        return None

    def claim_together(
        self, wanted: Sequence[tuple[str, AllocationRequest]]
    ) -> None:
        """Claim for all instances of a request with one write.

        :raises NotTogether: nothing is claimed
        :raises cellsched.exception.DatabaseUnreachable: Placement did not
            answer
        """
        try:
            refused = self.claim_all(wanted)
        except exception.ClaimConflict:
            raise NotTogether(None) from None
        if refused is not None:
            raise NotTogether(refused)

    def claim(self, uuid: str, allocation_request: AllocationRequest) -> bool:
        """Claim an allocation request; return False if there is no room.

        :param uuid: of the instance
        :raises cellsched.exception.DatabaseUnreachable: Placement did not
            answer
        :raises nova.exception.AllocationUpdateFailed: somebody else changes
            what the instance holds
        :raises keystoneauth1.exceptions.ClientException: Placement did not
            answer, and nothing is claimed, as far as it says
        """
        try:
            return self.claim_all([(uuid, allocation_request)]) is None
        except exception.ClaimConflict:
            return self._claim_beside(uuid, allocation_request)

    def _claim_beside(self, uuid: str, request: AllocationRequest) -> bool:
        """Claim for an instance that keeps what it holds."""
        try:
            taken = utils.claim_resources(
                self._context, self._client, self._spec, uuid, request,
                allocation_request_version=placement.CANDIDATES)
        except _UNKNOWN as exc:
            LOG.warning('Instance %s: the outcome of a claim is unknown, and '
                        'is read: %s', uuid, exc)
            taken = self._holds(uuid, request)
            if not taken:
                raise
        if taken:
            self._added[uuid] = request
            self.writes.append({
                provider: dict(asked['resources']) for provider, asked
                in request['allocations'].items()})
        return bool(taken)

    def give_back(self) -> None:
        """Release what was claimed here; what was held before stays."""
        new, self._new = self._new, []
        added, self._added = self._added, {}
        if new and not self._is_answering:
            # Who waits for an answer has waited for long already.
            self._owed.add(new)
        elif new:
            try:
                self._store.release({each.consumer for each in new})
            except exception.CellschedException as exc:
                LOG.warning('Claims could not be released: %s', exc)
                self._owed.add(new)
        for uuid, request in added.items():
            try:
                self._release(uuid, request)
            except (*_UNKNOWN, nova_exception.NovaException):
                LOG.exception('Instance %s: its claim could not be released, '
                              'and stays', uuid)

    def _release(self, uuid: str, request: AllocationRequest) -> None:
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

    def _holds(self, uuid: str, request: AllocationRequest) -> bool:
        """Return whether an instance has what was asked for."""
        held = self._client.get_allocs_for_consumer(
            self._context, uuid)['allocations']
        return bool(held) and all(
            provider in held and all(
                held[provider]['resources'].get(name, 0) >= amount
                for name, amount in asked['resources'].items())
            for provider, asked in request['allocations'].items())


def _total(claims: Iterable[base.Claim]) -> dict[str, dict[str, int]]:
    """Return what claims take of each provider together."""
    found: dict[str, dict[str, int]] = {}
    for claim in claims:
        taken = found.setdefault(claim.provider, {})
        for name, amount in claim.resources.items():
            taken[name] = taken.get(name, 0) + amount
    return found
