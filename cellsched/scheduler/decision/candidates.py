# SPDX-License-Identifier: Apache-2.0
"""Candidates of a request, and the reasons of rejected hosts."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
from typing import NamedTuple

import numpy as np

from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects
from cellsched.scheduler.decision import plugin_calls

#: While more than one host in this many remains, filters read whole columns
#: with a mask. Gathering the remaining rows pays only when they are few.
_FEW = 6


class FilterStep(NamedTuple):
    """The result of one stage.

    :param hosts: the hosts that the stage read
    :param before: mask of the hosts that reached it; None for all
    :param after: mask of the hosts that passed
    """

    stage: base.Filter
    hosts: view.Hosts
    before: view.Mask | None
    after: view.Mask
    entered: int
    left: int

    @property
    def rejected(self) -> view.Column:
        """The rows that the stage rejected."""
        out = ~self.after
        if self.before is not None:
            out &= self.before
        return self.hosts.rows[out]


@dataclasses.dataclass(frozen=True, eq=False)
class FilteredHosts:
    """The hosts that remain after some stages.

    :param hosts: a superset of the remaining hosts
    :param mask: mask of the remaining hosts; None for all
    :param left: number of remaining hosts
    :param steps: results of the stages that rejected hosts
    """

    hosts: view.Hosts
    mask: view.Mask | None
    left: int
    steps: tuple[FilterStep, ...] = ()

    @property
    def rows(self) -> view.Column:
        """The table rows of the remaining hosts."""
        if self.mask is None:
            return self.hosts.rows
        places = np.flatnonzero(self.mask)
        return self.hosts.table_rows(places)

    def narrowed(self, few: float = 1) -> 'FilteredHosts':
        """Return the same without rejected hosts in ``hosts``.

        :param few: do it only if fewer than one in this many remains
        """
        if self.left * few >= len(self.hosts):
            return self
        return FilteredHosts(
            self.hosts.at(self.rows), None, self.left, self.steps)

    def without(self, rows: Iterable[int]) -> 'FilteredHosts':
        """Return the same without the hosts in these table rows."""
        mask = np.isin(self.hosts.rows, list(rows), invert=True)
        if self.mask is not None:
            mask &= self.mask
        return FilteredHosts(
            self.hosts, mask, int(np.count_nonzero(mask)), self.steps)

    def through(
        self, stages: Iterable[base.Filter], request: objects.RequestSpec,
        calls: plugin_calls.PluginCalls | None = None,
    ) -> 'FilteredHosts':
        """Return the hosts that also pass these stages.

        :param calls: calls the stages
        """
        calls = calls or plugin_calls.PluginCalls()
        hosts, mask, remaining = self.hosts, self.mask, self.left
        steps = list(self.steps)
        for stage in stages:
            if not remaining:
                break
            if mask is not None and (
                    stage.by_row or remaining * _FEW < len(hosts)):
                hosts = hosts.at(hosts.table_rows(np.flatnonzero(mask)))
                mask = None
            answer = calls.mask(stage, hosts, request)
            if answer is None:
                continue
            passed = answer if mask is None else mask & answer
            count = int(np.count_nonzero(passed))
            if count < remaining:
                steps.append(
                    FilterStep(stage, hosts, mask, passed, remaining, count))
                mask, remaining = passed, count
        return FilteredHosts(hosts, mask, remaining, tuple(steps))


@dataclasses.dataclass(frozen=True)
class Nearest:
    """The nearest miss: ``hosts`` hosts lack only ``amount``."""

    hosts: int
    amount: float
    unit: str


@dataclasses.dataclass(frozen=True)
class Rejection:
    """The number of ``hosts`` that a stage rejected first."""

    by: str
    hosts: int
    reason: str
    nearest: Nearest | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Candidates:
    """The hosts that passed, and the rejections of all other hosts.

    :param stages: the stages in order
    :param filtered: the hosts that passed all stages
    """

    stages: tuple[base.Filter, ...]
    filtered: FilteredHosts

    @property
    def rows(self) -> view.Column:
        """The table rows of the hosts that passed."""
        return self.filtered.rows

    def __len__(self) -> int:
        return self.filtered.left

    def without(self, rows: Sequence[int]) -> 'Candidates':
        """Return the candidates without hosts that the claim store refused."""
        return Candidates(self.stages, self.filtered.without(rows))

    def rejected(self, stage: base.Filter) -> view.Column:
        """Return the rows that each stage rejected; each row appears once."""
        found = [step.rejected for step in self.filtered.steps
                 if step.stage is stage]
        return np.concatenate(found) if found else np.empty(0, 'int64')

    def rejections(
        self, request: objects.RequestSpec,
        calls: plugin_calls.PluginCalls | None = None,
        besides: Sequence[int] = (),
    ) -> list[Rejection]:
        """Return the rejections in the order of the stages.

        The nearest misses include the amounts that this request has already
        taken on a host.

        :param besides: rows of hosts that are counted elsewhere
        """
        return list(self._rejections(
            request, calls or plugin_calls.PluginCalls(), besides))

    def _rejections(
        self, request: objects.RequestSpec, calls: plugin_calls.PluginCalls,
        besides: Sequence[int],
    ) -> Iterator[Rejection]:
        for stage in self.stages:
            rows = np.setdiff1d(self.rejected(stage), besides)
            if len(rows):
                nearest = calls.ask(
                    stage, _nearest, stage, self.filtered.hosts.at(rows),
                    request)
                yield Rejection(stage.name, len(rows), stage.reason, nearest)


def _nearest(
    stage: base.Filter, out: view.Hosts, request: objects.RequestSpec
) -> Nearest | None:
    answer = stage.shortfall(out, request)
    if answer is None:
        return None
    amounts, unit = answer
    # A host whose capacity was released meanwhile lacks nothing.
    amounts = amounts[amounts > 0]
    if not len(amounts):
        return None
    least = amounts.min().item()
    if least == int(least):
        least = int(least)
    return Nearest(int(np.count_nonzero(amounts == least)), least, unit)
