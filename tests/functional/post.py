# SPDX-License-Identifier: Apache-2.0
"""A post that delivers messages often, late, or in another order."""

import collections
from collections.abc import Iterable
from concurrent import futures
import threading
from typing import Any
from typing import NamedTuple

import fixtures
import oslo_messaging

from cellsched.rpc import client
from cellsched.rpc import local

#: Until a delivery that is not answered is given up.
TIMEOUT_S = 600

#: Deliveries that may be waited for at a time.
_WAITING_MAX = 300


class Kind(NamedTuple):
    """The method of a message, and its receiver."""

    topic: str
    method: str


class Message(NamedTuple):
    """A sent message; ``asks`` if the sender waits for the answer."""

    driver: local.LocalDriver
    target: Any
    context: Any
    body: Any
    asks: bool

    @property
    def kind(self) -> Kind:
        return Kind(self.target.topic, self.body['method'])


def kinds(*apis: tuple[str, type[client.Client]]) -> set[Kind]:
    """Return the methods of the clients of these topics."""
    return {Kind(topic, name) for topic, api in apis
            for name, what in vars(api).items()
            if callable(what) and not name.startswith('_')}


class Post(fixtures.Fixture):
    """Delivers each message in this process several times.

    Every delivery is followed until its receiver has done with it, so that
    ``quiet`` returns when nothing is under way any more.

    :ivar patient: whether callers wait for answers; a test that sets it to
        False has those give up that wait, and all that come
    :ivar times: how often what is sent from now on is delivered
    :ivar sent: what was sent, in order, each message once
    :ivar delivered: how often receivers had done with what they got
    :ivar failures: what receivers raised
    """

    def __init__(self, times: int = 1) -> None:
        super().__init__()
        self.times = times
        self.sent: list[Message] = []
        self.delivered: collections.Counter[Kind] = collections.Counter()
        self.failures: list[tuple[Kind, Exception]] = []
        self._lock = threading.Lock()
        self._under_way: list[futures.Future[Any]] = []
        self._kept: dict[Kind, list[Message]] = {}
        self._given_up: futures.Future[None] = futures.Future()
        self._send = local.LocalDriver.send

    def _setUp(self) -> None:
        self._threads = futures.ThreadPoolExecutor(_WAITING_MAX)
        self.addCleanup(self._threads.shutdown)
        post = self

        def send(driver, target, ctxt, message, wait_for_reply=None,
                 **options):
            return post._take(
                Message(driver, target, ctxt, message, bool(wait_for_reply)),
                options)

        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.rpc.local.LocalDriver.send', send))

    @property
    def patient(self) -> bool:
        return not self._given_up.done()

    @patient.setter
    def patient(self, patient: bool) -> None:
        if self.patient and not patient:
            self._given_up.set_result(None)
        elif patient and not self.patient:
            self._given_up = futures.Future()

    def forget(self, times: int) -> None:
        """Begin anew, with so many deliveries of each message."""
        self.times = times
        self.sent, self.failures = [], []
        self.delivered.clear()

    def count(self) -> dict[Kind, int]:
        """Return how many messages of each kind were sent."""
        return dict(collections.Counter(each.kind for each in self.sent))

    def keep(self, kind: Kind) -> None:
        """Deliver nothing of a kind from now on."""
        self._kept[kind] = []

    def kept(self, kind: Kind) -> int:
        """Return how many messages of a kind wait to be delivered."""
        return len(self._kept[kind])

    def let_go(self, kind: Kind) -> None:
        """Deliver what was kept, and what comes."""
        with self._lock:
            kept = self._kept.pop(kind)
        self.repeat(kept)

    def repeat(
        self, messages: Iterable[Message]
    ) -> list[futures.Future[Any]]:
        """Deliver messages again, each several times, all at once."""
        copies = [each for each in messages for _ in range(self.times)]
        return [self._deliver(each) for each in copies]

    def of(self, *which: Kind) -> list[Message]:
        """Return what was sent of some kinds."""
        return [each for each in self.sent if each.kind in which]

    def quiet(self) -> None:
        """Wait until all is done that was sent, and what it led to."""
        while True:
            with self._lock:
                waiting, self._under_way = self._under_way, []
            if not waiting:
                return
            futures.wait(waiting)

    def _take(self, message: Message, options: dict[str, Any]) -> Any:
        with self._lock:
            self.sent.append(message)
            kept = self._kept.get(message.kind)
            if kept is not None:
                kept.append(message)
        if kept is not None:
            assert not message.asks
            return None
        copies = [self._deliver(message) for _ in range(self.times)]
        if not message.asks:
            return None
        done, _ = futures.wait(
            [copies[0], self._given_up], options.get('timeout'),
            futures.FIRST_COMPLETED)
        if copies[0] not in done:
            raise oslo_messaging.MessagingTimeout(
                f'Nobody answers {message.kind}')
        # Those that come after the answer are another story.
        futures.wait(copies)
        return copies[0].result()

    def _deliver(self, message: Message) -> futures.Future[Any]:
        under_way = self._threads.submit(self._follow, message)
        with self._lock:
            self._under_way.append(under_way)
        return under_way

    def _follow(self, message: Message) -> Any:
        try:
            return self._carry(message)
        except Exception as exc:
            with self._lock:
                self.failures.append((message.kind, exc))
            raise
        finally:
            with self._lock:
                self.delivered[message.kind] += 1

    def _carry(self, message: Message) -> Any:
        return self._send(
            message.driver, message.target, message.context, message.body,
            wait_for_reply=True, timeout=TIMEOUT_S)
