# SPDX-License-Identifier: Apache-2.0
"""Running a service as a process, or as several."""

import atexit
from collections.abc import Callable
from collections.abc import Collection
import copy
import gc
import logging
from logging import handlers
import os
import pathlib
import queue
import signal
import sys
import threading

# The imports below would warn of eventlet.
from cellsched import silence_eventlet  # noqa: F401

from oslo_concurrency import processutils
from oslo_config import cfg
from oslo_context import context
from oslo_log import log
import oslo_messaging
from oslo_service import service

from cellsched.clock import Clock
from cellsched.cmd import reports
from cellsched.conf import loader
from cellsched import exception
from cellsched.rpc import delivery
from cellsched.rpc import transport
from cellsched.wiring.base import AgentComponents
from cellsched.wiring.service import Service

LOG = log.getLogger(__name__)

#: New objects after which Python collects cyclic garbage; requests make few.
_NEW_OBJECTS = 20_000

#: Seconds after which Python switches from a thread that computes to another
#: one; its default is ten times as long. While a large request is computed,
#: other requests wait for this time after each answer of a database.
SWITCH_S = 0.0005

#: Seconds between two attempts to reach the databases at the start.
_DATABASES_S = 2.0

Factory = Callable[[cfg.ConfigOpts], Service]


def run(
    factory: Factory, workers: Callable[[cfg.ConfigOpts], int | None],
    kinds: Collection[str],
) -> int:
    """Run a service until it is stopped; return the exit code.

    An invalid configuration, an unusable database, or a broker that refuses
    the connection ends the process with one line before the service starts. If
    the broker or a database cannot be reached, the service waits for it.

    :param workers: returns the number of processes; None for one per CPU
    :param kinds: namespaces of the plug-ins that the service uses
    """
    program = pathlib.Path(sys.argv[0]).name
    try:
        conf = loader.load(sys.argv[1:], kinds=kinds)
        _set_up_logging(conf)
        reports.register(conf, program)
        count = workers(conf) or processutils.get_worker_count()
        transport.Transports(conf).check()
        made = _wait_for_databases(program, lambda: factory(conf))
        if count > 1:
            # A worker that cannot start would be restarted again and again.
            # So the service was made here once, as a check.
            made.parts.close()
            launched = _LaunchedService(program, lambda: factory(conf))
        else:
            # A single worker needs no parent process.
            launched = _LaunchedService(
                program, lambda: made,
                at_hangup=lambda: _read_again(conf, made.parts))
        launcher = service.launch(
            conf, launched, workers=count, restart_method='mutate',
            no_fork=count == 1)
        return launcher.wait() or 0
    except exception.CellschedException as exc:
        print(f'{program}: {exc.format_message()}', file=sys.stderr)
        return 1


def _wait_for_databases(program: str, make: Callable[[], Service]) -> Service:
    """Return the service, once its databases answer."""
    waits = False
    while True:
        try:
            made = make()
        except exception.DATABASE_UNAVAILABLE as exc:
            if not waits:
                LOG.warning('%s waits for a database: %s', program,
                            exc.format_message())
            waits = True
            Clock().sleep(_DATABASES_S)
        else:
            if waits:
                LOG.info('%s waits no longer: the databases answer', program)
            return made


def freeze_objects() -> None:
    """Exclude all present objects from garbage collection."""
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)


def _set_up_logging(conf: cfg.ConfigOpts) -> None:
    # These log each check of a schema, and errors that are reported anyway.
    conf.set_default('default_log_levels', [
        *log.get_default_log_levels(), 'alembic=WARN', 'stevedore=ERROR'])
    if not (conf.log_file or conf.log_dir or conf.use_journal
            or conf.use_syslog):
        # oslo.log would write to standard output.
        conf.set_default('use_stderr', True)
    try:
        log.setup(conf, 'cellsched')
    except (OSError, log.LogConfigError) as exc:
        raise exception.ConfigurationInvalid(
            field='[DEFAULT] log_file, log_dir or log_config_append',
            expected=f'files that can be used: {exc}') from None


def _read_again(conf: cfg.ConfigOpts, parts: AgentComponents) -> None:
    try:
        conf.mutate_config_files()
    except (OSError, cfg.Error):
        LOG.exception('The configuration cannot be read again')
    parts.compute_cap.forget()


class _LaunchedService(service.Service):
    """A service as oslo.service runs it.

    :param make: makes the service, in the process that runs it
    :param at_hangup: called at SIGHUP if there is no parent process
    """

    def __init__(
        self, program: str, make: Callable[[], Service],
        at_hangup: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self._program = program
        self._make = make
        self._at_hangup = at_hangup
        self._service: Service | None = None
        self._log_queue = LogQueue()

    def start(self) -> None:
        super().start()
        # Not an event: a signal that interrupts this thread while it holds the
        # lock of the event would wait for itself.
        self._ended, self._end = os.pipe()
        hangup = self._at_hangup
        if hangup is not None:
            signal.signal(signal.SIGHUP, lambda number, frame: hangup())
        made = self._begin()
        freeze_objects()
        sys.setswitchinterval(SWITCH_S)
        # Start errors are written directly, so the queue starts after them.
        self._log_queue.start()
        self._service = made
        reports.add_state(made.state)
        LOG.info('%s has started as %s', self._program, made.parts.conf.host)

    def _begin(self) -> Service:
        try:
            made = _wait_for_databases(self._program, self._make)
            made.on_failure = self._wake
            made.start()
            return made
        except (exception.CellschedException,
                oslo_messaging.MessagingException,
                *delivery.BROKER_ERRORS) as exc:
            # The parent has checked this, so it changed since. Each new worker
            # would fill the log with a traceback.
            print(f'{self._program}: {exception.describe(exc)}',
                  file=sys.stderr, flush=True)
            raise SystemExit(1) from None

    def _wake(self) -> None:
        os.write(self._end, b'.')

    def wait(self) -> None:
        os.read(self._ended, 1)
        failure = self._service and self._service.failure
        if failure:
            self.stop()
            raise SystemExit(1)

    def stop(self, graceful: bool = False) -> None:
        if self._service is None:
            # The signal came during the start, maybe in this thread: a stop
            # would wait for itself.
            raise SystemExit(0)
        try:
            self._service.stop()
            super().stop(graceful)
            LOG.info('%s has stopped', self._program)
        finally:
            self._log_queue.stop()
        self._wake()


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
