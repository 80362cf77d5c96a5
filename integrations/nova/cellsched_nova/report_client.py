# SPDX-License-Identifier: Apache-2.0
"""Placement as the product's claim store asks for it, by Nova's client."""

from typing import Any
from typing import NoReturn

from nova.scheduler.client import report

from cellsched.claims.placement import client as product_client
from cellsched.claims.placement import messages
from cellsched.claims import remote
from cellsched import exception
from cellsched_nova.deadline import Deadline


class LateReportClient:
    """Nova's report client, which is made when it is first used.

    It cannot be made until Keystone and Placement say where Placement is, and
    raises what keystoneauth1 says of that.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(report.report_client_singleton(), name)


class ReportClient:
    """Sends each request by Nova's report client, which knows how to log in.

    What is not answered is not asked again by a request that has waited for
    as long as it may, whatever the store's patience.

    :param client: Nova's report client
    """

    url = 'the Placement of Nova'

    def __init__(self, client: Any, patience: Deadline) -> None:
        self._client = client
        self._patience = patience

    def send(
        self, request: messages.PlacementRequest
    ) -> messages.PlacementAnswer:
        """Return the answer, whatever it is.

        :raises cellsched.exception.DatabaseUnreachable: there is none, nor
            time to ask again
        """
        bodies = ((request.body,) if request.method in ('POST', 'PUT')
                  else ())
        try:
            with product_client.translated_errors():
                send = getattr(self._client, request.method.lower())
                answer = product_client.answer_of(send(
                    request.path, *bodies, version=messages.VERSION))
            if self._patience.is_over:
                messages.checked(answer, *range(400, 500))
        except (remote.NotSent, remote.OutcomeUnknown) as exc:
            if self._patience.is_over:
                give_up(str(exc))
            raise
        return answer


def give_up(reason: str) -> NoReturn:
    """Tell that Placement was asked for long enough.

    :raises cellsched.exception.DatabaseUnreachable: in any case
    """
    raise exception.DatabaseUnreachable(
        schema='claims', url=ReportClient.url, reason=reason)
