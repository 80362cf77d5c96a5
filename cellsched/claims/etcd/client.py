# SPDX-License-Identifier: Apache-2.0
"""The client of etcd, over the library etcd3gw.

The library connects to one member, so the choice of a member is made here.
Requests are not repeated. A member that refuses connections is skipped at
once; after a missing answer the next request goes to another member.
"""

import base64
from collections.abc import Callable
from collections.abc import Iterator
import json
import os
from typing import Any
from typing import Self
from typing import TypeGuard
from typing import TypeVar

import etcd3gw
from etcd3gw import exceptions
from oslo_config import cfg
import requests
from requests import adapters
import urllib3

from cellsched.claims.etcd import options
from cellsched.claims.etcd import protocol
from cellsched.claims import remote
from cellsched.validation import files

_Answer = TypeVar('_Answer')

#: Path of the gateway since etcd 3.4.
_PATH = '/v3/'

#: Code of gRPC for an expired login, and messages of a member for a missing
#: login and for one from before a change of users, which only a JSON Web Token
#: shows.
_UNAUTHENTICATED = 16
_LOGIN_NEEDED = ('user name is empty', 'revision of auth store is old')

#: Path of a login, and the header with its token.
_LOGIN, _TOKEN = '/auth/authenticate', 'Authorization'

#: A member's message without authentication.
_NO_LOGIN = 'authentication is not enabled'

#: A member's message when it did not start the request.
_NOT_BEGUN = 'too many requests'


class EtcdClient:
    """Sends requests to the members of one cluster.

    Thread-safe, except that only one thread at a time may send
    :class:`.protocol.Changes`. A forked process opens its own connections.

    :param timeout_s: seconds to wait for an answer of a member
    :param verify: whether to check certificates, or a file of authorities
    :param cert: files of the client's certificate and key
    :param user: name and password, if authentication is enabled
    :param pool_size: number of connections kept to each member
    """

    def __init__(
        self, place: options.Endpoints, timeout_s: float = 5.0,
        verify: bool | str = True, cert: tuple[str, str] | None = None,
        user: tuple[str, str] | None = None, pool_size: int = 32,
    ) -> None:
        self._place = place
        self._timeout_s = timeout_s
        self._verify = verify
        self._cert = cert
        self._user = user
        self._pool_size = pool_size
        self._process = 0
        self._members: list[etcd3gw.Etcd3Client] = []
        self._first = 0
        self._watch: _Watch | None = None

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts, place: options.Endpoints) -> Self:
        """Return the client that a deployment configures."""
        own = conf.etcd
        files.check_tls('etcd', own)
        return cls(
            place, own.request_timeout, own.cafile or True,
            (own.certfile, own.keyfile) if own.certfile else None,
            (own.username, own.password or '') if own.username else None,
            own.max_pool_size)

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        members, self._members, self._process = self._members, [], 0
        self._stop_watching()
        for member in members:
            member.session.close()

    def send(self, request: protocol.Request) -> protocol.Answer:
        """Return the answer of a member.

        :raises cellsched.claims.remote.NotSent: no member can be reached
        :raises cellsched.claims.remote.OutcomeUnknown: a member received the
            request and did not answer
        """
        if self._process != os.getpid():
            self._open()
        error: remote.NotSent | None = None
        for _ in self._members:
            number = self._first
            try:
                return self._ask(self._members[number], request)
            except remote.NotSent as exc:
                error = exc
                self._leave(number)
            except remote.OutcomeUnknown:
                self._leave(number)
                raise
        assert error is not None
        raise error

    def _open(self) -> None:
        self._members = [self._member(*each) for each in self._place.members]
        # Connections of the parent process are not used.
        self._watch = None
        self._process = os.getpid()

    def _member(self, host: str, port: int) -> etcd3gw.Etcd3Client:
        session = MemberSession()
        # Ignore proxies and passwords of the environment.
        session.trust_env = False
        session.verify = self._verify
        session.cert = self._cert
        adapter = adapters.HTTPAdapter(
            pool_connections=1, pool_maxsize=self._pool_size)
        session.mount('http://', adapter)
        session.mount('https://', adapter)
        return etcd3gw.Etcd3Client(
            host, port, 'https' if self._place.tls else 'http',
            timeout=self._timeout_s, api_path=_PATH, session=session)

    def _leave(self, number: int) -> None:
        """Use the next member from now on, unless another thread did so."""
        if self._first == number:
            self._first = (number + 1) % len(self._members)

    def _ask(
        self, member: etcd3gw.Etcd3Client, request: protocol.Request
    ) -> protocol.Answer:
        token = member.session.headers.get(_TOKEN)
        answer = self._answer(member, request)
        if self._user is None or not _needs_login(answer):
            return answer
        # A login is costly for the member: use that of another thread.
        if member.session.headers.get(_TOKEN) == token:
            refused = self._log_in(member)
            if refused is not None:
                return refused
        answer = self._answer(member, request)
        if _needs_login(answer):
            # Users changed again.
            raise remote.NotSent(answer.reason)
        return answer

    def _answer(
        self, member: etcd3gw.Etcd3Client, request: protocol.Request
    ) -> protocol.Answer:
        try:
            if isinstance(request, protocol.Transaction):
                return _outcome(_answered(
                    lambda: member.transaction(_transaction(request))))
            if isinstance(request, protocol.MemberStatus):
                status = _answered(member.status)
                return protocol.Member(str(status.get('version', '')))
            return self._changes(member, request)
        except _RefusedByServer as exc:
            return exc.answer

    def _log_in(self, member: etcd3gw.Etcd3Client) -> protocol.Refusal | None:
        """Get a token from a member; return the answer if it is refused.

        A user may be configured before authentication is enabled.
        """
        assert self._user is not None
        name, password = self._user
        try:
            answer = _answered(lambda: member.post(
                member.get_url(_LOGIN),
                json={'name': name, 'password': password}))
        except _RefusedByServer as exc:
            return None if _NO_LOGIN in exc.answer.reason else exc.answer
        member.session.headers[_TOKEN] = answer['token']
        return None

    def _changes(
        self, member: etcd3gw.Etcd3Client, request: protocol.Changes
    ) -> protocol.Answer:
        watch = self._watch
        if watch is None or watch.position != request.after:
            self._stop_watching()
            if self._user is not None:
                # A watch does not report an expired login.
                refused = self._log_in(member)
                if refused is not None:
                    return refused
            watch = self._watch = _Watch(member, request, self._timeout_s)
        try:
            return watch.read(request.until)
        except BaseException:
            self._stop_watching()
            raise

    def _stop_watching(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()


class _Watch:
    """A stream of the writes to a range of keys.

    It is read on demand; until then messages wait in the connection or in the
    server.

    :ivar position: revision up to which everything was read
    """

    def __init__(
        self, member: etcd3gw.Etcd3Client, request: protocol.Changes,
        timeout_s: float,
    ) -> None:
        self.position = request.after
        self._response = _answered(lambda: member.session.post(
            member.get_url('/watch'), stream=True, timeout=timeout_s,
            json={'create_request': {
                'key': _encoded(request.key),
                'range_end': _encoded(request.end),
                'start_revision': request.after + 1,
                'filters': ['NODELETE'], 'progress_notify': True}}))
        self._lines: Iterator[bytes] = self._response.iter_lines(65536)

    def close(self) -> None:
        self._response.close()

    def read(self, until: int) -> protocol.Answer:
        """Return the writes up to a revision, and perhaps later writes."""
        written: list[protocol.Found] = []
        while self.position < until:
            line = _answered(self._line)
            result = line.get('result')
            if result is None:
                raise remote.OutcomeUnknown(
                    f'a watch ended: {str(line)[:200]}')
            if result.get('canceled'):
                compacted = int(result.get('compact_revision', 0))
                if compacted:
                    return protocol.CompactedAnswer(compacted)
                raise remote.OutcomeUnknown(
                    f'a watch was canceled: {result.get("cancel_reason")}')
            for event in result.get('events', ()):
                written.append(_found(event['kv']))
            if written:
                self.position = max(self.position, written[-1].revision)
        return protocol.ChangesAnswer(self.position, tuple(written))

    def _line(self) -> Any:
        line = next(self._lines, None)
        if line is None:
            raise remote.OutcomeUnknown('a watch ended')
        # A stream may have empty lines between messages.
        return json.loads(line) if line.strip() else {'result': {}}


def _needs_login(answer: protocol.Answer) -> TypeGuard[protocol.Refusal]:
    """Return whether a member refused a request for want of a valid login."""
    return isinstance(answer, protocol.Refusal) and (
        answer.code == _UNAUTHENTICATED
        or any(text in answer.reason for text in _LOGIN_NEEDED))


class _RefusedByServer(Exception):

    def __init__(self, answer: protocol.Refusal) -> None:
        super().__init__(answer.reason)
        self.answer = answer


def _answered(call: Callable[[], _Answer]) -> _Answer:
    """Call the library, and translate its errors."""
    try:
        return call()
    except (exceptions.ConnectionFailedError,
            exceptions.ConnectionTimeoutError) as exc:
        cause = exc.__context__
        reason = f'{exc.detail_text or ""} {" ".join(map(str, exc.args))}'
        raise _unanswered(cause, reason.strip()) from exc
    except exceptions.InternalServerError as exc:
        raise remote.OutcomeUnknown(_refusal_of(exc).reason) from exc
    except exceptions.Etcd3Exception as exc:
        answer = _refusal_of(exc)
        if _NOT_BEGUN in answer.reason:
            raise remote.NotSent(answer.reason) from exc
        if not answer.code:
            # Not etcd: a proxy answers, perhaps after etcd has done it.
            raise remote.OutcomeUnknown(answer.reason) from exc
        raise _RefusedByServer(answer) from exc
    except (requests.RequestException, urllib3.exceptions.HTTPError,
            ValueError) as exc:
        raise _unanswered(exc, str(exc)) from exc


def _unanswered(
    cause: BaseException | None, reason: str
) -> remote.NotSent | remote.OutcomeUnknown:
    """Return ``NotSent`` only if no member can have received a request."""
    if isinstance(cause, (requests.ConnectTimeout,
                          requests.exceptions.SSLError)):
        return remote.NotSent(reason)
    if isinstance(cause, requests.ConnectionError) and cause.args:
        inner = getattr(cause.args[0], 'reason', None)
        if isinstance(inner, urllib3.exceptions.NewConnectionError):
            return remote.NotSent(reason)
    return remote.OutcomeUnknown(reason)


def _refusal_of(error: exceptions.Etcd3Exception) -> protocol.Refusal:
    text = error.detail_text or ''
    try:
        body = json.loads(text)
        return protocol.Refusal(
            int(body.get('code', 0)), str(body.get('message') or text))
    except (AttributeError, ValueError):
        return protocol.Refusal(
            0, f'{" ".join(map(str, error.args))} {text:.200}'.strip())


def _transaction(request: protocol.Transaction) -> dict[str, Any]:
    return {'compare': [_compare(each) for each in request.compares],
            'success': [_op(each) for each in request.success],
            'failure': [_op(each) for each in request.failure]}


def _compare(compare: protocol.Compare) -> dict[str, Any]:
    body = {'key': _encoded(compare.key), 'result': 'EQUAL'}
    if compare.value is not None:
        return {**body, 'target': 'VALUE', 'value': _encoded(compare.value)}
    return {**body, 'target': 'MOD', 'mod_revision': compare.revision}


def _op(op: protocol.Op) -> dict[str, Any]:
    if isinstance(op, protocol.Transaction):
        return {'request_txn': _transaction(op)}
    key = _encoded(op.key)
    if isinstance(op, protocol.Put):
        return {'request_put': {'key': key, 'value': _encoded(op.value)}}
    if isinstance(op, protocol.Delete):
        return {'request_delete_range': {'key': key}}
    body: dict[str, Any] = {'key': key}
    if op.end:
        body |= {'range_end': _encoded(op.end), 'limit': op.limit}
    return {'request_range': body}


def _outcome(body: Any) -> protocol.TransactionOutcome:
    header = body['header']
    found = [tuple(map(_found, each['response_range'].get('kvs', ())))
             for each in body.get('responses', ()) if 'response_range' in each]
    return protocol.TransactionOutcome(
        body.get('succeeded', False), str(header['cluster_id']),
        int(header['revision']), tuple(found))


def _found(body: Any) -> protocol.Found:
    return protocol.Found(
        base64.b64decode(body['key']),
        base64.b64decode(body.get('value', '')), int(body['mod_revision']))


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


class MemberSession(requests.Session):
    """A session that prepares the requests to one address only once.

    The preparation takes a quarter of the time of a request. Only the JSON
    body differs. Redirects and cookies are ignored, as etcd has none.
    """

    def __init__(self) -> None:
        super().__init__()
        # By address: the token and the request prepared with it.
        self._prepared: dict[str, tuple[Any, requests.PreparedRequest]] = {}

    def post(
        self, url: str | bytes, data: Any = None, json: Any = None,
        **kwargs: Any,
    ) -> requests.Response:
        """Return the response; of a stream, without its content."""
        address = str(url)
        # A new login has another token.
        token = self.headers.get(_TOKEN)
        of, prepared = self._prepared.get(address, (None, None))
        if prepared is None or of != token:
            prepared = self.prepare_request(
                requests.Request('POST', address, json={}))
            if address.endswith(_LOGIN):
                # With an expired token, a member refuses the login, too.
                prepared.headers.pop(_TOKEN, None)
            self._prepared[address] = token, prepared
        request = prepared.copy()
        request.prepare_body(data, None, json)
        return self.get_adapter(address).send(
            request, stream=kwargs.get('stream', False),
            timeout=kwargs.get('timeout'), verify=self.verify, cert=self.cert)
