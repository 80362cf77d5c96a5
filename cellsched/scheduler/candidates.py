# SPDX-License-Identifier: Apache-2.0
"""The hosts that may take a request, and why the others may not."""

from collections.abc import Mapping
import dataclasses
import functools

import numpy as np

from cellsched.filters import base
from cellsched.hosts import table
from cellsched import objects
from cellsched.scheduler import answers


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
    :param mask: the hosts that passed all stages
    :param rejected: the hosts that failed, by stage; a host is in one of them
    """

    stages: tuple[base.Filter, ...]
    mask: table.Mask
    rejected: Mapping[base.Filter, table.Mask]

    @functools.cached_property
    def rows(self) -> table.Column:
        """The rows of the hosts that passed."""
        return np.flatnonzero(self.mask)

    def __len__(self) -> int:
        return len(self.rows)

    def without(self, row: int) -> 'Candidates':
        """Return the others, as when the claim store refused this host."""
        mask = self.mask.copy()
        mask[row] = False
        return dataclasses.replace(self, mask=mask)

    def rejections(
        self, hosts: table.HostTable, request: objects.RequestSpec
    ) -> list[Rejection]:
        """Return what hosts failed at, in the order of the stages.

        The nearest misses are those of the moment: what the request itself
        took on a host counts.
        """
        return [
            Rejection(
                stage.name, int(np.count_nonzero(out)), stage.reason,
                answers.ask(stage, _nearest, stage, hosts, request, out))
            for stage in self.stages
            if (out := self.rejected.get(stage)) is not None]


def _nearest(
    stage: base.Filter, hosts: table.HostTable, request: objects.RequestSpec,
    out: table.Mask,
) -> Nearest | None:
    answer = stage.shortfall(hosts, request)
    if answer is None:
        return None
    amounts, unit = answer
    amounts = amounts[out]
    # Where room was given back meanwhile, nothing is missing.
    amounts = amounts[amounts > 0]
    if not len(amounts):
        return None
    least = amounts.min()
    return Nearest(int(np.count_nonzero(amounts == least)), least.item(), unit)
