# SPDX-License-Identifier: Apache-2.0
"""Brokers: what is sent waits in a queue until it is somebody's turn."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
from typing import Any

import oslo_messaging
from oslo_messaging._drivers import base
from oslo_messaging._drivers import common
from oslo_messaging import transport as messaging
from oslo_serialization import jsonutils

from cellsched.simulator import stores


@dataclasses.dataclass
class Call:
    """Somebody who waits for an answer; the first one that comes counts."""

    reply: str | None = None


@dataclasses.dataclass
class Letter:
    """A message on its way.

    :param broker: URL of the broker that has it
    :param server: who alone may have it, None for anyone on the topic
    :param not_before: when it arrives at the earliest
    """

    broker: str
    topic: str
    server: str | None
    text: str
    call: Call | None
    method: str
    not_before: float = 0.0

    def __str__(self) -> str:
        to = f'{self.topic}.{self.server}' if self.server else self.topic
        return f'{self.method} to {to}'


class _Incoming(base.RpcIncomingMessage):
    """A message as its receiver sees it."""

    def __init__(self, letter: Letter, gate: stores.Gate) -> None:
        super().__init__(*jsonutils.loads(letter.text))
        self.client_timeout = None
        self._letter = letter
        self._gate = gate

    def reply(self, reply: Any = None, failure: Any = None) -> None:
        call = self._letter.call
        if call is None:
            return
        text = jsonutils.dumps(
            {'failure': common.serialize_remote_exception(failure)}
            if failure else {'result': reply})
        self._gate.enter(f'reply to {self._letter.method}')
        if call.reply is None:
            call.reply = text

    def heartbeat(self) -> None:
        """Send nothing: nobody asks for it here."""

    def requeue(self) -> None:
        """Put nothing back: what was received is done or lost."""


@dataclasses.dataclass
class Listener:
    """A server of a process, and where it listens."""

    broker: str
    topic: str
    name: str
    server: Any
    process: Any

    def hears(self, letter: Letter) -> bool:
        return (self.broker == letter.broker and self.topic == letter.topic
                and letter.server in (None, self.name))

    def receive(self, letter: Letter, gate: stores.Gate) -> None:
        """Do what a message says; it counts as received from here on."""
        self.server._process_incoming([_Incoming(letter, gate)])


class Network:
    """All brokers, with what waits in their queues."""

    def __init__(self) -> None:
        self.letters: list[Letter] = []
        self.listeners: list[Listener] = []
        #: Brokers that take nothing.
        self.down: set[str] = set()

    def leave(self, process: Any) -> None:
        """Deliver nothing to a process any more."""
        self.listeners = [
            each for each in self.listeners if each.process is not process]

    def deliverable(self, now: float) -> list[tuple[Letter, Listener]]:
        """Return what may arrive now, with each that may have it."""
        return [(letter, listener) for letter in self.letters
                if letter.not_before <= now
                for listener in self.listeners if listener.hears(letter)]


class _Driver(base.BaseDriver):
    """A process's way to a broker.

    :param post: is handed each message that is sent
    :param wait: lets the caller wait for something, for so many seconds
    """

    def __init__(
        self, conf: Any, url: str, gate: stores.Gate,
        post: Callable[[Letter], None],
        wait: Callable[[Callable[[], bool], float], bool],
    ) -> None:
        super().__init__(conf, url, 'simulated', ['cellsched.exception'])
        self._gate = gate
        self._post = post
        self._wait = wait

    def require_features(self, requeue: bool = False) -> None:
        """Refuse nothing."""

    def send(
        self, target: Any, ctxt: Any, message: Any,
        wait_for_reply: bool | None = None, timeout: float | None = None,
        call_monitor_timeout: float | None = None, retry: int | None = None,
        transport_options: Any = None,
    ) -> Any:
        call = Call() if wait_for_reply else None
        letter = Letter(
            self._url, target.topic, target.server,
            jsonutils.dumps([ctxt, message]), call, message['method'])
        self._gate.enter(f'send {letter}')
        self._post(letter)
        if call is None:
            return None
        patience_s = min(filter(None, (timeout, call_monitor_timeout)))
        if not self._wait(lambda: call.reply is not None, patience_s):
            # What comes from now on nobody reads.
            call.reply = ''
            raise oslo_messaging.MessagingTimeout(f'No reply to {letter}')
        reply = jsonutils.loads(call.reply or '{}')
        if 'failure' in reply:
            raise common.deserialize_remote_exception(
                reply['failure'], self._allowed_remote_exmods)
        return reply['result']

    def send_notification(self, *args: Any, **kwargs: Any) -> None:
        """Lose it: nobody listens."""

    def listen(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError('Servers are called, and never started')

    listen_for_notifications = listen

    def cleanup(self) -> None:
        """Close nothing."""


class Transports:
    """The transports of a process, as ``cellsched.rpc.transport`` has them.

    :param driver: makes the way to the broker of a URL
    """

    def __init__(self, conf: Any, driver: Callable[[str], Any]) -> None:
        self._conf = conf
        self._driver = driver
        self._open: dict[tuple[type, str], Any] = {}

    def get(self, url: str | None = None) -> Any:
        return self._get(messaging.RPCTransport, url)

    def notifications(self) -> Any:
        return self._get(messaging.NotificationTransport, None)

    def close(self) -> None:
        """Close nothing."""

    def _get(self, kind: type, url: str | None) -> Any:
        url = url or self._conf.transport_url
        if (kind, url) not in self._open:
            self._open[kind, url] = kind(self._driver(url))
        return self._open[kind, url]


def driver(
    conf: Any, gate: stores.Gate, post: Callable[[Letter], None],
    wait: Callable[[Callable[[], bool], float], bool],
) -> Callable[[str], Any]:
    """Return what makes a process's ways to brokers; see the arguments."""
    return lambda url: _Driver(conf, url, gate, post, wait)
