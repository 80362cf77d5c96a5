# SPDX-License-Identifier: Apache-2.0
"""Filters that only a scheduler in Nova's place has."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects


class _Stage(base.Filter):

    run_filter_once_per_request = True
    run_on_rebuild = True


class CandidateHosts(_Stage):
    """Reject hosts that are not among the allocation candidates.

    :param uuids: providers of the candidates; child providers are ignored
    """

    reason = 'is not an allocation candidate of Placement'

    def __init__(self, uuids: Iterable[str]) -> None:
        super().__init__()
        self._uuids = uuids

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        mask = np.zeros(len(hosts.whole), dtype=bool)
        found = [row for row in map(hosts.row, self._uuids) if row is not None]
        mask[found] = True
        return mask if hosts.is_whole else mask[hosts.rows]


class AcceptedCandidates(_Stage):
    """Reject hosts whose candidates were all removed by filters of Nova.

    :param candidates_of: returns the candidates that remain on a compute node,
        by its uuid; None if no filter of Nova has read the host
    """

    reason = 'has no allocation candidate that all filters accept'
    by_row = True
    run_filter_once_per_request = False

    def __init__(
        self, candidates_of: Callable[[str], Sequence[Any] | None]
    ) -> None:
        super().__init__()
        self._candidates_of = candidates_of

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        return np.fromiter(
            (self._candidates_of(uuid) != [] for uuid in hosts['uuid']), bool,
            len(hosts))


class RefusedHosts(_Stage):
    """Reject hosts with too many selected servers after refused claims.

    :param most: for compute nodes that refused claims, how many servers of
        the request may still select them
    """

    reason = 'refused the claims of more servers'
    local = True
    run_filter_once_per_request = False

    def __init__(self, most: Mapping[str, int]) -> None:
        super().__init__()
        self._most = most

    def applies(self, request: objects.RequestSpec) -> bool:
        return bool(self._most)

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        selected = collections.Counter(
            row for row, _ in hosts.columns.taken)
        mask = np.ones(len(hosts.whole), dtype=bool)
        for uuid, most in self._most.items():
            row = hosts.row(uuid)
            if row is not None:
                mask[row] = selected[row] < most
        return mask if hosts.is_whole else mask[hosts.rows]


class AnsweringCells(_Stage):
    """Reject hosts of cells that did not answer the last read.

    Nova's conductor would lose a server in this cell, and its claim.

    :param silent: uuids of cells
    """

    reason = 'is in a cell that does not answer'

    def __init__(self, silent: Iterable[str]) -> None:
        super().__init__()
        self._silent = frozenset(silent)

    def applies(self, request: objects.RequestSpec) -> bool:
        return bool(self._silent)

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        return hosts.each('cell', lambda uuid: uuid not in self._silent)
