# SPDX-License-Identifier: Apache-2.0
"""Logging in a thread of its own.

oslo.log needs a tenth of the time of a scheduling decision to format one line,
and writing may block. The thread that handles a request does not wait for it.
"""

import atexit
import copy
import logging
from logging import handlers
import queue
import threading

from oslo_context import context

#: Lines that may be queued. With a full queue, lines are written directly.
WAITING_MAX = 10_000

#: Seconds that the first line of a batch waits for more lines.
GATHERED_S = 0.05


class _Handler(handlers.QueueHandler):
    """Puts lines into the queue, with copies of values that may change."""

    def __init__(
        self, lines: 'queue.SimpleQueue[logging.LogRecord]',
        listener: handlers.QueueListener,
    ) -> None:
        super().__init__(lines)
        self._lines = lines
        self._listener = listener

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        prepared = copy.copy(record)
        # Format now: the arguments may change, and the context is per thread.
        prepared.msg, prepared.args = record.getMessage(), None
        prepared.__dict__.setdefault('context', context.get_current())
        return prepared

    def enqueue(self, record: logging.LogRecord) -> None:
        if self._lines.qsize() < WAITING_MAX:
            self._lines.put(record)
        else:
            self._listener.handle(record)


class _Listener(handlers.QueueListener):
    """Writes the lines of the queue after a delay.

    A request usually continues after a log line; without the delay it would
    compete with the formatting for the interpreter.
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
    """Moves the work of the root logger's handlers to a thread.

    :meth:`start` replaces these handlers, and must be called in the process
    that logs: a thread does not survive a fork. :meth:`stop` restores them.
    Lines of all threads stay in order.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger()
        self._handlers: list[logging.Handler] = []
        self._listener: handlers.QueueListener | None = None

    def start(self) -> None:
        """Queue all further lines."""
        self._lines: queue.SimpleQueue[logging.LogRecord] = (
            queue.SimpleQueue())
        self._handlers = self._logger.handlers
        self._listener = _Listener(self._lines, *self._handlers)
        self._handler = _Handler(self._lines, self._listener)
        self._listener.start()
        # In one step, so that no line of another thread is written twice.
        self._logger.handlers = [self._handler]
        # A failed process ends without a call of stop().
        atexit.register(self.stop)

    def stop(self) -> None:
        """Write all queued lines; later lines are written directly."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        atexit.unregister(self.stop)
        if self._handler in self._logger.handlers:
            # A reload of the configuration may have replaced the handlers.
            self._logger.handlers = self._handlers
        # Waits until all queued lines are written.
        listener.stop()
        # A thread may have used the queue handler until now.
        while not self._lines.empty():
            listener.handle(self._lines.get())
