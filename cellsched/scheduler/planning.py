# SPDX-License-Identifier: Apache-2.0
"""Decisions on a snapshot, which take nothing."""

from collections.abc import Iterable
from random import Random
from typing import Any
from typing import NamedTuple

import numpy as np
from oslo_config import cfg

from cellsched.claims import memory
from cellsched import clock
from cellsched.context import admin
from cellsched.context import RequestContext
from cellsched.hosts import document
from cellsched.hosts import view
from cellsched import objects
from cellsched.scheduler.decision import candidates
from cellsched.scheduler.decision.capacity import counts
from cellsched.scheduler.decision.pipeline import Pipeline
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler import requirements
from cellsched.scheduler.selection import claims
from cellsched.scheduler.selection import placer


def on_snapshot(
    conf: cfg.ConfigOpts, snapshot: document.HostDocument,
    random: Random, pipeline: Pipeline | None = None,
) -> placer.Placer:
    """Return what plans with the configured filters and weighers.

    It knows of no claims: where instances are is not in a snapshot.

    :param pipeline: the decision in place of the one that is configured
    """
    still: Any = SnapshotSource(snapshot)
    return placer.Placer(
        still, pipeline or filter_scheduler.pipeline_of(conf),
        claims.ClaimBatcher(memory.MemoryClaims()),
        SnapshotClock(snapshot.now),
        filter_scheduler.selection_policy(conf, random), 2, _refuse_to_record,
        slow_plugin_s=conf.scheduler.slow_plugin_seconds,
        ignores_demands=conf.scheduler.unmet_demands == 'ignore')


class CellCapacity(NamedTuple):
    """The room of a cell for servers of one kind.

    :param cell: the cell's uuid
    :param hosts: compute nodes that the cell has
    :param passing: those that pass all filters
    :param servers: how many servers these have room for, where those of
        other cells take nothing of what is shared
    """

    cell: str
    hosts: int
    passing: int
    servers: int


class Capacity(NamedTuple):
    """The room of all cells for servers of one kind.

    :param cells: in the order of their first hosts
    :param servers: how many servers all cells have room for together; fewer
        than the sum, where hosts of several cells share what they take
    :param rejections: what rejected the other hosts
    """

    cells: list[CellCapacity]
    servers: int
    rejections: list[candidates.Rejection]


def capacity(
    conf: cfg.ConfigOpts, snapshot: document.HostDocument,
    request: objects.RequestSpec,
    pipeline: Pipeline | None = None,
) -> Capacity:
    """Return how many servers of one kind fit each cell, and what rejects.

    The configured filters are asked once, as for a single server: what they
    would say of the next ones, as to how many share a host, does not count.

    :param pipeline: the decision in place of the one that is configured
    :raises cellsched.exception.InvalidField: something asked for makes no
        sense, or is read by no filter
    """
    pipeline = pipeline or filter_scheduler.pipeline_of(conf)
    refusal = requirements.RequirementCheck(
        pipeline.reads, conf.scheduler.unmet_demands == 'ignore',
    ).refusal(request, admin())
    if refusal is not None:
        raise refusal
    hosts = snapshot.table.view(snapshot.now)
    found = pipeline.candidates(hosts, request)
    cells = hosts['cell']
    codes, first = np.unique(cells, return_index=True)
    rooms = []
    for code in codes[np.argsort(first)]:
        rows = found.rows[cells[found.rows] == code]
        rooms.append(CellCapacity(
            hosts.value('cell', code), int(np.count_nonzero(cells == code)),
            len(rows), _servers(hosts, rows, request)))
    servers = sum(each.servers for each in rooms)
    if hosts.sharing:
        # Alone each may have what all of them share.
        servers = max(_servers(hosts, found.rows, request), max(
            (each.servers for each in rooms), default=0))
    return Capacity(rooms, servers, pipeline.rejections(request, found))


def _servers(
    hosts: view.Hosts, rows: view.Column, request: objects.RequestSpec
) -> int:
    """Return how many servers the hosts in some rows have room for."""
    return int(counts(hosts.at(rows), request).sum())


class SnapshotSource:
    """Stands for the loader of a table that stays as it is."""

    def __init__(self, snapshot: document.HostDocument) -> None:
        self.table = snapshot.table
        self.silent = snapshot.silent

    def follow(self, context: RequestContext) -> bool:
        """Do nothing: there is nothing newer."""
        return False

    def extend(self) -> bool:
        """Return that no host was left out."""
        return False

    def left_out(self) -> tuple[()]:
        """Return that no host was left out."""
        return ()

    def reported_nodes(self, instances: Iterable[str]) -> dict[str, str]:
        """Return nothing: where instances are is not in a snapshot."""
        return {}


class SnapshotClock(clock.Clock):
    """The time at which a snapshot was taken."""

    def __init__(self, timestamp: float) -> None:
        self._timestamp = timestamp

    def timestamp(self) -> float:
        return self._timestamp

    def steady(self) -> float:
        return self._timestamp


def _refuse_to_record(*args: Any) -> None:
    raise AssertionError('a plan is not a decision')
