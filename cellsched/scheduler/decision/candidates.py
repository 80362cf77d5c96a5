# SPDX-License-Identifier: Apache-2.0
"""The hosts that may take a request, and why the others may not."""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses

import numpy as np

from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects
from cellsched.scheduler.decision import filtering
from cellsched.scheduler.decision import plugin_calls


@dataclasses.dataclass(frozen=True)
class Nearest:
    """The nearest miss: so many ``hosts`` lack just this ``amount``."""

    hosts: int
    amount: float
    unit: str


@dataclasses.dataclass(frozen=True)
class Rejection:
    """So many ``hosts`` failed at one stage, and at none before it."""

    by: str
    hosts: int
    reason: str
    nearest: Nearest | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Candidates:
    """Hosts that passed, and what each of the others failed at.

    :param stages: what the hosts are asked, in this order
    :param filtered: the hosts that passed all stages
    """

    stages: tuple[base.Filter, ...]
    filtered: filtering.FilteredHosts

    @property
    def rows(self) -> view.Column:
        """The rows of the hosts that passed."""
        return self.filtered.rows

    def __len__(self) -> int:
        return self.filtered.left

    def without(self, rows: Sequence[int]) -> 'Candidates':
        """Return the others, as when the claim store refused these hosts."""
        return Candidates(self.stages, self.filtered.without(rows))

    def rejected(self, stage: base.Filter) -> view.Column:
        """Return the rows that failed at a stage; each is in one of them."""
        found = [step.rejected for step in self.filtered.steps
                 if step.stage is stage]
        return np.concatenate(found) if found else np.empty(0, 'int64')

    def rejections(
        self, request: objects.RequestSpec,
        calls: plugin_calls.PluginCalls | None = None,
    ) -> list[Rejection]:
        """Return what hosts failed at, in the order of the stages.

        The nearest misses are those of the moment: what the request itself
        took on a host counts.
        """
        return list(
            self._rejections(request, calls or plugin_calls.PluginCalls()))

    def _rejections(
        self, request: objects.RequestSpec, calls: plugin_calls.PluginCalls
    ) -> Iterator[Rejection]:
        for stage in self.stages:
            rows = np.sort(self.rejected(stage))
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
    # Where room was given back meanwhile, nothing is missing.
    amounts = amounts[amounts > 0]
    if not len(amounts):
        return None
    least = amounts.min().item()
    if least == int(least):
        least = int(least)
    return Nearest(int(np.count_nonzero(amounts == least)), least, unit)
