# SPDX-License-Identifier: Apache-2.0
"""Decisions on a snapshot, which claim nothing."""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import operator
from random import Random
from typing import Any
from typing import cast
from typing import NamedTuple

import numpy as np
from oslo_config import cfg

from cellsched.claims import memory
from cellsched import clock
from cellsched.context import admin
from cellsched.context import RequestContext
from cellsched.hardware import fit
from cellsched.host_manager.source import HostSource
from cellsched.hosts import document
from cellsched.hosts import hardware
from cellsched.hosts.table import PendingAllocation
from cellsched.hosts import view
from cellsched import objects
from cellsched.scheduler.decision.capacity import counts
from cellsched.scheduler.decision.capacity import provider_demand
from cellsched.scheduler.decision.pipeline import Pipeline
from cellsched.scheduler.decision.pipeline import Rejection
from cellsched.scheduler.decision import registry
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler.explanation import diagnosis
from cellsched.scheduler import requirements
from cellsched.scheduler.selection import claims
from cellsched.scheduler.selection import placer
from cellsched.weighers import fragmentation


def on_snapshot(
    conf: cfg.ConfigOpts, snapshot: document.HostDocument,
    random: Random, pipeline: Pipeline | None = None,
) -> placer.Placer:
    """Return a placer with the configured filters and weighers.

    It knows no claims: a snapshot has no locations of instances.

    :param pipeline: the decision in place of the configured one
    """
    now = SnapshotClock(snapshot.now)
    return placer.Placer(
        SnapshotSource(snapshot),
        pipeline or filter_scheduler.pipeline_of(conf),
        claims.ClaimQueue(memory.MemoryClaims(), now), now,
        filter_scheduler.selection_policy(conf, random), 2, _refuse_to_record,
        slow_plugin_s=conf.scheduler.slow_plugin_seconds,
        ignores_demands=conf.scheduler.unmet_demands == 'ignore')


class CellCapacity(NamedTuple):
    """The capacity of a cell for servers of one kind.

    :param cell: the cell's uuid
    :param hosts: the number of compute nodes in the cell
    :param passing: the number of compute nodes that pass all filters
    :param servers: the number of servers that fit, if servers in other cells
        take no shared resources
    :param unusable: the share of the free vCPUs, memory and disk of the hosts
        that the mix of flavors cannot use, on average; None without free room
        or a mix
    :param limit: the reason why most of its hosts take no more servers than
        these, in the plural; None if it is not known
    """

    cell: str
    hosts: int
    passing: int
    servers: int
    unusable: float | None
    limit: str | None


class Capacity(NamedTuple):
    """The capacity of all cells for servers of one kind.

    :param cells: in the order of their first hosts
    :param servers: the number of servers that fit all cells together; less
        than the sum if hosts of several cells share resources
    :param reason: why the rejected hosts take no server, as users see it
    :param unusable: as that of a cell, of all hosts
    :param limit: likewise
    """

    cells: list[CellCapacity]
    servers: int
    reason: str
    unusable: float | None
    limit: str | None


def capacity(
    conf: cfg.ConfigOpts, snapshot: document.HostDocument,
    request: objects.RequestSpec,
    pipeline: Pipeline | None = None,
) -> Capacity:
    """Return how many servers of one kind fit each cell.

    The configured filters run once, as for a single server. Limits on the
    number of servers of a group on one host are not applied to further
    servers.

    :param pipeline: the decision in place of the configured one
    :raises cellsched.exception.InvalidField: a requirement is not valid, or no
        filter reads it
    """
    pipeline = pipeline or filter_scheduler.pipeline_of(conf)
    refusal = requirements.RequirementCheck(
        pipeline.reads, conf.scheduler.unmet_demands == 'ignore',
    ).refusal(request, admin())
    if refusal is not None:
        raise refusal
    hosts = snapshot.table.view(snapshot.now)
    found = pipeline.candidates(hosts, request)
    rejections = pipeline.rejections(request, found)
    demand = pipeline.hardware(request)
    numbers, parts = _servers(hosts, found.rows, request, demand)
    full = rejections
    if provider_demand(hosts, request, request.resources()) is None:
        # Otherwise, it is not known which providers the servers take.
        full = _rejections_after(
            pipeline, snapshot, request, found.rows, numbers, parts)
    cells, room = hosts['cell'], _FreeRoom(conf, hosts)
    codes, first = np.unique(cells, return_index=True)
    rooms = []
    for code in codes[np.argsort(first)]:
        members = np.flatnonzero(cells == code)
        passing = cells[found.rows] == code
        # Each cell alone may use all shared resources.
        alone = _servers(hosts, found.rows[passing], request, demand)[
            0] if hosts.sharing else numbers[passing]
        rooms.append(CellCapacity(
            hosts.value('cell', code), len(members), len(alone),
            int(alone.sum()), room.unusable(members),
            _limit(full, members, found.rows[passing])))
    every = np.arange(len(hosts))
    return Capacity(
        rooms, max([int(numbers.sum()), *(each.servers for each in rooms)]),
        diagnosis.Diagnosis(len(hosts), rejections).text(),
        room.unusable(every), _limit(full, every, found.rows))


def _servers(
    hosts: view.Hosts, rows: view.Column, request: objects.RequestSpec,
    demand: fit.Demand | None,
) -> tuple[view.Column, Sequence[Mapping[str, int]]]:
    """Return how many servers fit the hosts in rows, and their parts of each.

    :param demand: the NUMA cells and devices of a server, if filters check
        them
    """
    some = hosts.at(rows)
    found = counts(some, request)
    if demand is None:
        return found, [{}] * len(rows)
    used = hardware.used(some, demand, found)
    return np.array([*map(len, used)], int), [
        functools.reduce(operator.add, map(collections.Counter, each),
                         collections.Counter()) for each in used]


def _rejections_after(
    pipeline: Pipeline, snapshot: document.HostDocument,
    request: objects.RequestSpec, rows: view.Column, numbers: view.Column,
    parts: Sequence[Mapping[str, int]],
) -> list[Rejection]:
    """Return why hosts take no more servers than some numbers.

    :param rows: rows of the hosts, each of which has a number and the parts
        of its servers
    """
    hosts, amounts = snapshot.table.view(snapshot.now), request.resources()
    for row, number, taken in zip(rows.tolist(), numbers.tolist(), parts):
        hosts.take(row, {**taken, **{
            name: amount * number for name, amount in amounts.items()}})
    return pipeline.rejections(request, pipeline.candidates(hosts, request))


def _limit(
    rejections: Iterable[Rejection], rows: view.Column, passing: view.Column
) -> str | None:
    """Return the most frequent reason of hosts; of passing ones, if any."""
    numbers = collections.Counter[str]()
    for each in rejections:
        assert each.rows is not None, 'a stage has rejected them'
        numbers[each.reason] += np.isin(
            each.rows, passing if len(passing) else rows).sum()
    reason, number = max(numbers.items(), key=lambda item: item[1],
                         default=('', 0))
    return diagnosis.plural(reason) if number else None


class _FreeRoom:
    """The free room of hosts, and the part that no mix of flavors can use.

    The mix is that of FragmentationWeigher, whether it is enabled or not.
    """

    def __init__(self, conf: cfg.ConfigOpts, hosts: view.Hosts) -> None:
        name = fragmentation.FragmentationWeigher.__name__
        weigher = cast(fragmentation.FragmentationWeigher,
                       registry.make_weighers(conf, [name])[0])
        self._free = self._rest = np.zeros((len(hosts), 0))
        if weigher.resources:
            self._free = weigher.free(hosts)
            self._rest = fragmentation.unusable(
                self._free, weigher.sizes, weigher.shares)

    def unusable(self, rows: view.Column) -> float | None:
        """Return the unusable share of the free room of some hosts."""
        free, rest = self._free[rows].sum(axis=0), self._rest[rows].sum(axis=0)
        some = free > 0
        return float((rest[some] / free[some]).mean()) if some.any() else None


class SnapshotSource(HostSource):
    """The source of a table that does not change."""

    def __init__(self, snapshot: document.HostDocument) -> None:
        self._snapshot = snapshot
        self.table = snapshot.table
        self.silent = snapshot.silent

    def follow(self, context: RequestContext) -> bool:
        """Do nothing: a snapshot has no newer state."""
        return False

    def refresh(
        self, context: RequestContext, since: float | None = None
    ) -> bool:
        """Do nothing: a snapshot has no newer state."""
        return False

    def reload(self, providers: Sequence[str]) -> None:
        """Do nothing: a snapshot has no claim store."""

    def confirm(
        self, allocations: Iterable[PendingAllocation], claimed: bool = True
    ) -> None:
        """Do nothing: a plan is not claimed."""

    def snapshot(self, context: RequestContext) -> document.HostDocument:
        return self._snapshot


class SnapshotClock(clock.Clock):
    """A clock that stands at the time of a snapshot."""

    def __init__(self, timestamp: float) -> None:
        self._timestamp = timestamp

    def timestamp(self) -> float:
        return self._timestamp

    def steady(self) -> float:
        return self._timestamp


def _refuse_to_record(*args: Any) -> None:
    raise AssertionError('a plan is not a decision')
