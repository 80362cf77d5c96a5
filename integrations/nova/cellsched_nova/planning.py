# SPDX-License-Identifier: Apache-2.0
"""Plans on the hosts of a deployment of Nova, which take nothing."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from nova import context as nova_context
from nova import exception as nova_exception

from cellsched.context import RequestContext
from cellsched import objects
from cellsched.scheduler.explanation import decision_record
from cellsched_nova import deciding
from cellsched_nova import decision_parts
from cellsched_nova import requests


class NovaPlanner:
    """Decides as the scheduler does, by either way, and claims nothing.

    :param parts: what decides; what it is to record is not
    """

    def __init__(self, parts: decision_parts.Parts) -> None:
        # A plan is the same each time, whichever process makes it.
        self._parts = dataclasses.replace(
            parts, policy=dataclasses.replace(parts.policy, start=0.0))

    def plan(
        self, context: RequestContext, request: objects.RequestSpec,
        uuids: Sequence[str], alternates: int,
    ) -> tuple[list[list[Any]], decision_record.Decision]:
        """Return for each server its host and others, and the decision.

        Nothing is chosen, and there is a reason, where not all of them fit.

        :raises cellsched.exception.Invalid: Nova's API would have refused it
        """
        kept: list[decision_record.Decision] = []
        parts = dataclasses.replace(
            self._parts, record=lambda *said: kept.append(said[-1]))
        asking = nova_context.RequestContext(
            user_id=context.user_id, project_id=context.project_id,
            is_admin=True)
        decision = deciding.RequestDecision(
            parts, asking, requests.write(asking, request, uuids[0]), uuids,
            alternates, claim=False)
        try:
            places = decision.select()
        except nova_exception.NoValidHost as exc:
            if not kept:
                # Of a request that makes no sense nothing is recorded.
                raise exc.__cause__ or exc from None
            places = []
        return places, kept[-1]
