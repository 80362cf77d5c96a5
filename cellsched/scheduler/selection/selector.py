# SPDX-License-Identifier: Apache-2.0
"""Selecting hosts for the instances of one request in turn."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import copy
import dataclasses
import functools
import itertools
from random import Random
from typing import Any
from typing import NamedTuple
from typing import Protocol

import numpy as np

from cellsched.filters import base as filters_base
from cellsched.hardware import fit
from cellsched.hosts import view
from cellsched import objects
from cellsched.scheduler.decision import allocation
from cellsched.scheduler.decision import capacity
from cellsched.scheduler.decision.pipeline import Candidates
from cellsched.scheduler.decision.pipeline import Pipeline
from cellsched.scheduler.decision.pipeline import Rejection
from cellsched.scheduler.decision.ranking import Ranking
from cellsched.scheduler.explanation import decision_record
from cellsched.scheduler.explanation import diagnosis
from cellsched.scheduler.selection import claims

#: The growth factor of the subset with each refusal.
_GROWTH = 4

#: Weights that differ by more have a multiplier far above 1. The operator
#: wants a strict order of these hosts, for example after failed builds, so
#: that no random choice is made between them.
_FAR = 10.0

#: The hosts that the claim store chooses from. With more, a store that tries
#: one after the other takes longer than a new selection, which knows more.
_CANDIDATES = 8

#: The same for a server with NUMA cells or devices: a fit on each host takes
#: longer than the rest of the selection.
_FITTED_CANDIDATES = 2

#: Amounts by resource class, with their providers.
Held = Iterable[tuple[str, Mapping[str, int]]]

_UNLIMITED = {
    'numa_topology': None, 'vcpu': None, 'disk_gb': None, 'memory_mb': None}


class ChosenHost(NamedTuple):
    """A host that is selected for an instance.

    :param host: name of the compute service
    :param node: uuid of the compute node
    :param amounts: amounts by resource class, by provider
    """

    host: str
    node: str
    amounts: Mapping[str, Mapping[str, int]]


@dataclasses.dataclass(frozen=True)
class SelectionPolicy:
    """The rules to select one of the best hosts.

    :param subset_size: the number of best hosts to select from at random
    :param shuffle: select at random among hosts of equal greatest weight
    :param start: the position in the table, 0 to 1, from which the first of
        equal hosts is selected; different for each scheduler, so that
        schedulers do not select the same host
    :param refused_subset_size: the upper limit of the subset size after
        refusals; the size grows with each refusal
    :param evacuation_subset_size: the lower limit of the subset size for a
        server whose host accepts no servers
    :param takes_servers: returns whether a host accepts servers; without it,
        no request is an evacuation
    """

    random: Random
    subset_size: int = 1
    shuffle: bool = False
    start: float = 0.0
    refused_subset_size: int = 1
    evacuation_subset_size: int = 1
    takes_servers: filters_base.Filter | None = None

    def width(
        self, hosts: view.Hosts, request: objects.RequestSpec, refusals: int
    ) -> int:
        """Return the number of best hosts to select from at random.

        :param refusals: the number of refusals by the claim store
        """
        width = self.subset_size
        if refusals:
            # Schedulers that lost to the same winner retry at the same time
            # with the same data. Each refusal makes such a collision more
            # likely.
            width = max(width, min(
                self.refused_subset_size, _GROWTH ** min(refusals, 32)))
        if (self.evacuation_subset_size > width
                and self._is_evacuation(hosts, request)):
            width = self.evacuation_subset_size
        return width

    def pick(
        self, ranking: Ranking, width: int | None = None, count: int = 1
    ) -> list[int]:
        """Return the selected row, followed by the next ones to select.

        :param width: the number of best hosts to select from at random; the
            configured number by default
        :param count: the maximum number of rows; fewer if fewer hosts passed
        """
        size = self.subset_size
        width = max(width or size, size)
        if width == 1 and not self.shuffle:
            return ranking.top(count, start=self.start)
        best = ranking.top(width)
        if width > size:
            best = _near(ranking, best, size)
        if self.shuffle:
            tied = ranking.tied()
            self.random.shuffle(tied)
            rest = [row for row in best if row not in tied]
            best = [*tied, *rest][:width]
        if not best:
            return []
        rows = [self.random.choice(best)]
        if count > 1:
            rest = [row for row in best if row not in rows]
            self.random.shuffle(rest)
            rows += dict.fromkeys([*rest, *ranking.top(width + count)])
        return list(dict.fromkeys(rows))[:count]

    def _is_evacuation(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> bool:
        """Return whether a server leaves a host that accepts no servers."""
        names = request.get('ignore_hosts')
        if not names or self.takes_servers is None:
            return False
        rows = sorted({row for name in names for row in hosts.named(name)})
        if not rows:
            return False
        passed = self.takes_servers.keep(hosts.at(np.array(rows)), request)
        return passed is not None and not passed.all()


def _near(ranking: Ranking, rows: list[int], least: int) -> list[int]:
    """Return the best hosts with weights close to the greatest one.

    :param least: the minimum number of hosts, however far they are
    """
    weights = [ranking.weighed(row, detailed=False)[0] for row in rows]
    return [row for place, (row, weight) in enumerate(zip(rows, weights))
            if place < least or weights[0] - weight <= _FAR]


class Offers(Protocol):
    """The claims that hosts offer to a request.

    :ivar is_parted: whether providers other than hosts may have a part
    """

    is_parted: bool

    def allocate(self, row: int) -> allocation.ProviderAllocations | None:
        """Return the claim on a host.

        None if the host itself serves everything; with ``is_parted``, if the
        host has no claim to offer.
        """

    def alternate(self, row: int) -> allocation.ProviderAllocations | None:
        """Return the same for a host that is not selected, but answered."""

    def kept(
        self, held: Mapping[str, Mapping[str, int]]
    ) -> allocation.ProviderAllocations | None:
        """Return an existing claim; None if the host itself serves it.

        :param held: the claimed amounts on each provider
        """

    def taken(
        self, row: int, allocated: allocation.ProviderAllocations | None
    ) -> None:
        """Note that a host is selected for one more instance."""

    def selection(
        self, row: int, allocated: allocation.ProviderAllocations | None,
        limits: Mapping[str, Any],
    ) -> Any:
        """Return a host in the form of an answer.

        :param limits: the limits of filters
        """


class HostOffers:
    """The claims on the providers in the table.

    :param resources: unnumbered amounts of the request
    :param hardware: its NUMA cells and devices, if filters check them
    """

    def __init__(
        self, hosts: view.Hosts, request: objects.RequestSpec,
        resources: Mapping[str, int], hardware: fit.Demand | None = None,
    ) -> None:
        self._hosts = hosts
        self._resources = resources
        # Few requests need providers other than hosts, NUMA cells or devices.
        self._demand = capacity.provider_demand(hosts, request, resources)
        self._hardware = hardware
        self.is_parted = self._demand is not None or hardware is not None
        self._unlimited = objects.SchedulerLimits.of(**_UNLIMITED)

    def allocate(self, row: int) -> allocation.ProviderAllocations | None:
        found: allocation.ProviderAllocations | None
        if self._demand is not None:
            found = allocation.allocate(self._hosts, row, self._demand)
        else:
            found = allocation.whole(
                self._hosts['uuid'][row], self._resources)
        if found is None or self._hardware is None:
            return found
        return allocation.with_hardware(
            self._hosts, row, self._hardware, found)

    alternate = allocate

    def kept(
        self, held: Mapping[str, Mapping[str, int]]
    ) -> allocation.ProviderAllocations | None:
        return allocation.ProviderAllocations.kept(
            self._demand or allocation.ProviderDemand(
                tuple(self._resources.items())), held)

    def taken(
        self, row: int, allocated: allocation.ProviderAllocations | None
    ) -> None:
        """Do nothing: the view counts the host as taken."""

    def selection(
        self, row: int, allocated: allocation.ProviderAllocations | None,
        limits: Mapping[str, Any],
    ) -> objects.Selection:
        uuid, host, nodename, cell, zone = self._hosts.values_at(
            row, 'uuid', 'host', 'nodename', 'cell', 'availability_zone')
        return objects.Selection.of(
            compute_node_uuid=uuid, service_host=host, nodename=nodename,
            cell_uuid=cell,
            # Creating limits takes longer than the rest.
            limits=self._unlimited if not limits else objects.SchedulerLimits(
                **{**_UNLIMITED, **limits}),
            allocation_request=objects.Selection.allocation(
                uuid, self._resources) if allocated is None else (
                objects.Selection.allocations(
                    allocated.allocations, allocated.mappings)),
            allocation_request_version='1.36', availability_zone=zone)


class Selector:
    """The instances of a request, and the hosts selected for them.

    :param refusals: hosts to skip, because they were refused before
    :param seed: the seed of random selections; by default a new one
    :param offers: the claims that hosts offer; those in the table by default
    :ivar seed: the seed; None if nothing is selected at random
    """

    def __init__(
        self, pipeline: Pipeline, policy: SelectionPolicy,
        hosts: view.Hosts, request: objects.RequestSpec,
        refusals: claims.ClaimRefusals | None = None,
        seed: int | None = None, offers: Offers | None = None,
    ) -> None:
        self._pipeline = pipeline
        self.hosts = self._hosts = hosts
        self._request = request
        self._resources = request.resources()
        hardware = pipeline.hardware(request)
        self._has_hardware = hardware is not None
        self._most = _CANDIDATES if hardware is None else _FITTED_CANDIDATES
        self._offers = offers or HostOffers(
            hosts, request, self._resources, hardware)
        self._is_parted = self._offers.is_parted
        self._allocations: dict[int, allocation.ProviderAllocations] = {}
        refusals = refusals or claims.ClaimRefusals()
        self._refused = refusals.refused(hosts)
        self._hopeless = refusals.hopeless(hosts)
        self._closed = refusals.closed(hosts)
        self._width = policy.width(hosts, request, refusals.times)
        self.seed = seed
        if self._width > 1 or policy.shuffle:
            if seed is None:
                self.seed = policy.random.getrandbits(63)
            assert self.seed is not None
            # A selection can be repeated with its seed.
            policy = dataclasses.replace(policy, random=Random(self.seed))
        self._policy = policy
        #: The refused hosts that passed all other stages.
        self._denied = 0
        self._rows: list[int] = []
        self._candidates: Candidates | None = None
        self._rejections: Sequence[Rejection] = ()
        self._ranking: Ranking | None = None
        self._picks: list[decision_record.Pick] = []
        self._last_taken: int | None = None
        #: The rows that the claim store passed over.
        self._passed: Sequence[int] = ()
        #: The rows that follow the one of the only instance in the ranking,
        #: with their allocations.
        self.following: Sequence[
            tuple[int, allocation.ProviderAllocations | None]] = ()
        #: The rows that can be alternates by cell, and the alternates by row.
        self._alternates_in: dict[int, Sequence[int]] = {}
        self._alternates: dict[int, Any] = {}

    def rank(self) -> tuple[Candidates, Ranking]:
        """Return the hosts for the next instance, by weight."""
        ranking = self._rank()
        assert self._candidates is not None
        return self._candidates, ranking

    def choose(
        self, uuid: str, held_on: str | None, last: bool,
        held: Held = (),
    ) -> bool:
        """Select a host for one more instance; return whether there is one.

        :param held_on: the node of the instance's existing claim, which it
            keeps if the node suits its image; the image may have changed
        :param held: the claimed amounts on each provider
        :param last: no other instance follows
        """
        if held_on is not None:
            row = self._hosts.row(held_on)
            if row is None or not self._suits(row):
                return False
            kept = self._offers.kept(dict(held)) if self._is_parted else None
            if kept is not None:
                self._allocations[len(self._rows)] = kept
        else:
            ranking = self._rank()
            alone = last and not self._rows
            rows = self._policy.pick(
                ranking, self._width, self._most if alone else 1)
            if not rows:
                return False
            row, *rest = rows
            self.following = [
                (other, allocated) for other, allocated in (
                    (other, self._allocate(other)) for other in rest)
                if allocated is not None or not self._is_parted]
            self._take(ranking, row, self._allocate(row), uuid, alone)
            self._last_taken = row
        self._rows.append(row)
        return True

    def _take(
        self, ranking: Ranking, row: int,
        allocated: allocation.ProviderAllocations | None, uuid: str,
        alone: bool,
    ) -> None:
        """Record a choice, and take the instance from its host."""
        is_first = not self._picks
        self._picks.append(decision_record.pick(
            self._hosts, ranking, row, uuid, detailed=is_first))
        if is_first and not alone:
            # The next ranking is derived from this one.
            ranking.detach()
        assert allocated or not self._is_parted, 'its host passed'
        if allocated is not None:
            self._allocations[len(self._rows)] = allocated
            first = self._picks[-1].first
            first.providers = decision_record.providers(
                self._hosts, row, allocated)
            if self._has_hardware:
                topology, pools = self._hosts.values_at(
                    row, 'numa_topology', 'device_pools')
                first.hardware = allocated.resources, topology, pools
        self._hosts.take(row, self._resources if allocated is None
                         else allocated.resources, uuid)
        self._offers.taken(row, allocated)

    def alternatives(self) -> list[ChosenHost]:
        """Return the next hosts of a request for one instance."""
        return self._chosen_hosts(self.following)

    def chosen(self) -> list[ChosenHost]:
        """Return the selected host of each instance."""
        return self._chosen_hosts(
            (row, self._allocations.get(number))
            for number, row in enumerate(self._rows))

    def _chosen_hosts(
        self, chosen: Iterable[
            tuple[int, allocation.ProviderAllocations | None]],
    ) -> list[ChosenHost]:
        hosts, uuids = self._hosts['host'], self._hosts['uuid']
        return [ChosenHost(hosts[row], uuids[row], {
            uuids[row]: self._resources} if allocated is None
            else allocated.allocations) for row, allocated in chosen]

    def choose_other(self, number: int, full: Iterable[str] = ()) -> None:
        """Select one of the alternatives in place of the first choice.

        :param full: names of other hosts that are no alternates
        """
        assert self._ranking is not None
        row, allocated = self.following[number]
        [instance] = [pick.instance for pick in self._picks]
        self._passed = [
            *self._passed, *self._rows,
            *(other for other, _ in self.following[:number]),
            *(row for name in full for row in self._hosts.named(name))]
        self._hosts.columns.give_back()
        self._rows, self._picks, self._allocations = [], [], {}
        self._take(self._ranking, row, allocated, instance, alone=True)
        self._rows.append(row)

    def selections(self, alternates: int) -> list[list[Any]]:
        """Return the selected hosts, with alternates in the same cell."""
        self._alternates_in, self._alternates = {}, {}
        if self._candidates is None:
            # All instances keep their hosts; find the alternates now.
            self._rank()
        return [[self._selection(row, self._allocations.get(number)),
                 *self._other_hosts(row, alternates)]
                for number, row in enumerate(self._rows)]

    def diagnosis(
        self, silent: Sequence[str], requested: int
    ) -> diagnosis.Diagnosis:
        """Return the diagnosis of all hosts.

        Hosts that the claim store refused are counted as refused, even if a
        stage rejects them now.
        """
        if self._candidates is not None:
            self._rejections = self._pipeline.rejections(
                self._request, self._candidates, self._refused)
        return diagnosis.Diagnosis(
            len(self._hosts), self._rejections, len(self._refused), silent,
            requested, len(self._rows), self._denied)

    def decision(self) -> decision_record.Decision:
        """Return the decision, for the record."""
        return decision_record.of(self._hosts, self._candidates, self._picks)

    def examples(self) -> dict[str, list[str]]:
        """Return names of hosts in the last diagnosis, a few by stage."""
        return diagnosis.examples(
            self._hosts, self._rejections, self._refused, self._closed)

    def _suits(self, row: int) -> bool:
        """Return whether a host suits the instance that stays on it."""
        found = self._pipeline.candidates(
            self._hosts.at(np.array([row])), self._request, rebuild=True)
        if not len(found):
            # The instance cannot use another host, so this is the reason.
            self._candidates = found
        return len(found) > 0

    def _rank(self) -> Ranking:
        """Return the remaining hosts, ranked by weight."""
        request = self._request
        known = self._candidates
        if known is not None and self._last_taken is not None and any(
                stage.reopens for stage in known.stages):
            self._candidates = self._ranking = self._last_taken = None
        if self._candidates is None:
            self._candidates = self._pipeline.candidates(self._hosts, request)
            if self._hopeless:
                self._candidates = self._candidates.without(self._hopeless)
            if self._closed:
                rest = self._candidates.without(self._closed)
                self._denied = len(self._candidates) - len(rest)
                self._candidates = rest
        if self._ranking is None:
            self._ranking = self._pipeline.weigh(request, self._candidates)
        elif self._last_taken is not None:
            row, self._last_taken = self._last_taken, None
            self._candidates = self._pipeline.recheck(
                request, self._candidates, row)
            self._ranking = self._pipeline.reweigh(
                request, self._candidates, self._ranking, row)
        return self._ranking

    def _other_hosts(self, row: int, count: int) -> list[Any]:
        """Return the best other hosts in the row's cell."""
        if not count:
            return []
        found = (self._alternate(other) for other in self._following_in_cell(
            int(self._hosts['cell'][row]), count) if other != row)
        return list(itertools.islice(
            (each for each in found if each is not None), count))

    def _following_in_cell(self, cell: int, count: int) -> Sequence[int]:
        """Return the rows of a cell that can be alternates, best first.

        Hosts that were selected for an instance come last. An alternate is
        claimed before its use, so these hosts help if they have capacity.
        """
        if cell not in self._alternates_in:
            ranking = (self._rank() if len(self._rows) > 1
                       or self._ranking is None else self._ranking)
            own = self._hosts.memo(('rows of cell', cell), functools.partial(
                _rows_of_cell, cell=cell))
            passed = set(self._passed).difference(self._rows)
            best = [row for row in ranking.top(
                count + len({*self._rows}) + len(passed), among=own)
                if row not in passed]
            # False sorts first, and the order by weight is kept otherwise.
            best.sort(key={*self._rows}.__contains__)
            self._alternates_in[cell] = best
        return self._alternates_in[cell]

    def _alternate(self, row: int) -> Any | None:
        """Return a host as an alternate; None if it lacks shared resources.

        Earlier selections may have used them up.
        """
        if row not in self._alternates:
            allocated = self._offers.alternate(
                row) if self._is_parted else None
            self._alternates[row] = (
                None if allocated is None and self._is_parted
                else self._selection(row, allocated))
        return self._alternates[row]

    def _allocate(self, row: int) -> allocation.ProviderAllocations | None:
        """Return the allocation on a host if other providers have a part."""
        return self._offers.allocate(row) if self._is_parted else None

    def _selection(
        self, row: int, allocated: allocation.ProviderAllocations | None
    ) -> Any:
        return self._offers.selection(
            row, allocated, {} if self._candidates is None
            else self._pipeline.limits(self._request, self._candidates, row))


def _rows_of_cell(hosts: view.Hosts, cell: int) -> view.Column:
    return np.flatnonzero(hosts['cell'] == cell)


#: The hint that spreads a request's instances over failure domains.
_SPREAD = 'spread'


def with_members(
    request: objects.RequestSpec, uuids: Sequence[str]
) -> objects.RequestSpec:
    """Return a request with its own instances as group members.

    Instances that are to be spread form a group for the time of the request,
    if they are in none.
    """
    group = request.get('instance_group')
    if group is None and request.hint(_SPREAD):
        group = objects.InstanceGroup(
            policy=None, members=[], hosts=[], rules={})
    if group is None:
        return request
    members = dict.fromkeys([*(group.get('members') or ()), *uuids])
    # The caller's request is not changed. A deep copy would cost more than the
    # decision.
    request, group = copy.copy(request), copy.copy(group)
    group.members = list(members)
    request.instance_group = group
    return request
