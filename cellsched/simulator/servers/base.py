# SPDX-License-Identifier: Apache-2.0
"""The interface of models of servers."""

import abc
from typing import Any


class ServerModel(abc.ABC):
    """A server that executes requests, without a clock, threads and disks."""

    @abc.abstractmethod
    def answer(self, request: Any) -> Any:
        """Execute a request atomically, and return the answer."""

    def begin(self, request: Any) -> Any:
        """Return a request whose execution has begun, for :meth:`finish`."""
        return request

    def finish(self, begun: Any) -> Any:
        """Execute the rest of a request, and return the answer."""
        return self.answer(begun)

    @abc.abstractmethod
    def cost(self, request: Any) -> tuple[bool, int]:
        """Return whether a request writes to the disk, and its further items.

        These are the claims, or the reads, beyond the first.
        """

    @abc.abstractmethod
    def is_conflict(self, request: Any, answer: Any) -> bool:
        """Return whether another client was faster than a write."""

    def partitions_of(self, request: Any) -> set[str]:
        """Return the names whose writes come one after the other."""
        return set()
