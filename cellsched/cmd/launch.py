# SPDX-License-Identifier: Apache-2.0
"""Running a service as a process, or as several."""

import atexit
from collections.abc import Callable
from collections.abc import Collection
import contextlib
import copy
import functools
import gc
import importlib
import logging
from logging import handlers
import math
import multiprocessing
import os
import pathlib
import queue
import shutil
import signal
import sys
import threading
from typing import Any
from typing import NoReturn
from typing import TypeVar

# The imports below would warn of eventlet.
from cellsched import silence_eventlet  # noqa: F401

import cotyledon
from oslo_concurrency import processutils
from oslo_config import cfg
from oslo_context import context
from oslo_log import log
import oslo_messaging

from cellsched.clock import Clock
from cellsched.cmd.configuration import ServiceConfiguration
from cellsched.cmd import reports
from cellsched.cmd.systemd import Systemd
from cellsched import exception
from cellsched.observability.conditions import Conditions
from cellsched.observability.metrics import Metrics
from cellsched.observability import monitoring
from cellsched.observability.monitoring import Monitor
from cellsched.observability import tracing
from cellsched.rpc import delivery
from cellsched.rpc import transport
from cellsched.wiring.service import monitor
from cellsched.wiring.service import Service

LOG = log.getLogger(__name__)

#: New objects after which Python collects cyclic garbage; requests make few.
_NEW_OBJECTS = 20_000

#: Seconds after which Python switches from a thread that computes to another
#: one; its default is ten times as long. While a large request is computed,
#: other requests wait for this time after each answer of a database.
SWITCH_S = 0.0005

#: Seconds between two attempts to reach a server at the start.
_RETRY_S = 2.0

#: Errors after which a service waits for a server at the start.
_AWAY = (*exception.DATABASE_UNAVAILABLE, exception.BrokerRefused,
         oslo_messaging.MessageDeliveryFailure)

_Result = TypeVar('_Result')

#: Makes a service that records metrics.
Factory = Callable[..., Service]


def run(
    factory: Factory, workers: Callable[[cfg.ConfigOpts], int | None],
    kinds: Collection[str], service_name: str = '',
) -> int:
    """Run a service until it is stopped; return the exit code.

    An invalid configuration, an unusable database, or a broker that refuses
    the connection ends the process with one line before the service starts. If
    the broker or a database cannot be reached, or the broker refuses a queue,
    the service waits for it.

    ``SIGTERM`` stops the service when the messages and tasks in progress have
    ended. It ends at once, with exit code 1, after
    ``graceful_shutdown_timeout`` and at a second signal. ``SIGINT`` does the
    same, but ends several workers at once. ``SIGHUP`` makes the service read
    the options that can change.

    :param workers: returns the number of processes; None for one per CPU
    :param kinds: namespaces of the plug-ins that the service uses
    :param service_name: ``scheduler``, ``conductor`` or ``compute``, for the
        option of the port for health and metrics; empty for no port
    """
    # The service handles interrupts when it has started.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    program = pathlib.Path(sys.argv[0]).name
    systemd = Systemd()
    try:
        configuration = ServiceConfiguration(sys.argv[1:], kinds)
        conf = configuration.conf
        reports.register(conf, program)
        count = workers(conf) or processutils.get_worker_count()
        tracing.check(conf)
        port = _MonitoringPort(conf, service_name, count)
        transport.Transports(conf).check()
        process = functools.partial(
            _Process, program, configuration,
            functools.partial(factory, conf), systemd, port)
        if count > 1:
            # A worker that cannot start would be restarted again and again.
            # So the service is made here once, as a check.
            waiting = port.monitor(Metrics())
            _ready_service(
                program, lambda: factory(conf), waiting.wait_for).parts.close()
            waiting.stop()
            _run_workers(configuration, process, count, systemd, port)
        # A single worker needs no parent process.
        return process().run()
    except exception.CellschedException as exc:
        print(f'{program}: {exc.format_message()}', file=sys.stderr)
        return 1


def _run_workers(
    configuration: ServiceConfiguration, make: Callable[[int], '_Process'],
    count: int, systemd: Systemd, port: '_MonitoringPort',
) -> NoReturn:
    """Run worker processes, and restart those that end unexpectedly."""
    # Without a timeout: each worker has its own, and then names what is left.
    manager = cotyledon.ServiceManager(
        graceful_shutdown_timeout=0,
        mp_context=multiprocessing.get_context('fork'))

    def end_workers(number: int, frame: Any) -> None:
        os.killpg(0, signal.SIGINT)

    def begin_to_stop() -> None:
        systemd.notify('STOPPING=1')
        # cotyledon would ignore a second signal.
        signal.signal(signal.SIGTERM, end_workers)

    # Workers that are started later have the new values, too.
    manager.register_hooks(
        on_terminate=begin_to_stop, on_reload=configuration.read_again)
    manager.add(_Worker, count, args=(make,))
    systemd.relay(count)
    with contextlib.suppress(SystemExit):
        manager.run()
    # The workers have ended, possibly after graceful_shutdown_timeout. Do not
    # run the finalization of the interpreter: it needs 0.5 s of CPU time.
    port.close()
    sys.stdout.flush()
    os._exit(0)


def _ready_service(
    program: str, make: Callable[[], Service],
    waits_for: Callable[[str], None],
) -> Service:
    """Return the service, once its databases and its broker serve it.

    :param waits_for: called with the reason of each attempt that fails
    """
    made = _wait_for(program, 'a database', make, waits_for)
    try:
        _wait_for(program, 'its broker', made.check_queues, waits_for)
    except BaseException:
        made.parts.close()
        raise
    return made


def _wait_for(
    program: str, server: str, attempt: Callable[[], _Result],
    waits_for: Callable[[str], None],
) -> _Result:
    """Repeat an attempt until a server answers; return its result.

    Each reason to wait is logged once, and then its end.
    """
    clock = Clock()
    conditions = Conditions(LOG, clock.monotonic)
    while True:
        try:
            result = attempt()
        except _AWAY as exc:
            reason = f'waits for {server}: {_text(exc)}'
        else:
            conditions.replace({})
            return result
        waits_for(reason)
        conditions.replace({f'{program} {reason}': ''})
        clock.sleep(_RETRY_S)


def _text(exc: Exception) -> str:
    """Return an error in one line."""
    return (exc.format_message()
            if isinstance(exc, exception.CellschedException)
            else exception.describe(exc))


class _MonitoringPort:
    """The HTTP port of a service, which its processes inherit.

    :param service: as for :func:`run`
    :raises cellsched.exception.ConfigurationInvalid: the port cannot be used
    """

    def __init__(
        self, conf: cfg.ConfigOpts, service: str, workers: int
    ) -> None:
        self.service = service
        self._timeout_s = conf.monitoring.check_timeout
        port = conf.monitoring[f'{service}_port'] if service else None
        self._listener = None if port is None else monitoring.listen(
            conf.monitoring.address, port)
        #: For the metrics of several processes.
        self._directory = (
            _prometheus().make_directory(self._listener)
            if self._listener and workers > 1 else None)

    def metrics(self) -> Metrics:
        """Return the metrics of this process; call it after the fork."""
        if self._listener is None:
            return Metrics()
        made: Metrics = _prometheus().PrometheusMetrics(
            self.service, self._directory)
        return made

    def monitor(self, recorded: Metrics) -> Monitor:
        """Return what answers the requests in this process."""
        return monitor(recorded, self._timeout_s, self._listener)

    def close(self) -> None:
        """Remove the directory for the metrics of the workers."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


def _prometheus() -> Any:
    """Import prometheus_client, which takes 9 ms of CPU, only for a port."""
    return importlib.import_module('cellsched.observability.prometheus')


def freeze_objects() -> None:
    """Exclude all present objects from garbage collection."""
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)


#: Bytes that wake the main thread of a process.
_END, _HANGUP = b'.', b'h'

#: Seconds that a process which ends at once writes its last lines.
_LAST_LINES_S = 2.0


class _Process:
    """One process of a service: its start, its signals and its end.

    :param make: makes the service; called with its metrics
    :param port: the port for health and metrics
    :param worker: the number of the process in the service
    """

    def __init__(
        self, program: str, configuration: ServiceConfiguration,
        make: Callable[..., Service], systemd: Systemd,
        port: _MonitoringPort, worker: int = 0,
    ) -> None:
        self._program = program
        self._configuration = configuration
        self._make = make
        self._systemd = systemd
        self._service_name = port.service
        self._worker = worker
        self._metrics = port.metrics()
        self._monitor = port.monitor(self._metrics)
        self._service: Service | None = None
        self._log_queue = LogQueue()
        self._stopping = threading.Event()
        self._terminated = False
        # Not an event: a signal that interrupts this thread while it holds the
        # lock of the event would wait for itself.
        self._wakeups, self._wakeup = os.pipe()

    def run(self) -> NoReturn:
        """Run the service without a parent process, in the main thread."""
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._receive)
        self.start()
        while os.read(self._wakeups, 1) == _HANGUP:
            self.reload()
        self._systemd.notify('STOPPING=1')
        code = self.stop()
        sys.stdout.flush()
        # Threads that wait for a cell would delay the end of the interpreter.
        os._exit(code)

    def _receive(self, number: int, frame: Any) -> None:
        if number == signal.SIGHUP:
            os.write(self._wakeup, _HANGUP)
        elif self._service is None:
            # A stop would wait for the start, which this thread may be in.
            raise SystemExit(0)
        elif not self._terminated:
            self._terminated = True
            os.write(self._wakeup, _END)
        else:
            self.end_at_once(f'at {signal.Signals(number).name}')

    def start(self) -> None:
        """Start the service; return when it receives messages."""
        if self._systemd.interval_s:
            threading.Thread(target=self._watch, daemon=True).start()
        self._monitor.serve()
        made = self._begin()
        self._monitor.watch(made.health_checks(
            made.parts.conf.monitoring.check_timeout), made.unready)
        freeze_objects()
        sys.setswitchinterval(SWITCH_S)
        # Start errors are written directly, so the queue starts after them.
        self._log_queue.start()
        self._service = made
        reports.add_state(made.state)
        LOG.info('%s has started as %s', self._program, made.parts.conf.host)
        self._systemd.ready(self._worker)

    def _begin(self) -> Service:
        try:
            made = _ready_service(
                self._program, lambda: self._make(metrics=self._metrics),
                self._monitor.wait_for)
            made.parts.trace(self._service_name)
            made.on_failure = lambda: os.write(self._wakeup, _END)
            made.start()
            return made
        except (exception.CellschedException,
                oslo_messaging.MessagingException,
                *delivery.BROKER_ERRORS) as exc:
            # The parent has checked this, so it changed since. Each new worker
            # would fill the log with a traceback.
            text = _text(exc)
            print(f'{self._program}: {text}', file=sys.stderr, flush=True)
            raise SystemExit(1) from None

    def wait(self) -> None:
        """Return when the service is to stop after a failure."""
        os.read(self._wakeups, 1)

    def reload(self, level: int = logging.ERROR) -> None:
        """Read the options that can change.

        :param level: the level of the line about an error
        """
        self._configuration.read_again(level)
        if self._service is not None:
            self._service.parts.compute_cap.forget()

    def stop(self) -> int:
        """Stop the service when its work is done; return the exit code.

        Ends the process after ``graceful_shutdown_timeout``.
        """
        if self._service is None:
            # The signal came during the start.
            return 0
        self._stopping.set()
        timeout_s = self._configuration.conf.graceful_shutdown_timeout
        if timeout_s:
            timer = threading.Timer(timeout_s, self.end_at_once, [
                f'after the {timeout_s} seconds of graceful_shutdown_timeout'])
            timer.daemon = True
            timer.start()
        LOG.info('%s stops%s; it waits for: %s', self._program,
                 f' within {timeout_s} seconds' if timeout_s else '',
                 self._in_progress())
        try:
            self._service.stop(math.inf)
            LOG.info('%s has stopped', self._program)
            self._monitor.stop()
            self._metrics.close()
        finally:
            self._log_queue.stop()
        return 1 if self._service.failure else 0

    def end_at_once(self, when: str) -> None:
        """End this process, and log the work that it leaves to others.

        Returns before that. A signal handler can call it: a thread does it,
        because the interrupted thread may hold a lock.
        """
        threading.Thread(target=self._leave, args=(when,), daemon=True).start()

    def _leave(self, when: str) -> None:
        # Where the log is written may block.
        last = threading.Timer(_LAST_LINES_S, os._exit, [1])
        last.daemon = True
        last.start()
        LOG.warning('%s ends %s; in progress: %s', self._program, when,
                    self._in_progress())
        self._log_queue.stop()
        os._exit(1)

    def _in_progress(self) -> str:
        return '; '.join(
            self._service.in_progress() if self._service else ()) or 'nothing'

    def _watch(self) -> None:
        """Report to systemd as long as the loops of the service run."""
        interval_s = self._systemd.interval_s or 0.0
        conditions = Conditions(LOG, Clock().monotonic)
        stalled = (f'{self._program} does not work, and is not reported to '
                   'systemd as alive')
        while not self._stopping.wait(interval_s):
            # A service that waits for its databases does not run yet.
            stuck = self._service.stuck(interval_s) if self._service else []
            conditions.replace(
                {stalled: '; '.join(stuck)} if stuck else {}, logging.ERROR)
            if not stuck:
                self._systemd.beat(self._worker)


class _Worker(cotyledon.Service):
    """One of several processes of a service, as cotyledon runs it."""

    def __init__(
        self, worker_id: Any, make: Callable[[int], _Process]
    ) -> None:
        super().__init__(worker_id)
        self._process = make(worker_id)
        # cotyledon would end the process before the log is written.
        signal.signal(signal.SIGINT, self._interrupt)

    def _interrupt(self, number: int, frame: Any) -> None:
        self._process.end_at_once('at SIGINT')
        while True:
            signal.pause()

    def run(self) -> None:
        self._process.start()
        self._process.wait()
        self._process.stop()
        raise SystemExit(1)

    def reload(self) -> None:
        # The parent has read the same files, and logs an error.
        self._process.reload(logging.INFO)

    def terminate(self) -> None:
        raise SystemExit(self._process.stop())


#: Lines that may be queued. With a full queue, lines are written directly.
WAITING_MAX = 10_000

#: Seconds that the first line of a batch waits for more lines.
GATHERED_S = 0.05


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


class LogQueue(handlers.QueueHandler):
    """Moves the work of the root logger's handlers to a thread.

    :meth:`start` replaces these handlers, and must be called in the process
    that logs: a thread does not survive a fork. :meth:`stop` restores them.
    Lines of all threads stay in order.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._lines: queue.SimpleQueue[logging.LogRecord] = (
            queue.SimpleQueue())
        super().__init__(self._lines)
        self._logger = logger or logging.getLogger()
        self._is_running = False

    def start(self) -> None:
        """Queue all further lines."""
        self._handlers = self._logger.handlers
        self._writer = _Listener(self._lines, *self._handlers)
        self._writer.start()
        self._is_running = True
        # In one step, so that no line of another thread is written twice.
        self._logger.handlers = [self]
        # A failed process ends without a call of stop().
        atexit.register(self.stop)

    def stop(self) -> None:
        """Write all queued lines; later lines are written directly."""
        if not self._is_running:
            return
        self._is_running = False
        atexit.unregister(self.stop)
        if self in self._logger.handlers:
            # A reload of the configuration may have replaced the handlers.
            self._logger.handlers = self._handlers
        # Waits until all queued lines are written.
        self._writer.stop()
        # A thread may have used this handler until now.
        while not self._lines.empty():
            self._writer.handle(self._lines.get())

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return the record with copies of values that may change."""
        prepared = copy.copy(record)
        # Format now: the arguments may change, and the context is per thread.
        prepared.msg, prepared.args = record.getMessage(), None
        prepared.__dict__.setdefault('context', context.get_current())
        return prepared

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue a record, or write it if the queue is full."""
        if self._lines.qsize() < WAITING_MAX:
            self._lines.put(record)
        else:
            self._writer.handle(record)
