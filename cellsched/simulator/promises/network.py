# SPDX-License-Identifier: Apache-2.0
"""Brokers: messages wait in a queue until they are delivered.

Clients and servers are those of oslo.messaging, with :class:`SimulatedDriver`
as the transport driver. A call waits in the simulation. A server passes its
target to the driver when it starts, and then receives messages. Its executor
is not used, because the simulation cannot control its threads: a message goes
to the public ``dispatcher`` of the server, in an activity of the simulation,
and the reply is sent as the server would send it.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import oslo_messaging
from oslo_messaging import transport as messaging

from cellsched.rpc import local
from cellsched.rpc import transport
from cellsched.simulator import engine


@dataclasses.dataclass
class SimulatedCall:
    """A caller that waits for a reply; the first reply counts.

    :param replied: is set with the reply
    :param lives: returns whether the process of the caller lives
    """

    replied: engine.SimulatedEvent
    lives: Callable[[], bool] = lambda: True
    reply: str | None = None


@dataclasses.dataclass
class Message:
    """A message on its way.

    :param broker: URL of the broker
    :param server: the receiver, or None for any server of the topic
    :param not_before: the earliest time of delivery
    """

    broker: str
    topic: str
    server: str | None
    text: str
    call: SimulatedCall | None
    method: str
    not_before: float = 0.0

    def __str__(self) -> str:
        to = f'{self.topic}.{self.server}' if self.server else self.topic
        return f'{self.method} to {to}'


@dataclasses.dataclass
class Listener:
    """An RPC server of a process, with its target.

    :param dispatcher: the dispatcher of the server
    """

    broker: str
    target: oslo_messaging.Target
    dispatcher: oslo_messaging.RPCDispatcher
    process: Any

    def hears(self, message: Message) -> bool:
        return (self.broker == message.broker
                and self.target.topic == message.topic
                and message.server in (None, self.target.server))

    def receive(self, message: Message, gate: Any) -> None:
        """Dispatch a message, which is acknowledged before."""
        call = message.call
        incoming = local.IncomingMessage(
            message.text, None if call is None else (
                functools.partial(_reply, message.method, call, gate)))
        local.handle(self.dispatcher, incoming)


#: Seconds after which a reply to a missing queue is given up.
_MISSING_QUEUE_S = 3.0


def _reply(
    method: str, call: SimulatedCall, gate: Any, text: str
) -> None:
    gate.enter(f'reply to {method}')
    if not call.lives():
        gate.clock.sleep(_MISSING_QUEUE_S)
        return
    if call.reply is None:
        call.reply = text
        call.replied.set()


class Network:
    """All brokers, with their queues."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.listeners: list[Listener] = []

    def leave(self, process: Any) -> None:
        """Stop delivery to a process."""
        self.listeners = [
            each for each in self.listeners if each.process is not process]

    def deliverable(self) -> list[tuple[Message, Listener]]:
        """Return the messages, each with every possible receiver."""
        return [(message, listener) for message in self.messages
                for listener in self.listeners if listener.hears(message)]


class _StartedListener:
    """The listener of a server, which reads no queue."""

    def start(self, on_incoming_callback: Callable[..., Any]) -> None:
        """Do nothing: messages are delivered to the dispatcher."""

    def stop(self) -> None:
        """Do nothing."""

    cleanup = stop


class SimulatedDriver(local.Driver):
    """A driver of oslo.messaging for one process and one broker.

    :param broker: URL of the broker
    :param world: see ``processes.World``
    :param listens: called with the target of each server that starts
    :param life: returns a function that returns whether the process lives
    """

    def __init__(
        self, conf: Any, broker: str, world: Any,
        listens: Callable[[oslo_messaging.Target], None],
        life: Callable[[], Callable[[], bool]] = lambda: lambda: True,
    ) -> None:
        super().__init__(conf, broker, 'simulated', ['cellsched.exception'])
        self._broker = broker
        self._world = world
        self._listens = listens
        self._life = life

    def cast(
        self, target: oslo_messaging.Target, method: str, text: str
    ) -> None:
        self._send(target, method, text, None)

    def call(
        self, target: oslo_messaging.Target, method: str, text: str,
        timeout_s: float | None, monitor_s: float | None,
    ) -> str | None:
        call = SimulatedCall(
            engine.SimulatedEvent(self._world), self._life())
        self._send(target, method, text, call)
        timeout_s = min(filter(None, (timeout_s, monitor_s)))
        if not call.replied.wait(timeout_s):
            # A later reply is ignored.
            call.reply = ''
            return None
        return call.reply

    def send_notification(self, *args: Any, **kwargs: Any) -> None:
        """Discard the notification."""

    def listen(
        self, target: oslo_messaging.Target, batch_size: int,
        batch_timeout: float | None,
    ) -> _StartedListener:
        self._listens(target)
        return _StartedListener()

    def listen_for_notifications(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError('Nothing listens for notifications')

    def cleanup(self) -> None:
        """Close nothing."""

    def _send(
        self, target: oslo_messaging.Target, method: str, text: str,
        call: SimulatedCall | None,
    ) -> None:
        message = Message(
            self._broker, target.topic, target.server, text, call, method)
        self._world.enter(f'send {message}')
        self._world.post(message)


class SimulatedTransports:
    """The transports of a process; see ``cellsched.rpc.transport``.

    :param driver: makes the driver for a URL
    """

    def __init__(
        self, conf: Any, driver: Callable[[str], SimulatedDriver]
    ) -> None:
        self._conf = conf
        self._driver = driver
        self._open: dict[tuple[type, str], Any] = {}

    def get(self, url: str | None = None) -> Any:
        return self._get(transport.Transport, url)

    def check_url(self, url: str, field: str) -> None:
        """Accept every URL: each leads to the same network."""

    def notifications(self) -> Any:
        return self._get(messaging.NotificationTransport, None)

    def own_url(self) -> str:
        return str(self._conf.transport_url)

    def close(self) -> None:
        """Close nothing."""

    def _get(self, kind: type, url: str | None) -> Any:
        url = url or self.own_url()
        if (kind, url) not in self._open:
            self._open[kind, url] = kind(self._driver(url))
        return self._open[kind, url]
