# SPDX-License-Identifier: Apache-2.0
"""Nova's report client as a client of the product's claim store.

All Placement requests of one scheduling request share a deadline.
"""

from collections.abc import Iterator
import contextlib
import threading
import time
from typing import Any
from typing import NoReturn

from nova.scheduler.client import report

from cellsched.claims.placement import client as product_client
from cellsched.claims.placement import messages
from cellsched.claims import remote
from cellsched import exception


class Deadline(threading.local):
    """The time at which a request stops retrying Placement, per thread.

    :param timeout_s: seconds to retry outside of a request
    """

    def __init__(self, timeout_s: float) -> None:
        super().__init__()
        self._timeout_s = timeout_s
        # Monotonic time.
        self._until: float | None = None

    @contextlib.contextmanager
    def of_request(self, timeout_s: float) -> Iterator[None]:
        """Limit the retries of a request of this thread, in seconds."""
        before, self._until = self._until, time.monotonic() + timeout_s
        try:
            yield
        finally:
            self._until = before

    def remaining_s(self) -> float:
        """Return the seconds that remain for retries."""
        if self._until is None:
            return self._timeout_s
        return max(0.0, self._until - time.monotonic())

    @property
    def is_over(self) -> bool:
        """True if the deadline of a request of this thread has passed."""
        return self._until is not None and time.monotonic() >= self._until


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
