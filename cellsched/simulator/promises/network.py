# SPDX-License-Identifier: Apache-2.0
"""Brokers: messages wait in a queue until they are delivered.

Clients are those of oslo.messaging, with :class:`SimulatedDriver` as the
transport driver. A call waits in the simulation. Servers do not start, because
the simulation cannot control the threads of their executors: a message goes to
the public ``dispatcher`` of a server, in an activity of the simulation, and
the reply is sent as the server would send it.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import oslo_messaging
from oslo_messaging import transport as messaging

from cellsched.rpc import local
from cellsched.rpc.server import Server
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
    """An RPC server of a process.

    :param broker: URL of the broker
    """

    broker: str
    server: Server
    process: Any

    def hears(self, message: Message) -> bool:
        target = self.server.target
        return (self.broker == message.broker
                and target.topic == message.topic
                and message.server in (None, target.server))

    def receive(self, message: Message) -> None:
        """Dispatch a message, which is acknowledged before."""
        call = message.call
        local.handle(self.server.dispatcher, local.IncomingMessage(
            message.text, None if call is None else functools.partial(
                _reply, message.method, call, self.process.world)))


#: Seconds after which a reply to a missing queue is given up.
_MISSING_QUEUE_S = 3.0


def _reply(
    method: str, call: SimulatedCall, world: Any, text: str
) -> None:
    world.enter(f'reply to {method}')
    if not call.lives():
        world.clock.sleep(_MISSING_QUEUE_S)
        return
    if call.reply is None:
        call.reply = text
        call.replied.set()


class SimulatedDriver(local.Driver):
    """A driver of oslo.messaging for one process and one broker.

    :param broker: URL of the broker
    :param process: the process; see ``processes.Process``
    """

    def __init__(self, broker: str, process: Any) -> None:
        super().__init__(
            process.conf, broker, 'simulated', ['cellsched.exception'])
        self._broker = broker
        self._process = process

    def cast(
        self, target: oslo_messaging.Target, method: str, text: str
    ) -> None:
        self._send(target, method, text, None)

    def call(
        self, target: oslo_messaging.Target, method: str, text: str,
        timeout_s: float | None, monitor_s: float | None,
    ) -> str | None:
        call = SimulatedCall(
            engine.SimulatedEvent(self._process.world), self._process.life())
        self._send(target, method, text, call)
        timeout_s = min(filter(None, (timeout_s, monitor_s)))
        if not call.replied.wait(timeout_s):
            # A later reply is ignored.
            call.reply = ''
            return None
        return call.reply

    def send_notification(self, *args: Any, **kwargs: Any) -> None:
        """Discard the notification."""

    def listen(self, *args: Any) -> Any:
        raise NotImplementedError('No server starts')

    listen_for_notifications = listen

    def cleanup(self) -> None:
        """Close nothing."""

    def _send(
        self, target: oslo_messaging.Target, method: str, text: str,
        call: SimulatedCall | None,
    ) -> None:
        message = Message(
            self._broker, target.topic, target.server, text, call, method)
        self._process.world.enter(f'send {message}')
        self._process.world.post(message)


class SimulatedTransports:
    """The transports of a process; see ``cellsched.rpc.transport``."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self._open: dict[tuple[type, str], Any] = {}

    def get(self, url: str | None = None) -> Any:
        return self._get(transport.Transport, url or self.own_url())

    def check_url(self, url: str, field: str) -> None:
        """Accept every URL: each leads to the same network."""

    def notifications(self) -> Any:
        return self._get(messaging.NotificationTransport, self.own_url())

    def own_url(self) -> str:
        return str(self._process.conf.transport_url)

    def close(self) -> None:
        """Close nothing."""

    def _get(self, kind: type, url: str) -> Any:
        if (kind, url) not in self._open:
            self._open[kind, url] = kind(SimulatedDriver(url, self._process))
        return self._open[kind, url]
