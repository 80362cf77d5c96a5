# SPDX-License-Identifier: Apache-2.0
"""Notifications to systemd: units of the type ``notify`` with a watchdog."""

import contextlib
import logging
import os
import socket
import struct
import threading

LOG = logging.getLogger(__name__)

#: Reports of a process in the time after which systemd ends the service.
_BEATS = 3

#: A report of a worker to its parent: its number, and whether it has started.
_REPORT = struct.Struct('=I?')


class Systemd:
    """Notifications of a service to systemd, if systemd started it.

    Takes the variables of systemd out of the environment: programs that this
    process starts must not use them. Without systemd, nothing is reported.

    :ivar interval_s: seconds between two calls of :meth:`beat`; None if the
        unit has no watchdog
    """

    def __init__(self) -> None:
        address = os.environ.pop('NOTIFY_SOCKET', '')
        # An abstract socket, whose name begins with a null byte.
        self._address = '\0' * address.startswith('@') + address.lstrip('@')
        pid = os.environ.pop('WATCHDOG_PID', str(os.getpid()))
        period = os.environ.pop('WATCHDOG_USEC', '')
        self.interval_s = (
            int(period) / 1e6 / _BEATS
            if period.isdigit() and pid == str(os.getpid()) else None)
        self._pipe: tuple[int, int] | None = None

    def notify(self, state: str) -> None:
        """Send a notification such as ``STOPPING=1``; does not block."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try:
                sender.sendto(state.encode(), self._address)
            except OSError as exc:
                LOG.debug('systemd was not notified: %s', exc)

    def ready(self, worker: int = 0) -> None:
        """Report that a process of the service has started."""
        self._report(worker, True)

    def beat(self, worker: int = 0) -> None:
        """Report that the loops of a process run."""
        self._report(worker, False)

    def relay(self, workers: int) -> None:
        """Collect the reports of worker processes, which are forked later.

        The service is ready when all of them have started, and alive as long
        as all of them report.
        """
        if self._address:
            self._pipe = os.pipe()
            threading.Thread(
                target=self._relay, args=(workers,), daemon=True).start()

    def _report(self, worker: int, started: bool) -> None:
        if self._pipe is not None:
            # The parent may have ended.
            with contextlib.suppress(BrokenPipeError):
                os.write(self._pipe[1], _REPORT.pack(worker, started))
        else:
            self.notify('READY=1' if started else 'WATCHDOG=1')

    def _relay(self, workers: int) -> None:
        assert self._pipe is not None
        waited_for, silent = set(range(workers)), set(range(workers))
        while True:
            worker, started = _REPORT.unpack(
                os.read(self._pipe[0], _REPORT.size))
            if started and waited_for:
                waited_for.discard(worker)
                if not waited_for:
                    self.notify('READY=1')
            silent.discard(worker)
            if not silent:
                silent = set(range(workers))
                self.notify('WATCHDOG=1')
