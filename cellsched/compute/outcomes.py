# SPDX-License-Identifier: Apache-2.0
"""Outcomes of the builds on a host, counted."""

import collections
import threading


class Outcomes:
    """Counts the builds of each node that failed in a row.

    Builds tell of their ends from threads of their own. What is counted here
    goes with the process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failed: collections.Counter[str] = collections.Counter()

    def failed(self, node: str) -> None:
        """Count a build that failed, whoever is to blame for it."""
        with self._lock:
            self._failed[node] += 1

    def succeeded(self, node: str) -> None:
        """Forget the builds that failed before this one."""
        with self._lock:
            self._failed.pop(node, None)

    def failed_in_a_row(self, node: str) -> int:
        """Return how many builds failed since the last that did not."""
        with self._lock:
            return self._failed[node]
