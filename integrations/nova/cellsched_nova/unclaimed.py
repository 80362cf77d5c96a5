# SPDX-License-Identifier: Apache-2.0
"""Choices that nobody claims, for who does not say for which servers."""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
import threading

from cellsched.hosts import table


class UnclaimedChoices:
    """Remembers what was chosen and not claimed, until it counts no more.

    Any thread may call any method; none blocks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._takings: dict[str, list[table.Taking]] = {}

    def add(self, takings: Iterable[table.Taking]) -> None:
        """Count these from now on."""
        with self._lock:
            for taking in takings:
                self._takings.setdefault(taking.node, []).append(taking)

    def held(self, node: str) -> Mapping[str, int]:
        """Return the amounts by resource class that a host gives to them."""
        held = collections.Counter[str]()
        with self._lock:
            for taking in self._takings.get(node, ()):
                held.update(dict(taking.resources))
        return held

    def expire(self, before: float) -> list[str]:
        """Count no more what was chosen before then.

        :param before: wall clock time, in seconds since the epoch
        :returns: the hosts on which something was
        """
        with self._lock:
            expired = [node for node, takings in self._takings.items()
                       if any(taking.at < before for taking in takings)]
            for node in expired:
                left = [taking for taking in self._takings.pop(node)
                        if taking.at >= before]
                if left:
                    self._takings[node] = left
            return expired
