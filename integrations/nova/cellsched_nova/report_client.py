# SPDX-License-Identifier: Apache-2.0
"""Nova's report client, and the deadline of a request for its answers.

All Placement requests of one scheduling request share a deadline. Each gets
the time that remains, and none begins afterwards.
"""

from collections.abc import Iterator
import contextlib
import contextvars
import dataclasses
import math
import time
from typing import Any
from typing import NoReturn

from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import loading
from keystoneauth1.session import TCPKeepAliveAdapter
from nova.scheduler.client import report
from nova import utils
from oslo_log import log
import requests

from cellsched.claims.placement import client as product_client
from cellsched.claims.placement import messages
from cellsched.claims import remote
from cellsched import exception
from cellsched import plugins

LOG = log.getLogger(__name__)

#: The group of Nova's options of Placement.
_GROUP = 'placement'

#: Why a request is not sent after the deadline.
_PASSED = 'the deadline has passed'

#: Number of connections that are kept open.
_CONNECTIONS_MAX = 64


@dataclasses.dataclass
class _Request:
    """A scheduling request in progress.

    :param until: monotonic time of its deadline; -inf if nothing is retried,
        and each answer may take its usual time
    :ivar problem: the last failure of a Placement request that was retried
    """

    until: float
    problem: str = ''


#: The request of this thread, and of the threads that read for it.
_CURRENT: contextvars.ContextVar[_Request | None] = contextvars.ContextVar(
    'request', default=None)


class Deadline:
    """The time at which a request stops waiting for Placement.

    :param timeout_s: seconds to retry outside of a request
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s

    @contextlib.contextmanager
    def of_request(self, timeout_s: float) -> Iterator[None]:
        """Limit the waits of a request of this thread.

        :param timeout_s: seconds for all answers and retries; 0 for no
            retries, and for the usual time of each answer
        """
        token = _CURRENT.set(_Request(
            time.monotonic() + timeout_s if timeout_s else -math.inf))
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def remaining_s(self) -> float:
        """Return the seconds that remain for retries."""
        request = _CURRENT.get()
        if request is None:
            return self.timeout_s
        return max(0.0, request.until - time.monotonic())

    @property
    def is_over(self) -> bool:
        """True if the deadline of a request of this thread has passed."""
        request = _CURRENT.get()
        return request is not None and time.monotonic() >= request.until


def _answer_s() -> float | None:
    """Return the seconds that an answer may take; None for its usual time."""
    request = _CURRENT.get()
    if request is None or request.until == -math.inf:
        return None
    return request.until - time.monotonic()


class Connections(requests.Session):
    """Connections whose answers end at the deadline of the request.

    This holds for the requests to Keystone, too.
    """

    def __init__(self) -> None:
        super().__init__()
        for scheme in 'http://', 'https://':
            self.mount(scheme, TCPKeepAliveAdapter(
                pool_maxsize=_CONNECTIONS_MAX))

    def request(  # type: ignore[override]
        self, method: str, url: str, **named: Any
    ) -> requests.Response:
        remaining_s = _answer_s()
        if remaining_s is not None:
            if remaining_s <= 0:
                raise requests.exceptions.ConnectTimeout(_PASSED)
            named['timeout'] = min(
                remaining_s, named.get('timeout') or remaining_s)
        return super().request(method, url, **named)


class BoundedReportClient(report.SchedulerReportClient):
    """Nova's report client, whose answers end at the deadline.

    It is made while Keystone and Placement are away. Its requests are not
    repeated by keystoneauth1, even if Nova's options say so: this scheduler
    repeats them.

    :param conf: Nova's configuration
    """

    def __init__(self, conf: Any) -> None:
        self.connections = Connections()
        adapter = utils.get_ksa_adapter(
            _GROUP, ksa_session=loading.load_session_from_conf_options(
                conf, _GROUP, auth=loading.load_auth_from_conf_options(
                    conf, _GROUP), session=self.connections))
        adapter.connect_retries = adapter.status_code_retries = 0
        super().__init__(adapter)


def check(client: BoundedReportClient) -> None:
    """Check that Keystone accepts the credentials, and close the connections.

    A process that is forked afterwards inherits none. If Keystone or Placement
    do not answer, the log has a warning.

    :raises keystoneauth1.exceptions.MissingAuthPlugin: no credentials are
        configured
    :raises keystoneauth1.exceptions.Unauthorized: Keystone refuses them
    """
    try:
        client.get('/')
    except (ks_exceptions.MissingAuthPlugin, ks_exceptions.Unauthorized):
        raise
    except ks_exceptions.ClientException as exc:
        LOG.warning('Placement cannot be reached, and no server can be '
                    'placed before: %s', plugins.said_by(exc))
    finally:
        client.connections.close()


class ReportClient:
    """Sends the requests of the product's claim store to Placement.

    At the deadline of a scheduling request no request is retried, even if
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
        remaining_s = _answer_s()
        if remaining_s is not None and remaining_s <= 0:
            raise_unreachable(_with_earlier(_PASSED))
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
                raise_unreachable(_with_earlier(str(exc)))
            raise
        if answer.is_conflict or answer.status >= 500:
            _note(f'it answered {answer.status} {answer.detail}')
        return answer


def _note(problem: str) -> None:
    """Keep the failure of a Placement request that will be retried."""
    request = _CURRENT.get()
    if request is not None:
        request.problem = problem.rstrip()


def _with_earlier(reason: str) -> str:
    """Return a reason together with the failure before it."""
    request = _CURRENT.get()
    if request is None or not request.problem:
        return reason
    return f'{reason}; before, {request.problem}'


def raise_unreachable(reason: str) -> NoReturn:
    """Report that Placement did not answer until the deadline.

    :raises cellsched.exception.DatabaseUnreachable: always
    """
    raise exception.DatabaseUnreachable(
        schema='claims', url=ReportClient.url, reason=reason)
