# SPDX-License-Identifier: Apache-2.0
"""Builds that were begun on hosts and that the hosts did not report yet."""

import collections
from collections.abc import Iterable
from collections.abc import Iterator


class InflightBuilds:
    """Remembers when builds were begun, by compute node."""

    def __init__(self) -> None:
        self._times: dict[str, collections.deque[float]] = {}
        # What counts no more is still in here until its time has come.
        self._begun: collections.deque[tuple[float, str]] = (
            collections.deque())

    def add(self, uuid: str, now: float) -> None:
        """Count a build on a host."""
        self._times.setdefault(uuid, collections.deque()).append(now)
        self._begun.append((now, uuid))

    def forget(self, uuids: Iterable[str]) -> None:
        """Forget the builds of hosts that reported, or that are gone."""
        for uuid in uuids:
            self._times.pop(uuid, None)

    def expire(self, before: float) -> Iterator[tuple[str, int]]:
        """Yield hosts, and how many builds are to be counted no more."""
        while self._begun and self._begun[0][0] < before:
            time, uuid = self._begun.popleft()
            times = self._times.get(uuid)
            if times and times[0] == time:
                times.popleft()
                yield uuid, 1
