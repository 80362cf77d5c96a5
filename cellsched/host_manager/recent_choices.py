# SPDX-License-Identifier: Apache-2.0
"""Choices of the last minute, for who keeps no table to count them in."""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import threading
from typing import Any

from cellsched.claims import base as claims_base
from cellsched.hosts.table import HostTable
from cellsched.hosts import view


@dataclasses.dataclass(frozen=True)
class RecentChoice:
    """A host that was chosen for one instance.

    :param node: uuid of the compute node
    :param at: wall clock time, in seconds since the epoch
    :param mark: of the node's row in its cell; another one says that the host
        has reported since
    :param held: amounts by resource class, by provider, that nobody claimed
    """

    node: str
    at: float
    mark: Any
    held: Mapping[str, Mapping[str, int]]


class RecentChoices:
    """Remembers what was chosen until hosts report it, or for a time.

    A host reports builds itself, and what was not claimed is in its cell by
    then. Any thread may call any method.

    :param lasting_s: seconds after which a choice counts no more
    """

    def __init__(self, lasting_s: float) -> None:
        self._lasting_s = lasting_s
        self._lock = threading.Lock()
        self._choices: collections.deque[RecentChoice] = collections.deque()

    def add(self, choices: Iterable[RecentChoice]) -> None:
        """Count these from now on."""
        with self._lock:
            self._choices.extend(choices)

    def current(self, now: float) -> list[RecentChoice]:
        """Return those that still count; forget the others."""
        with self._lock:
            while self._choices and (
                    self._choices[0].at < now - self._lasting_s):
                self._choices.popleft()
            return list(self._choices)


def count_builds(
    table: HostTable, choices: Iterable[RecentChoice],
    marks: Mapping[str, Any],
) -> None:
    """Count builds on hosts that have not reported since.

    :param marks: of the nodes' rows, by the nodes
    """
    builds = collections.Counter(
        each.node for each in choices
        if table.row(each.node) is not None
        and marks.get(each.node) == each.mark)
    if builds:
        there = table.written(view.BUILDS)
        table.put(list(builds), {view.BUILDS: [
            there[table.row(node)] + count
            for node, count in builds.items()]})


def with_held(
    usages: Iterable[claims_base.Usage], choices: Iterable[RecentChoice]
) -> list[claims_base.Usage]:
    """Return what is taken of providers, with what nobody claimed."""
    held: dict[str, collections.Counter[str]] = {}
    consumers = collections.Counter[str]()
    for choice in choices:
        for provider, amounts in choice.held.items():
            held.setdefault(
                provider, collections.Counter()).update(amounts)
            consumers[provider] += 1
    return [
        usage if usage.provider not in held else dataclasses.replace(
            usage, used=held[usage.provider] + collections.Counter(
                usage.used),
            consumers=usage.consumers + consumers[usage.provider])
        for usage in usages]
