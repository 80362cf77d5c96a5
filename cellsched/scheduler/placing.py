# SPDX-License-Identifier: Apache-2.0
"""Choosing hosts for a request and claiming them."""

import collections
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from oslo_log import log

from cellsched.claims import base as claims_base
from cellsched import clock as clock_
from cellsched import context as context_
from cellsched import exception
from cellsched.hosts import loader as loader_
from cellsched.hosts import table
from cellsched import objects
from cellsched.scheduler import candidates as candidates_
from cellsched.scheduler import diagnosis
from cellsched.scheduler import pipeline as pipeline_
from cellsched.scheduler import ranking as ranking_

LOG = log.getLogger(__name__)


class Placing:
    """Chooses on the table of a loader; the claim store arbitrates.

    What is chosen is taken in the table at once, so that other threads see it,
    and then claimed. When the store refuses, somebody else was faster: the
    table is set right and the choice made again.

    :param attempts_max: times to choose for one request
    """

    def __init__(
        self, loader: loader_.Loader, pipeline: pipeline_.Pipeline,
        claims: claims_base.ClaimStore, clock: clock_.Clock,
        attempts_max: int,
    ) -> None:
        self._loader = loader
        self._pipeline = pipeline
        self._claims = claims
        self._clock = clock
        self._attempts_max = attempts_max

    def place(
        self, context: context_.RequestContext, request: objects.RequestSpec,
        uuids: Sequence[str], alternates: int,
    ) -> list[list[objects.Selection]]:
        """Choose and claim a host for each instance; see the drivers' base.

        :raises cellsched.exception.NoValidHost: not all of them fit
        """
        asked_at = self._clock.monotonic()
        fresh = self._loader.refresh(context)
        refused: collections.Counter[str] = collections.Counter()
        chosen = 0
        while chosen < self._attempts_max:
            located = self._locate(
                [*uuids, *self._pipeline.located(request)])
            places, why = self._choose(
                request, uuids, alternates, located, refused)
            if not places and fresh:
                raise self._error(why)
            if not places:
                # Somebody else may have read it since, after this choice.
                self._loader.refresh(context, since=asked_at)
                fresh = True
                continue
            chosen += 1
            provider = self._claim(uuids, places, located)
            if provider is None:
                LOG.info('Placed %d instances on %s', len(uuids), sorted(
                    {first.service_host for first, *_ in places}))
                return places
            refused[provider] += 1
        raise self._error(dataclasses.replace(
            why, placed=0, lost=len(refused)))

    def _error(self, why: diagnosis.Diagnosis) -> exception.NoValidHost:
        error = why.error()
        LOG.info('%s', error)
        return error

    def _locate(self, instances: Sequence[str]) -> dict[str, str]:
        """Return the nodes that instances hold claims on."""
        return {consumer: claims[0].provider for consumer, claims
                in self._claims.held(instances).items()}

    def _choose(
        self, request: objects.RequestSpec, uuids: Sequence[str],
        alternates: int, located: Mapping[str, str],
        refused: Mapping[str, int],
    ) -> tuple[list[list[objects.Selection]], diagnosis.Diagnosis]:
        """Choose for each instance in turn, and take what is chosen.

        When there is no host for one of them, nothing stays taken, and no
        place is returned but why. A host that was refused although the table,
        set right, had room for it, is passed over.
        """
        lost = [provider for provider, times in refused.items() if times > 1]
        with self._loader.lock:
            hosts = self._loader.table.view(self._clock.timestamp(), located)
            choosing = _Choosing(self._pipeline, hosts, request, lost)
            try:
                complete = all(
                    choosing.choose(located.get(uuid)) for uuid in uuids)
                why = choosing.diagnosis(self._loader.silent, len(uuids))
                if complete:
                    return choosing.selections(alternates), why
            except BaseException:
                choosing.give_back()
                raise
            choosing.give_back()
            return [], why

    def _claim(
        self, uuids: Sequence[str],
        places: Sequence[Sequence[objects.Selection]],
        located: Mapping[str, str],
    ) -> str | None:
        """Claim what was chosen; return the host that was refused, if any."""
        batch = [claim for uuid, (first, *_) in zip(uuids, places)
                 for claim in claims_base.of_selection(uuid, first)
                 if uuid not in located]
        if not batch:
            return None
        try:
            self._claims.claim(batch)
        except exception.ClaimRefused as exc:
            LOG.info('Choosing again: %s', exc)
            self._loader.reload([claim.provider for claim in batch])
            return exc.provider
        except Exception:
            self._loader.reload([claim.provider for claim in batch])
            raise
        return None


class _Choosing:
    """Choosing for the instances of one request, one after the other.

    :param lost: hosts that were refused before, which are passed over
    """

    def __init__(
        self, pipeline: pipeline_.Pipeline, hosts: table.HostTable,
        request: objects.RequestSpec, lost: Sequence[str],
    ) -> None:
        self._pipeline = pipeline
        self._hosts = hosts
        self._request = request
        self._resources = request.resources()
        self._lost = [row for row in map(hosts.row, lost) if row is not None]
        self._rows: list[int] = []
        self._taken: list[int] = []
        self._candidates: candidates_.Candidates | None = None
        self._ranking: ranking_.Ranking | None = None

    def choose(self, held_on: str | None) -> bool:
        """Choose a host for one more instance; return whether there is one.

        :param held_on: the node that it holds a claim on already, which it
            keeps
        """
        if held_on is not None:
            row = self._hosts.row(held_on)
            if row is None:
                return False
        else:
            best = self._rank().top(1)
            if not best:
                return False
            row = best[0]
            self._hosts.take(row, self._resources)
            self._taken.append(row)
        self._rows.append(row)
        return True

    def give_back(self) -> None:
        """Take back what was taken."""
        for row in self._taken:
            self._hosts.take(row, self._resources, -1)
        self._taken.clear()

    def selections(self, alternates: int) -> list[list[objects.Selection]]:
        """Return what was chosen, with alternates in the same cell."""
        others: dict[int, list[objects.Selection]] = {}
        return [[self._selection(row), *self._others(row, alternates, others)]
                for row in self._rows]

    def diagnosis(
        self, silent: Sequence[str], wanted: int
    ) -> diagnosis.Diagnosis:
        """Return what became of the hosts."""
        rejections = (self._candidates.rejections(self._hosts, self._request)
                      if self._candidates is not None else ())
        return diagnosis.Diagnosis(
            len(self._hosts), rejections, len(self._lost), silent, wanted,
            len(self._rows))

    def _rank(self) -> ranking_.Ranking:
        """Return the hosts that are left, by weight."""
        hosts, request = self._hosts, self._request
        if self._candidates is None:
            self._candidates = self._pipeline.candidates(hosts, request)
            for row in self._lost:
                self._candidates = self._candidates.without(row)
        else:
            self._candidates = self._pipeline.recheck(
                hosts, request, self._candidates)
        self._ranking = self._pipeline.weigh(hosts, request, self._candidates)
        return self._ranking

    def _others(
        self, row: int, count: int, known: dict[int, list[objects.Selection]]
    ) -> list[objects.Selection]:
        """Return the best hosts of the row's cell that nobody was given."""
        if not count:
            return []
        cells = self._hosts['cell']
        cell = int(cells[row])
        if cell not in known:
            ranking = (self._rank() if len(self._rows) > 1
                       or self._ranking is None else self._ranking)
            free = cells == cell
            free[self._rows] = False
            known[cell] = [self._selection(other)
                           for other in ranking.top(count, among=free)]
        return known[cell]

    def _selection(self, row: int) -> objects.Selection:
        hosts = self._hosts
        uuid = hosts['uuid'][row]
        return objects.Selection(
            compute_node_uuid=uuid, service_host=hosts['host'][row],
            nodename=hosts['nodename'][row],
            cell_uuid=hosts.text('cell', int(hosts['cell'][row])),
            limits=objects.SchedulerLimits(
                numa_topology=None, vcpu=None, disk_gb=None, memory_mb=None),
            allocation_request=objects.Selection.allocation(
                uuid, self._resources),
            allocation_request_version='1.36',
            availability_zone=hosts.text(
                'availability_zone', int(hosts['availability_zone'][row])))
