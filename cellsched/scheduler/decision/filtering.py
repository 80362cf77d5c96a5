# SPDX-License-Identifier: Apache-2.0
"""Asking stage after stage, about ever fewer hosts."""

from collections.abc import Iterable
import dataclasses
from typing import NamedTuple

import numpy as np

from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects
from cellsched.scheduler.decision import plugin_calls

#: As long as more than one host in so many is left, whole columns are read,
#: and a mask says which hosts are left. To pick the few out of a column pays
#: only when they are few.
_FEW = 6


class FilterStep(NamedTuple):
    """The hosts that one stage left of those that reached it.

    :param hosts: the hosts that it was shown
    :param before: which of them were still in; all where it is None
    :param after: which of them passed
    """

    stage: base.Filter
    hosts: view.Hosts
    before: view.Mask | None
    after: view.Mask
    entered: int
    left: int

    @property
    def rejected(self) -> view.Column:
        """The rows that failed here."""
        out = ~self.after
        if self.before is not None:
            out &= self.before
        return self.hosts.rows[out]


@dataclasses.dataclass(frozen=True, eq=False)
class FilteredHosts:
    """The hosts that are left.

    :param hosts: these hosts, or more than these
    :param mask: which of them are left; all where it is None
    :param left: how many are left
    :param steps: what each stage left that rejected any
    """

    hosts: view.Hosts
    mask: view.Mask | None
    left: int
    steps: tuple[FilterStep, ...] = ()

    @property
    def rows(self) -> view.Column:
        """The rows of the table of those that are left."""
        if self.mask is None:
            return self.hosts.rows
        places = np.flatnonzero(self.mask)
        return self.hosts.table_rows(places)

    def narrowed(self, few: float = 1) -> 'FilteredHosts':
        """Return the same with no other hosts.

        :param few: only if less than one in so many is left
        """
        if self.mask is None or self.left * few >= len(self.hosts):
            return self
        return FilteredHosts(
            self.hosts.at(self.rows), None, self.left, self.steps)

    def without(self, rows: Iterable[int]) -> 'FilteredHosts':
        """Return the same without the hosts in these rows of the table."""
        mask = np.isin(self.hosts.rows, list(rows), invert=True)
        if self.mask is not None:
            mask &= self.mask
        return FilteredHosts(
            self.hosts, mask, int(np.count_nonzero(mask)), self.steps)

    def through(
        self, stages: Iterable[base.Filter], request: objects.RequestSpec,
        calls: plugin_calls.PluginCalls | None = None,
    ) -> 'FilteredHosts':
        """Return the hosts that pass these stages too.

        :param calls: calls the stages
        """
        calls = calls or plugin_calls.PluginCalls()
        hosts, mask, left = self.hosts, self.mask, self.left
        steps = list(self.steps)
        for stage in stages:
            if not left:
                break
            if mask is not None and (
                    stage.by_row or left * _FEW < len(hosts)):
                hosts = hosts.at(hosts.table_rows(np.flatnonzero(mask)))
                mask = None
            answer = calls.mask(stage, hosts, request)
            if answer is None:
                continue
            passed = answer if mask is None else mask & answer
            count = int(np.count_nonzero(passed))
            if count < left:
                steps.append(
                    FilterStep(stage, hosts, mask, passed, left, count))
                mask, left = passed, count
        return FilteredHosts(hosts, mask, left, tuple(steps))
