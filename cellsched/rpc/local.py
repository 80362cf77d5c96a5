# SPDX-License-Identifier: Apache-2.0
"""The in-process transport: ``local://<world>/<virtual host>``.

This oslo.messaging driver carries messages between the threads of one
process. Host and virtual host of the URL together name a set of queues, so
that the cells of one world are separate, and so are the worlds of two tests.
Messages are serialized to JSON, as for a broker: sender and receiver share no
objects, and a value that a broker could not carry fails here too.

The transport neither polls nor owns a thread. The sending thread submits the
message to the server's executor, and a caller sleeps until the reply wakes
it.

:class:`Driver` and :class:`IncomingMessage` are base classes for other
in-process transports: they define the encoding of messages, replies and
errors.
"""

import abc
import collections
from collections.abc import Callable
from collections.abc import Iterable
import functools
import itertools
import json
import logging
import queue
import sys
import threading
from typing import Any
from typing import NamedTuple

import oslo_messaging
from oslo_messaging._drivers import base
from oslo_messaging._drivers import common
from oslo_serialization import jsonutils

from cellsched import clock

LOG = logging.getLogger(__name__)

#: Maximum number of queued messages at one address; more are refused.
WAITING_MAX = 100_000

#: The heartbeat that a server sends before its reply.
_AT_WORK = ''

#: The clock of the transport's callers, and of servers without one.
CLOCK = clock.Clock()

#: The name of messages in logs.
_NUMBERS = itertools.count(1)

#: Writes JSON in the same way as the drivers of brokers.
_text = json.JSONEncoder(default=jsonutils.to_primitive).encode


class _Address(NamedTuple):
    exchange: str | None
    topic: str
    server: str | None = None


class _Letter(NamedTuple):
    """A message in transit.

    ``replies`` is the queue of replies, or None if no reply is expected.
    ``monitor_s`` is how long the caller waits for a heartbeat.
    """

    text: str
    replies: 'queue.SimpleQueue[str] | None' = None
    monitor_s: float | None = None


class IncomingMessage(base.RpcIncomingMessage):
    """A message as its receiver sees it.

    :param text: the message as :class:`Driver` wrote it
    :param send_reply: sends the text of the reply, or an empty text as
        heartbeat; None if no reply is expected
    :param put_back: puts the message back into its queue
    :param monitor_s: how long the caller waits for a heartbeat
    """

    def __init__(
        self, text: str, send_reply: Callable[[str], None] | None,
        put_back: Callable[[], None] | None = None,
        monitor_s: float | None = None,
    ) -> None:
        super().__init__(*json.loads(text), msg_id=next(_NUMBERS))
        self.client_timeout = monitor_s
        self._send_reply = send_reply
        self._put_back = put_back

    def reply(self, reply: Any = None, failure: Any = None) -> None:
        if self._send_reply is None:
            return
        try:
            text = _reply_text(reply, failure)
        except Exception:
            # Report the error now, so that the caller need not time out.
            LOG.exception('RPC reply is not JSON serializable')
            text = _reply_text(None, sys.exc_info())
        self._send_reply(text)

    def heartbeat(self) -> None:
        if self._send_reply is not None:
            self._send_reply(_AT_WORK)

    def requeue(self) -> None:
        if self._put_back is None:
            raise NotImplementedError('This transport does not requeue')
        self._put_back()


def _reply_text(reply: Any, failure: Any) -> str:
    if failure:
        return _text({'failure': common.serialize_remote_exception(failure)})
    return _text({'result': reply})


class _World:
    """The queues and listeners of one virtual host."""

    def __init__(self) -> None:
        self.users = 0
        self._lock = threading.Lock()
        self._waiting: dict[_Address, collections.deque[_Letter]] = (
            collections.defaultdict(collections.deque))
        self._listeners: dict[_Address, collections.deque[_Listener]] = (
            collections.defaultdict(collections.deque))

    def put(
        self, address: _Address, letter: _Letter, first: bool = False
    ) -> None:
        """Pass the letter to the next listener, or queue it."""
        # Parse the message before taking the lock: parsing takes longest.
        incoming = self._opened(address, letter)
        with self._lock:
            listeners = self._listeners.get(address)
            if listeners:
                listeners.rotate(-1)
                listeners[-1].take(incoming)
                return
            waiting = self._waiting[address]
            if len(waiting) >= WAITING_MAX:
                raise oslo_messaging.MessageDeliveryFailure(
                    f'{WAITING_MAX} messages wait on topic {address.topic}')
            (waiting.appendleft if first else waiting.append)(letter)

    def put_to_all(self, address: _Address, letter: _Letter) -> None:
        """Pass the letter to each present listener; it is not queued."""
        with self._lock:
            for listener in self._listeners.get(address, ()):
                listener.take(self._opened(address, letter))

    def join(self, listener: '_Listener') -> None:
        """Add a listener, and pass it the queued messages."""
        with self._lock:
            for address in listener.addresses:
                for letter in self._waiting.pop(address, ()):
                    listener.take(self._opened(address, letter))
                self._listeners[address].append(listener)

    def leave(self, listener: '_Listener') -> None:
        """Remove a listener; it receives no message after the return."""
        with self._lock:
            for address in listener.addresses:
                listeners = self._listeners[address]
                if listener in listeners:
                    listeners.remove(listener)
                if not listeners:
                    del self._listeners[address]

    def _opened(self, address: _Address, letter: _Letter) -> IncomingMessage:
        return IncomingMessage(
            letter.text,
            None if letter.replies is None else letter.replies.put,
            functools.partial(self.put, address, letter, first=True),
            letter.monitor_s)


class _Listener(base.Listener):
    """Passes on the messages of some addresses, one at a time."""

    def __init__(
        self, world: _World, addresses: Iterable[_Address], batch_size: int,
        batch_timeout: float | None,
    ) -> None:
        super().__init__(batch_size, batch_timeout)
        self.addresses = tuple(addresses)
        self._world = world

    def start(self, on_incoming_callback: Callable[[list], Any]) -> None:
        super().start(on_incoming_callback)
        self._world.join(self)

    def take(self, incoming: IncomingMessage) -> None:
        self.on_incoming_callback([incoming])

    def stop(self) -> None:
        self._world.leave(self)
        super().stop()

    def cleanup(self) -> None:
        self.stop()


class Driver(base.BaseDriver):
    """An oslo.messaging driver whose messages are texts.

    A subclass defines how a text reaches its receiver, and how the text of a
    reply returns.
    """

    def require_features(self, requeue: bool = False) -> None:
        """Accept every requirement: requeueing is supported."""

    def send(
        self, target: Any, ctxt: Any, message: Any,
        wait_for_reply: bool | None = None, timeout: float | None = None,
        call_monitor_timeout: float | None = None, retry: int | None = None,
        transport_options: Any = None,
    ) -> Any:
        text, method = _text([ctxt, message]), message.get('method', '')
        if not wait_for_reply:
            return self.cast(target, method, text)
        reply = self.call(target, method, text, timeout, call_monitor_timeout)
        if reply is None:
            raise oslo_messaging.MessagingTimeout(
                f'No reply to {method} on topic {target.topic}')
        read = json.loads(reply)
        if 'failure' in read:
            raise common.deserialize_remote_exception(
                read['failure'], self._allowed_remote_exmods)
        return read['result']

    @abc.abstractmethod
    def cast(
        self, target: oslo_messaging.Target, method: str, text: str
    ) -> None:
        """Send a message that has no reply.

        :raises oslo_messaging.MessageDeliveryFailure: it cannot be sent
        """

    @abc.abstractmethod
    def call(
        self, target: oslo_messaging.Target, method: str, text: str,
        timeout_s: float | None, monitor_s: float | None,
    ) -> str | None:
        """Send a message, wait, and return the text of the reply.

        :param timeout_s: seconds to wait for the reply, None without a limit
        :param monitor_s: seconds to wait for a heartbeat, None without a limit
        :returns: None if neither arrived in time
        :raises oslo_messaging.MessageDeliveryFailure: it cannot be sent
        """


class LocalDriver(Driver):
    """The oslo.messaging driver of the in-process transport.

    A world and its queued messages are deleted when its last driver is
    cleaned up. Messages are acknowledged on delivery, as RPC servers do with
    a broker: messages that a server has received and not processed when it
    ends are lost.
    """

    def __init__(
        self, conf: Any, url: Any, default_exchange: str | None = None,
        allowed_remote_exmods: list[str] | None = None,
    ) -> None:
        super().__init__(conf, url, default_exchange, allowed_remote_exmods)
        self._world: _World | None = _enter(_name(url))

    def cast(
        self, target: oslo_messaging.Target, method: str, text: str
    ) -> None:
        self._post(target, _Letter(text))

    def call(
        self, target: oslo_messaging.Target, method: str, text: str,
        timeout_s: float | None, monitor_s: float | None,
    ) -> str | None:
        replies: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._post(target, _Letter(text, replies, monitor_s))
        return _wait(replies, timeout_s, monitor_s)

    def send_notification(
        self, target: Any, ctxt: Any, message: Any, version: float,
        retry: int | None = None,
    ) -> None:
        self._post(target, _Letter(_text([ctxt, message])))

    def listen(
        self, target: Any, batch_size: int, batch_timeout: float | None
    ) -> base.Listener:
        address = self._address(target)
        return _Listener(
            self._joined(), {address, address._replace(server=None)},
            batch_size, batch_timeout)

    def listen_for_notifications(
        self, targets_and_priorities: Iterable[tuple[Any, str]],
        pool: str | None, batch_size: int, batch_timeout: float | None,
    ) -> base.Listener:
        if pool:
            raise NotImplementedError(
                'The local transport has no pools of notification listeners')
        addresses = {
            self._address(target(topic=f'{target.topic}.{priority}',
                                 server=None))
            for target, priority in targets_and_priorities}
        return _Listener(self._joined(), addresses, batch_size, batch_timeout)

    def cleanup(self) -> None:
        world, self._world = self._world, None
        if world is not None:
            _leave(_name(self._url), world)

    def _post(self, target: Any, letter: _Letter) -> None:
        if target.fanout:
            self._joined().put_to_all(
                self._address(target)._replace(server=None), letter)
        else:
            self._joined().put(self._address(target), letter)

    def _address(self, target: Any) -> _Address:
        return _Address(target.exchange or self._default_exchange,
                        target.topic, target.server)

    def _joined(self) -> _World:
        if self._world is None:
            raise oslo_messaging.MessageDeliveryFailure(
                'The transport was closed')
        return self._world


def _wait(
    replies: 'queue.SimpleQueue[str]', timeout_s: float | None,
    monitor_s: float | None,
) -> str | None:
    """Return the reply; None if it or a heartbeat is late."""
    now = CLOCK.monotonic
    deadline = None if timeout_s is None else now() + timeout_s
    while True:
        waits = [] if monitor_s is None else [monitor_s]
        if deadline is not None:
            waits.append(max(deadline - now(), 0))
        try:
            text = replies.get(timeout=min(waits, default=None))
        except queue.Empty:
            return None
        if text != _AT_WORK:
            return text


#: The worlds in use.
_worlds: dict[tuple[Any, ...], _World] = {}
_worlds_lock = threading.Lock()


def _name(url: Any) -> tuple[Any, ...]:
    hosts = tuple((host.hostname, host.port) for host in url.hosts)
    return hosts, url.virtual_host or ''


def _enter(name: tuple[Any, ...]) -> _World:
    with _worlds_lock:
        world = _worlds.setdefault(name, _World())
        world.users += 1
        return world


def _leave(name: tuple[Any, ...], world: _World) -> None:
    with _worlds_lock:
        world.users -= 1
        if not world.users:
            del _worlds[name]


def handle(
    dispatcher: oslo_messaging.RPCDispatcher,
    incoming: base.RpcIncomingMessage,
) -> None:
    """Dispatch a message and send the reply, as a server does."""
    try:
        result = dispatcher.dispatch(incoming)
    except oslo_messaging.ExpectedException as exc:
        incoming.reply(failure=exc.exc_info)
    except Exception:
        LOG.exception('Exception during message handling')
        incoming.reply(failure=sys.exc_info())
    else:
        incoming.reply(result)


def acknowledge_and_handle(
    dispatcher: oslo_messaging.RPCDispatcher,
    incoming: base.RpcIncomingMessage,
) -> None:
    """Acknowledge a message of any transport, and handle it."""
    try:
        incoming.acknowledge()
        handle(dispatcher, incoming)
    except Exception as exc:
        # There may be no broker, or no caller that waits for the reply.
        LOG.warning('The reply to %s was not sent: %s: %s',
                    incoming.message.get('method'), type(exc).__name__, exc)
