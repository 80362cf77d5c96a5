# SPDX-License-Identifier: Apache-2.0
"""Nova's report client as a client of the product's claim store."""

from typing import Any
from typing import NoReturn

from nova.scheduler.client import report

from cellsched.claims.placement import client as product_client
from cellsched.claims.placement import messages
from cellsched.claims import remote
from cellsched import exception
from cellsched_nova.deadline import Deadline


class LateReportClient:
    """Nova's report client, created at its first use.

    A report client cannot be created while Keystone or Placement do not
    answer; a call then raises an error of keystoneauth1.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(report.report_client_singleton(), name)


class ReportClient:
    """Sends each request with Nova's report client, which authenticates it.

    After the deadline of a scheduling request no request is retried, even if
    the claim store has a longer timeout.

    :param client: Nova's report client
    """

    url = 'the Placement of Nova'

    def __init__(self, client: Any, deadline: Deadline) -> None:
        self._client = client
        self._deadline = deadline

    def send(
        self, request: messages.PlacementRequest
    ) -> messages.PlacementAnswer:
        """Return the answer with any status.

        :raises cellsched.exception.DatabaseUnreachable: there is no answer,
            and the deadline has passed
        """
        bodies = ((request.body,) if request.method in ('POST', 'PUT')
                  else ())
        try:
            with product_client.translated_errors():
                send = getattr(self._client, request.method.lower())
                answer = product_client.answer_of(send(
                    request.path, *bodies, version=messages.VERSION))
            if self._deadline.is_over:
                messages.checked(answer, *range(400, 500))
        except (remote.NotSent, remote.OutcomeUnknown) as exc:
            if self._deadline.is_over:
                raise_unreachable(str(exc))
            raise
        return answer


def raise_unreachable(reason: str) -> NoReturn:
    """Report that Placement did not answer until the deadline.

    :raises cellsched.exception.DatabaseUnreachable: always
    """
    raise exception.DatabaseUnreachable(
        schema='claims', url=ReportClient.url, reason=reason)
