# SPDX-License-Identifier: Apache-2.0
"""The client of etcd, over the library etcd3gw.

The library knows one member; which one is asked is decided here. Nothing is
sent twice: a member that cannot be reached is left out at once, and where an
answer is missing the next request goes to another one.
"""

import base64
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import json
import os
from typing import Any
from typing import Self
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

_Answer = TypeVar('_Answer')

#: The path of the gateway from etcd 3.4 on.
_PATH = '/v3/'

#: gRPC's code of a login that does not hold any more, and what a member says
#: where there was none.
_UNAUTHENTICATED = 16
_NO_USER = 'user name is empty'

#: What a member says to what it does not even begin with.
_NOT_BEGUN = 'too many requests'


class EtcdClient:
    """Sends requests to the members of one cluster.

    May be used by several threads, but for :class:`.protocol.Changes`, which
    one at a time may ask for. A process that was forked from one that used it
    has connections of its own.

    :param timeout_s: seconds in which a member has to answer
    :param verify: whether to check certificates, or the file of authorities
    :param cert: files of one's own certificate and its key
    :param user: name and password, where these are asked for
    :param pool_size: connections that are kept to each member
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
        return cls(
            place, own.request_timeout, own.cafile or True,
            (own.certfile, own.keyfile) if own.certfile else None,
            (own.username, own.password or '') if own.username else None,
            own.max_pool_size)

    def close(self) -> None:
        """Close all connections; another request opens new ones."""
        members, self._members, self._process = self._members, [], 0
        self._stop_watching()
        for member in members:
            member.session.close()

    def send(self, request: protocol.Request) -> protocol.Answer:
        """Return the answer of a member.

        :raises cellsched.claims.remote.NotSent: no member can be reached
        :raises cellsched.claims.remote.OutcomeUnknown: one was asked, and did
            not answer
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
        # What was open is of another process.
        self._watch = None
        self._process = os.getpid()

    def _member(self, host: str, port: int) -> etcd3gw.Etcd3Client:
        session = MemberSession()
        # Neither a proxy nor a password of the environment is meant here.
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
        """Ask another member from now on, unless somebody does already."""
        if self._first == number:
            self._first = (number + 1) % len(self._members)

    def _ask(
        self, member: etcd3gw.Etcd3Client, request: protocol.Request
    ) -> protocol.Answer:
        answer = self._answer(member, request)
        if (isinstance(answer, protocol.Refused) and self._user is not None
                and (answer.code == _UNAUTHENTICATED
                     or _NO_USER in answer.reason)):
            refused = self._log_in(member)
            if refused is not None:
                return refused
            answer = self._answer(member, request)
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

    def _log_in(
        self, member: etcd3gw.Etcd3Client
    ) -> protocol.Refused | None:
        """Get a token for a member, or return why there is none."""
        assert self._user is not None
        name, password = self._user
        member.session.headers.pop('Authorization', None)
        try:
            told = _answered(lambda: member.post(
                member.get_url('/auth/authenticate'),
                json={'name': name, 'password': password}))
        except _RefusedByServer as exc:
            return exc.answer
        member.session.headers['Authorization'] = told['token']
        return None

    def _changes(
        self, member: etcd3gw.Etcd3Client, request: protocol.Changes
    ) -> protocol.Answer:
        watch = self._watch
        if watch is None or watch.position != request.after:
            self._stop_watching()
            if self._user is not None:
                # A watch does not say that its login does not hold.
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
    """A stream of what is written to a range of keys.

    It is read when somebody wants to know; what comes meanwhile waits in the
    connection, or in the server.

    :ivar position: up to this revision everything was read
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
        """Return what was written up to a revision, or later."""
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
                    return protocol.Compacted(compacted)
                raise remote.OutcomeUnknown(
                    f'a watch was canceled: {result.get("cancel_reason")}')
            for event in result.get('events', ()):
                written.append(_found(event['kv']))
            if written:
                self.position = max(self.position, written[-1].revision)
        return protocol.Changed(self.position, tuple(written))

    def _line(self) -> Any:
        line = next(self._lines, None)
        if line is None:
            raise remote.OutcomeUnknown('a watch ended')
        # A stream may have empty lines between messages.
        return json.loads(line) if line.strip() else {'result': {}}


class _RefusedByServer(Exception):

    def __init__(self, answer: protocol.Refused) -> None:
        super().__init__(answer.reason)
        self.answer = answer


def _answered(call: Callable[[], _Answer]) -> _Answer:
    """Return what a call of the library returns; its errors mean something."""
    try:
        return call()
    except (exceptions.ConnectionFailedError,
            exceptions.ConnectionTimeoutError) as exc:
        cause = exc.__context__
        reason = f'{exc.detail_text or ""} {" ".join(map(str, exc.args))}'
        raise _unanswered(cause, reason.strip()) from exc
    except exceptions.InternalServerError as exc:
        raise remote.OutcomeUnknown(_said(exc).reason) from exc
    except exceptions.Etcd3Exception as exc:
        answer = _said(exc)
        if _NOT_BEGUN in answer.reason:
            raise remote.NotSent(answer.reason) from exc
        raise _RefusedByServer(answer) from exc
    except (requests.RequestException, urllib3.exceptions.HTTPError,
            ValueError) as exc:
        raise _unanswered(exc, str(exc)) from exc


def _unanswered(
    cause: BaseException | None, reason: str
) -> remote.NotSent | remote.OutcomeUnknown:
    """Return the error that says whether a request can have been sent."""
    if isinstance(cause, (requests.ConnectTimeout,
                          requests.exceptions.SSLError)):
        return remote.NotSent(reason)
    if isinstance(cause, requests.ConnectionError) and cause.args:
        inner = getattr(cause.args[0], 'reason', None)
        if isinstance(inner, urllib3.exceptions.NewConnectionError):
            return remote.NotSent(reason)
    return remote.OutcomeUnknown(reason)


def _said(error: exceptions.Etcd3Exception) -> protocol.Refused:
    text = error.detail_text or ''
    try:
        told = json.loads(text)
        return protocol.Refused(
            int(told.get('code', 0)), str(told.get('message') or text))
    except (AttributeError, ValueError):
        return protocol.Refused(
            0, f'{" ".join(map(str, error.args))} {text:.200}'.strip())


def _transaction(request: protocol.Transaction) -> dict[str, Any]:
    failure = [_op(each) for each in request.failure]
    for compares, success in reversed(request.alternatives):
        failure = [{'request_txn': _branches(compares, success, failure)}]
    return _branches(request.compares, request.success, failure)


def _branches(
    compares: Iterable[protocol.Compare], success: Iterable[protocol.Op],
    failure: list[dict[str, Any]],
) -> dict[str, Any]:
    return {'compare': [_compare(each) for each in compares],
            'success': [_op(each) for each in success],
            'failure': failure}


def _compare(compare: protocol.Compare) -> dict[str, Any]:
    told = {'key': _encoded(compare.key), 'result': 'EQUAL'}
    if compare.value is not None:
        return {**told, 'target': 'VALUE', 'value': _encoded(compare.value)}
    return {**told, 'target': 'MOD', 'mod_revision': compare.revision}


def _op(op: protocol.Op) -> dict[str, Any]:
    key = _encoded(op.key)
    if isinstance(op, protocol.Put):
        return {'request_put': {'key': key, 'value': _encoded(op.value)}}
    if isinstance(op, protocol.Delete):
        return {'request_delete_range': {'key': key}}
    told: dict[str, Any] = {'key': key}
    if op.end:
        told |= {'range_end': _encoded(op.end), 'limit': op.limit}
    if op.is_local:
        told['serializable'] = True
    return {'request_range': told}


def _outcome(told: Any) -> protocol.TransactionOutcome:
    header, alternative = told['header'], 0
    while not told.get('succeeded') and (
            nested := told.get('responses')) and 'response_txn' in nested[0]:
        told = nested[0]['response_txn']
        alternative += 1
    succeeded = told.get('succeeded', False)
    return protocol.TransactionOutcome(
        succeeded, str(header['cluster_id']),
        int(header['revision']), tuple(
            tuple(map(_found, each['response_range'].get('kvs', ())))
            for each in told.get('responses', ())
            if 'response_range' in each),
        alternative if succeeded else 0)


def _found(told: Any) -> protocol.Found:
    return protocol.Found(
        base64.b64decode(told['key']),
        base64.b64decode(told.get('value', '')),
        int(told['mod_revision']), int(told['create_revision']))


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


class MemberSession(requests.Session):
    """Prepares once what all requests to an address have in common.

    That takes a quarter of the time of a request else. Of each there is its
    JSON besides; neither redirects nor cookies are heeded, of which etcd has
    none.
    """

    def __init__(self) -> None:
        super().__init__()
        # With the token that each was prepared for.
        self._prepared: dict[str, tuple[Any, requests.PreparedRequest]] = {}

    def post(
        self, url: str | bytes, data: Any = None, json: Any = None,
        **kwargs: Any,
    ) -> requests.Response:
        """Return the answer; of a stream, without its content."""
        address = str(url)
        # Who logs in again has another; the one before is of no use.
        token = self.headers.get('Authorization')
        of, prepared = self._prepared.get(address, (None, None))
        if prepared is None or of != token:
            prepared = self.prepare_request(
                requests.Request('POST', address, json={}))
            self._prepared[address] = token, prepared
        request = prepared.copy()
        request.prepare_body(data, None, json)
        return self.get_adapter(address).send(
            request, stream=kwargs.get('stream', False),
            timeout=kwargs.get('timeout'), verify=self.verify, cert=self.cert)
