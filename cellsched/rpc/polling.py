# SPDX-License-Identifier: Apache-2.0
"""Waiting until a socket is readable and somebody is to read it."""

from collections.abc import Callable
import os
import select
import socket


class Poller:
    """Wakes a thread when there is something to read that nobody reads.

    The system does that by itself. Until then the thread sleeps, and does not
    ask for the interpreter.

    :param find: returns the socket, which may be another one each time; None
        where there is none, or none that can be waited for
    """

    def __init__(self, find: Callable[[], socket.socket | None]) -> None:
        self._find = find
        self._epoll = select.epoll()
        self._word = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll.register(self._word, select.EPOLLIN)

    def arm(self) -> None:
        """Have the thread woken once there is something to read.

        It is woken at once where that cannot be told.
        """
        if not self._set(select.EPOLLIN):
            self.wake()

    def disarm(self) -> None:
        """Have the thread sleep on, for somebody reads."""
        self._set(0)

    def wake(self) -> None:
        """Wake the thread, or the one that waits next."""
        os.eventfd_write(self._word, 1)

    def wait(self, seconds: float) -> bool:
        """Wait until this thread is woken, or for so long; return which."""
        found = self._epoll.poll(seconds)
        for number, _ in found:
            if number == self._word:
                os.eventfd_read(self._word)
        return bool(found)

    def close(self) -> None:
        """Wake nobody any more."""
        self._epoll.close()
        os.close(self._word)

    def _set(self, events: int) -> bool:
        """Say what is waited for; return whether there is a socket for it."""
        found = self._find()
        if found is None:
            return False
        # Errors are always told, and are to be told once, too.
        events |= select.EPOLLONESHOT
        try:
            self._epoll.modify(found.fileno(), events)
        except FileNotFoundError:
            # It is new; the system forgets those that are closed.
            self._epoll.register(found.fileno(), events)
        except (OSError, ValueError):
            # It was closed. Who reads finds out.
            return False
        return True
