# SPDX-License-Identifier: Apache-2.0
"""Placement as the product's claim store asks for it, by Nova's client."""

import random
from typing import Any

from cellsched.claims import placement as placement_claims
from cellsched.claims.placement import client as product_client
from cellsched.claims.placement import messages
from cellsched import clock


class ReportClient:
    """Sends each request by Nova's report client, which knows how to log in.

    :param client: Nova's report client
    """

    url = 'the Placement of Nova'

    def __init__(self, client: Any) -> None:
        self._client = client

    def send(
        self, request: messages.PlacementRequest
    ) -> messages.PlacementAnswer:
        method = getattr(self._client, request.method.lower())
        bodies = ((request.body,) if request.method in ('POST', 'PUT')
                  else ())
        with product_client.translated_errors():
            answer = method(request.path, *bodies, version=messages.VERSION)
        return product_client.answer_of(answer)


def claim_store(
    client: Any, retry_timeout_s: float
) -> placement_claims.PlacementClaims:
    """Return the product's claim store on the Placement of Nova.

    :param client: Nova's report client
    :param retry_timeout_s: seconds for which a claim is repeated that
        Placement does not answer
    """
    return placement_claims.PlacementClaims(
        ReportClient(client), clock.Clock(), random.Random(),
        retry_timeout_s=retry_timeout_s)
