# SPDX-License-Identifier: Apache-2.0
"""Decisions on a snapshot, which take nothing."""

from collections.abc import Iterable
import random as random_
from typing import Any
from typing import NamedTuple

import numpy as np
from oslo_config import cfg

from cellsched.claims import memory
from cellsched import clock as clock_
from cellsched import context as context_
from cellsched.hosts import document as document_
from cellsched import objects
from cellsched.scheduler.decision import candidates
from cellsched.scheduler.decision import capacity
from cellsched.scheduler import demands
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler.placement import claim_batching
from cellsched.scheduler.placement import placer


def on_snapshot(
    conf: cfg.ConfigOpts, snapshot: document_.HostDocument,
    random: random_.Random,
) -> placer.Placer:
    """Return what plans with the configured filters and weighers.

    It knows of no claims: where instances are is not in a snapshot.
    """
    still: Any = Still(snapshot)
    return placer.Placer(
        still, filter_scheduler.pipeline_of(conf),
        claim_batching.ClaimBatcher(memory.MemoryClaims()),
        _Then(snapshot.now), filter_scheduler.taste_of(conf, random), 2,
        _refuse_to_record,
        slow_plugin_s=conf.scheduler.slow_plugin_seconds,
        ignores_demands=conf.scheduler.unmet_demands == 'ignore')


class CellRoom(NamedTuple):
    """The room of a cell for servers of one kind.

    :param cell: the cell's uuid
    :param hosts: compute nodes that the cell has
    :param passing: those that pass all filters
    :param servers: how many servers these have room for
    """

    cell: str
    hosts: int
    passing: int
    servers: int


def room(
    conf: cfg.ConfigOpts, snapshot: document_.HostDocument,
    request: objects.RequestSpec,
) -> tuple[list[CellRoom], list[candidates.Rejection]]:
    """Return how many servers of one kind fit each cell, and what rejects.

    The configured filters are asked once, as for a single server: what they
    would say of the next ones, as to how many share a host, does not count.
    Cells come in the order of their first hosts.

    :raises cellsched.exception.InvalidField: something asked for makes no
        sense, or is read by no filter
    """
    pipeline = filter_scheduler.pipeline_of(conf)
    refusal = demands.Rule(
        pipeline.reads, conf.scheduler.unmet_demands == 'ignore',
    ).refusal(request, context_.admin())
    if refusal is not None:
        raise refusal
    hosts = snapshot.table.view(snapshot.now)
    found = pipeline.candidates(hosts, request)
    cells = hosts['cell']
    passing = np.zeros(len(hosts), dtype='int64')
    passing[found.rows] = 1
    counts = capacity.counts(hosts, request) * passing
    codes, first = np.unique(cells, return_index=True)
    return [
        CellRoom(hosts.value('cell', code), *(
            int(amounts[cells == code].sum())
            for amounts in (np.ones_like(passing), passing, counts)))
        for code in codes[np.argsort(first)]
    ], pipeline.rejections(request, found)


class Still:
    """Stands for the loader of a table that stays as it is."""

    def __init__(self, snapshot: document_.HostDocument) -> None:
        self.table = snapshot.table
        self.silent = snapshot.silent

    def follow(self, context: context_.RequestContext) -> bool:
        """Do nothing: there is nothing newer."""
        return False

    def reported_nodes(self, instances: Iterable[str]) -> dict[str, str]:
        """Return nothing: where instances are is not in a snapshot."""
        return {}


class _Then(clock_.Clock):
    """The time at which a snapshot was taken."""

    def __init__(self, timestamp: float) -> None:
        self._timestamp = timestamp

    def timestamp(self) -> float:
        return self._timestamp

    def steady(self) -> float:
        return self._timestamp


def _refuse_to_record(*args: Any) -> None:
    raise AssertionError('a plan is not a decision')
