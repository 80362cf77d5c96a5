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
        self._pending: dict[str, list[table.PendingAllocation]] = {}

    def add(self, allocations: Iterable[table.PendingAllocation]) -> None:
        """Count these from now on."""
        with self._lock:
            for allocation in allocations:
                self._pending.setdefault(
                    allocation.node, []).append(allocation)

    def held(self, node: str) -> Mapping[str, int]:
        """Return the amounts by resource class that a host gives to them."""
        held = collections.Counter[str]()
        with self._lock:
            for allocation in self._pending.get(node, ()):
                held.update(dict(allocation.resources))
        return held

    def expire(self, before: float) -> list[str]:
        """Count no more what was chosen before then.

        :param before: wall clock time, in seconds since the epoch
        :returns: the hosts on which something was
        """
        with self._lock:
            expired = [node for node, allocations in self._pending.items()
                       if any(each.at < before for each in allocations)]
            for node in expired:
                left = [allocation for allocation in self._pending.pop(node)
                        if allocation.at >= before]
                if left:
                    self._pending[node] = left
            return expired
