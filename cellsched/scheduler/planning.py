# SPDX-License-Identifier: Apache-2.0
"""Decisions on a snapshot, which take nothing."""

from collections.abc import Iterable
import random as random_
from typing import Any

from oslo_config import cfg

from cellsched.claims import memory
from cellsched import clock as clock_
from cellsched import context as context_
from cellsched.hosts import document as document_
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
