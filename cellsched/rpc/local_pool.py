# SPDX-License-Identifier: Apache-2.0
"""Servers of the in-process transport for which the same threads work."""

from concurrent import futures
import logging
import sys

import oslo_messaging

from cellsched.rpc import local

LOG = logging.getLogger(__name__)


class PooledServer:
    """A server that has no threads of its own.

    :param transport: an in-process one
    :param target: topic and server
    :param pool: works on its messages; is not shut down here
    """

    def __init__(
        self, transport: oslo_messaging.Transport,
        target: oslo_messaging.Target,
        dispatcher: oslo_messaging.RPCDispatcher, pool: futures.Executor,
    ) -> None:
        self.dispatcher = dispatcher
        self._pool = pool
        self._listener = local.listen(transport, target)
        self._begun: set[futures.Future[None]] = set()

    def start(self) -> None:
        """Begin to take messages."""
        self._listener.start(self._take)

    def stop(self) -> None:
        """Take no more messages."""
        self._listener.stop()

    def wait(self) -> None:
        """Return when what was taken is done."""
        futures.wait(set(self._begun))

    @property
    def is_busy(self) -> bool:
        """True while something was taken that is not done."""
        return bool(self._begun)

    def _take(self, incoming: list[local.Incoming]) -> None:
        for each in incoming:
            future = self._pool.submit(handle, self.dispatcher, each)
            self._begun.add(future)
            future.add_done_callback(self._begun.discard)


def handle(
    dispatcher: oslo_messaging.RPCDispatcher, incoming: local.Incoming
) -> None:
    """Dispatch a message, and reply what comes of it, as servers do."""
    try:
        result = dispatcher.dispatch(incoming)
    except oslo_messaging.ExpectedException as exc:
        incoming.reply(failure=exc.exc_info)
    except Exception:
        LOG.exception('Exception during message handling')
        incoming.reply(failure=sys.exc_info())
    else:
        incoming.reply(result)
