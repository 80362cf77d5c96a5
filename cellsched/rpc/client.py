# SPDX-License-Identifier: Apache-2.0
"""The base classes of RPC clients."""

from collections.abc import Callable
from concurrent import futures
import functools
import threading
from typing import Any
from typing import Generic
from typing import TypeAlias
from typing import TypeVar

import oslo_messaging

from cellsched import context as request_context
from cellsched import exception
from cellsched.observability import tracing
from cellsched.rpc import serializer
from cellsched.rpc import versions

#: Runs the function that sends a message.
Send: TypeAlias = Callable[[Callable[[], None]], None]


def directly(send: Callable[[], None]) -> None:
    """Send in the calling thread."""
    send()


class BackgroundSender:
    """Sends in other threads, and waits a limited time for each message.

    A broker that is short of memory or disk blocks its publishers.
    oslo.messaging waits for it without a configurable limit.

    :param executor: sends messages; its size limits how many may hang
    :param timeout_s: seconds to wait for a message to be sent
    """

    def __init__(self, executor: futures.Executor, timeout_s: float) -> None:
        self._executor = executor
        self._timeout_s = timeout_s

    def __call__(self, send: Callable[[], None]) -> None:
        """Send a message.

        :raises oslo_messaging.MessageDeliveryFailure: it was not sent in time;
            if sending has started, it may still succeed
        :raises Exception: an error of sending it
        """
        sent = self._executor.submit(tracing.bound(send))
        try:
            sent.result(self._timeout_s)
        except TimeoutError:
            # Sending may raise this error too, or end at this moment.
            if sent.cancel() or not sent.done():
                raise oslo_messaging.MessageDeliveryFailure(
                    'The broker did not accept the message within '
                    f'{self._timeout_s} s.') from None
            sent.result()


#: Maximum number of prepared (server, version) pairs that a client caches.
_PREPARED_MAX = 1024


class Client:
    """Sends messages to the servers of one topic.

    Lives as long as its transport. Thread-safe.

    :param version: default version of messages
    :param timeout_s: timeout of a call; by default
        ``[DEFAULT] rpc_response_timeout``
    :param long_timeout_s: timeout of :meth:`call_long`; by default
        ``timeout_s``
    :param retries_max: connection retries to a broker that does not answer;
        unlimited by default
    :param version_cap: newest version of messages to send, or a function that
        returns it
    :param version_min: lowest version that the sender requires
    :param now: returns seconds since the epoch by a clock that is shared with
        the servers; without it a call has no deadline
    :param send: sends casts, for example a
        :class:`cellsched.rpc.client.BackgroundSender`; by default the calling
        thread sends them without a time limit
    :raises cellsched.exception.ConfigurationInvalid: ``version_min`` is above
        the cap
    """

    def __init__(
        self, transport: oslo_messaging.Transport, topic: str, version: str,
        namespace: str | None = None, timeout_s: float | None = None,
        long_timeout_s: float | None = None,
        retries_max: int | None = None, version_cap: versions.Cap = None,
        version_min: str | None = None,
        now: Callable[[], float] | None = None,
        send: Send = directly,
    ) -> None:
        versions.check(topic, version_cap, version_min)
        self._topic = topic
        self._version = version
        self._version_cap = version_cap
        self._now = now
        self._send = send
        self._client = oslo_messaging.get_rpc_client(
            transport,
            oslo_messaging.Target(
                topic=topic, version=version, namespace=namespace),
            retry=retries_max, serializer=serializer.Serializer())
        self._timeout_s: float = (
            timeout_s or self._client.conf.rpc_response_timeout)
        self._long_timeout_s = long_timeout_s or self._timeout_s
        # Preparing takes longer than building the rest of the message.
        self._prepared = functools.lru_cache(_PREPARED_MAX)(self._prepare)

    def can_send(self, version: str) -> bool:
        """Return whether the cap allows a version."""
        return versions.can_send(version, self._cap())

    def call(
        self, context: request_context.RequestContext, method: str,
        version: str | None = None, server: str | None = None, /,
        **arguments: Any,
    ) -> Any:
        """Send a message to any server, or to the named one, and wait.

        The message contains the deadline. A server that receives it later
        rejects it.

        :returns: the return value of the method
        :raises oslo_messaging.MessagingTimeout: no reply in time; the method
            may have run, or may still run
        :raises oslo_messaging.MessageDeliveryFailure: the broker cannot be
            reached
        :raises cellsched.exception.VersionNotSendable: the version is above
            the cap
        """
        return self._call(context, method, self._timeout_s,
                          self._to(version, server), arguments)

    def call_long(
        self, context: request_context.RequestContext, method: str,
        version: str | None = None, server: str | None = None, /,
        **arguments: Any,
    ) -> Any:
        """Send a message whose processing may take long, and wait.

        The server sends heartbeats meanwhile, from one thread for each such
        call. The caller waits up to the long timeout, and up to the short
        timeout without a heartbeat.

        :returns: as :meth:`call`
        :raises Exception: as :meth:`call`
        """
        return self._call(context, method, self._long_timeout_s,
                          self._to(version, server, True), arguments)

    def _call(
        self, context: request_context.RequestContext, method: str,
        timeout_s: float, prepared: Any, arguments: dict[str, Any],
    ) -> Any:
        if self._now is not None:
            context = context.until(self._now() + timeout_s)
        try:
            return prepared.call(context, method, **arguments)
        except _broker_error() as exc:
            raise _undelivered(exc) from exc

    def cast(
        self, context: request_context.RequestContext, method: str,
        version: str | None = None, server: str | None = None, /,
        **arguments: Any,
    ) -> None:
        """Send a message to any server, or to the named one.

        Returns when the transport has the message, which waits there for a
        server.

        :raises oslo_messaging.MessageDeliveryFailure: the broker is
            unreachable
        :raises cellsched.exception.VersionNotSendable: the version is above
            the cap
        """
        try:
            prepared = self._to(version, server)
            self._send(functools.partial(
                prepared.cast, context, method, **arguments))
        except _broker_error() as exc:
            raise _undelivered(exc) from exc

    def _to(
        self, version: str | None, server: str | None, is_long: bool = False
    ) -> Any:
        version = version or self._version
        self._check_version(version)
        return self._prepared(version, server, is_long)

    def _prepare(self, version: str, server: str | None, is_long: bool) -> Any:
        if is_long:
            return self._client.prepare(
                version=version, server=server, timeout=self._long_timeout_s,
                call_monitor_timeout=self._timeout_s)
        return self._client.prepare(
            version=version, server=server, timeout=self._timeout_s)

    def _check_version(self, version: str) -> None:
        cap = self._cap()
        if not versions.can_send(version, cap):
            raise exception.VersionNotSendable(
                topic=self._topic, version=version, cap=cap)

    def _cap(self) -> str | None:
        cap = self._version_cap
        return cap() if callable(cap) else cap


_Client = TypeVar('_Client', bound=Client)


class Clients(Generic[_Client]):
    """The clients of one service in a process, one for each transport.

    :param make: returns the client of a transport
    """

    def __init__(
        self, make: Callable[[oslo_messaging.Transport], _Client]
    ) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._clients: dict[oslo_messaging.Transport, _Client] = {}

    def get(self, transport: oslo_messaging.Transport) -> _Client:
        """Return the client of a transport."""
        with self._lock:
            if transport not in self._clients:
                self._clients[transport] = self._make(transport)
            return self._clients[transport]


def _broker_error() -> type[Exception]:
    """Return the error of a connection that the broker refused."""
    # Import kombu only after a failure: it costs a command 40 ms of CPU.
    from kombu import exceptions

    error: type[Exception] = exceptions.OperationalError
    return error


def _undelivered(error: Exception) -> oslo_messaging.MessageDeliveryFailure:
    """Convert an error of a library below oslo.messaging."""
    return oslo_messaging.MessageDeliveryFailure(
        f'The broker cannot be reached: {error}')
