# SPDX-License-Identifier: Apache-2.0
"""A wire to a database that can be cut, slowed down and frozen."""

import contextlib
import select
import socket
import threading
import time
from urllib import parse

import fixtures

ADDRESS = '127.0.0.1'


class Wire(fixtures.Fixture):
    """Passes on what goes to a server and back, on a port of its own.

    :param url: of a server; ``self.url`` is that of the wire
    """

    def __init__(self, url: str) -> None:
        self._parts = parse.urlsplit(url)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        #: Whether connections are refused.
        self.cut = False
        #: Set when a connection is refused, until the wire is mended.
        self.has_refused = threading.Event()
        #: Seconds that each answer takes longer.
        self.delay_s = 0.0
        #: What it is cut at, after that was passed on, with no answer.
        self.cut_after: bytes | None = None
        #: The packets that it still passes on, in both directions, before
        #: those who use it go silent; None for all.
        self.passes: int | None = None
        #: The packets that clients have sent since :meth:`freeze_after`. An
        #: answer may arrive in several.
        self.requests = 0
        #: Set when it has kept one back.
        self.is_silent = threading.Event()
        self._goes_on = threading.Event()

    def _setUp(self) -> None:
        self._listener = socket.create_server((ADDRESS, 0))
        port = self._listener.getsockname()[1]
        location = self._parts.netloc.rpartition(':')[0]
        self.url = self._parts._replace(netloc=f'{location}:{port}').geturl()
        threading.Thread(target=self._accept, daemon=True).start()
        self.addCleanup(self._close)

    def break_off(self) -> None:
        """Cut it, and what goes over it."""
        self.cut = True
        self.drop()

    def mend(self) -> None:
        self.cut, self.delay_s, self.cut_after = False, 0.0, None
        self.has_refused.clear()

    def freeze_after(self, packets: int) -> None:
        """Keep back what is sent either way after some packets.

        The connections stay open, as those of a client that is stopped.
        """
        self.is_silent.clear()
        self._goes_on.clear()
        self.passes, self.requests = packets, 0

    def go_on(self) -> None:
        """Pass on again what was kept back, and all that follows."""
        self.passes = None
        self._goes_on.set()

    def _pass_by(self) -> None:
        """Count a packet; keep it back if it is too many."""
        with self._lock:
            if self.passes is None:
                return
            self.passes -= 1
            if self.passes >= 0:
                return
        self.is_silent.set()
        self._goes_on.wait()

    def drop(self) -> None:
        """Cut what goes over it; new connections pass."""
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _close(self) -> None:
        self.cut = True
        self._listener.close()
        self.go_on()
        self.drop()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.cut:
                client.close()
                self.has_refused.set()
                continue
            threading.Thread(
                target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        server = socket.create_connection(
            (self._parts.hostname, self._parts.port))
        both = {client: server, server: client}
        with self._lock:
            self._open |= both.keys()
        try:
            while self._pass_once(both, client):
                pass
        except OSError:
            # Either end went, or it was cut.
            pass
        finally:
            with self._lock:
                self._open -= both.keys()
            for each in both:
                each.close()

    def _pass_once(
        self, both: dict[socket.socket, socket.socket],
        client: socket.socket,
    ) -> bool:
        readable, _, _ = select.select(list(both), [], [])
        for each in readable:
            data = each.recv(65536)
            if not data:
                return False
            self.requests += each is client
            self._pass_by()
            if each is not client and self.delay_s:
                time.sleep(self.delay_s)
            both[each].sendall(data)
            if each is client and self.cut_after and self.cut_after in data:
                self.cut_after, self.cut = None, True
                # What was asked for is done by then, or will be.
                both[each].recv(65536)
                return False
        return True
