# SPDX-License-Identifier: Apache-2.0
"""Log lines that are formatted and written by a thread of their own.

To format a line takes oslo.log a tenth of what it takes to decide on a request
and to claim, and to write it may block; whoever asked would wait for it.
"""

import atexit
import copy
import logging
from logging import handlers
import queue
import threading

from oslo_context import context

#: Lines that may wait. Who logs more writes them without the queue.
WAITING_MAX = 10_000

#: Seconds for which the first of some lines waits for others.
GATHERED_S = 0.05


class _Handler(handlers.QueueHandler):
    """Puts lines into the queue, with all that may change until later."""

    def __init__(
        self, lines: 'queue.SimpleQueue[logging.LogRecord]',
        listener: handlers.QueueListener,
    ) -> None:
        super().__init__(lines)
        self._lines = lines
        self._listener = listener

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        prepared = copy.copy(record)
        # The values may change, and the context is one of this thread.
        prepared.msg, prepared.args = record.getMessage(), None
        prepared.__dict__.setdefault('context', context.get_current())
        return prepared

    def enqueue(self, record: logging.LogRecord) -> None:
        if self._lines.qsize() < WAITING_MAX:
            self._lines.put(record)
        else:
            self._listener.handle(record)


class _Listener(handlers.QueueListener):
    """Writes what a queue has, and lets what was logged go on first.

    A request has more to do when it has logged a line, and would wait for the
    interpreter while that is formatted.
    """

    def __init__(
        self, lines: 'queue.SimpleQueue[logging.LogRecord]',
        *written_by: logging.Handler,
    ) -> None:
        super().__init__(lines, *written_by, respect_handler_level=True)
        self._lines = lines
        self._stops = threading.Event()

    def dequeue(self, block: bool) -> logging.LogRecord:
        if not self._lines.empty():
            return super().dequeue(block)
        first = super().dequeue(block)
        self._stops.wait(GATHERED_S)
        return first

    def stop(self) -> None:
        self._stops.set()
        super().stop()


class LogQueue:
    """Has a thread write what the handlers of the root logger write.

    It takes the place of those handlers when it is started, in the process
    that logs, as a thread does not survive a fork, and gives it back when it
    is stopped. It serves all loggers of the process: a line keeps its place
    among those that other threads log.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger()
        self._handlers: list[logging.Handler] = []
        self._listener: handlers.QueueListener | None = None

    def start(self) -> None:
        """Have lines wait for the thread from now on."""
        self._lines: queue.SimpleQueue[logging.LogRecord] = (
            queue.SimpleQueue())
        self._handlers = self._logger.handlers
        self._listener = _Listener(self._lines, *self._handlers)
        self._handler = _Handler(self._lines, self._listener)
        self._listener.start()
        # At once, or a line of another thread would be written twice.
        self._logger.handlers = [self._handler]
        # A process that fails ends without being stopped.
        atexit.register(self.stop)

    def stop(self) -> None:
        """Write what waits; what is logged later is written at once."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        atexit.unregister(self.stop)
        if self._handler in self._logger.handlers:
            # They may be others by now, where the configuration was read
            # again.
            self._logger.handlers = self._handlers
        # This waits until all that was put there is written.
        listener.stop()
        # A thread may have found the old handlers just before.
        while not self._lines.empty():
            listener.handle(self._lines.get())
