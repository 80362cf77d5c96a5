# SPDX-License-Identifier: Apache-2.0
"""Sending messages without waiting for a broker for long."""

from collections.abc import Callable
from concurrent import futures
from typing import TypeAlias

import oslo_messaging

#: Sends a message by calling a function that does it.
Send: TypeAlias = Callable[[Callable[[], None]], None]


def directly(send: Callable[[], None]) -> None:
    """Send in the thread that wants it sent."""
    send()


class BackgroundSender:
    """Sends in other threads, and waits for each message for a bounded time.

    A broker that is short of memory or disk takes nothing, and oslo.messaging
    waits for it, with no option that says how long.

    :param executor: sends; its size bounds how many messages may hang
    :param timeout_s: seconds to wait for a message to be sent
    """

    def __init__(self, executor: futures.Executor, timeout_s: float) -> None:
        self._executor = executor
        self._timeout_s = timeout_s

    def __call__(self, send: Callable[[], None]) -> None:
        """Send a message.

        :raises oslo_messaging.MessageDeliveryFailure: it was not sent in
            time; if that had begun, it may yet be
        :raises Exception: what sending it raised
        """
        sent = self._executor.submit(send)
        done, _ = futures.wait([sent], self._timeout_s)
        if not done and (sent.cancel() or not sent.done()):
            raise oslo_messaging.MessageDeliveryFailure(
                f'The broker did not take it within {self._timeout_s} s.')
        sent.result()
