# SPDX-License-Identifier: Apache-2.0
"""Going on to the next host that a decision named."""

from collections.abc import Sequence

from oslo_log import log

from cellsched.claims import base as claims_base
from cellsched import exception
from cellsched import objects

LOG = log.getLogger(__name__)

#: Times to claim a host for a build that others claim another one for.
_CONFLICTS_MAX = 5


class Alternates:
    """Claims alternates, in place of the host that a build leaves."""

    def __init__(self, claims: claims_base.ClaimStore) -> None:
        self._claims = claims

    def claim_first(
        self, instance: objects.Instance, hosts: list[objects.Selection],
        group: objects.InstanceGroup | None,
    ) -> objects.Selection | None:
        """Claim the first host that has room; drop it and those before it.

        What the build holds is on the host that it leaves.
        """
        uuid = instance.uuid
        self._claims.release([uuid])
        while hosts:
            chosen = hosts.pop(0)
            try:
                self._claim(claims_base.of_selection(
                    uuid, chosen, group, instance.get('project_id'),
                    instance.get('user_id')))
            except exception.ClaimRefused as exc:
                LOG.info('%s is passed over for %s: %s',
                         chosen.service_host, uuid, exc)
            else:
                return chosen
        return None

    def _claim(self, claims: Sequence[claims_base.Claim]) -> None:
        """Claim what this build is to hold, in place of what it holds.

        A scheduler that was asked for its first host once more may have
        claimed since the build gave back what it held.
        """
        for left in reversed(range(_CONFLICTS_MAX)):
            try:
                self._claims.claim(claims)
                return
            except exception.ClaimConflict:
                if not left:
                    raise
                self._claims.release([claims[0].consumer])
