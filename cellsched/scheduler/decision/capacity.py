# SPDX-License-Identifier: Apache-2.0
"""Capacity of hosts for a request, by the rules of the claim store.

The claim store decides. Checking the figures first excludes hosts that it
would refuse, and yields the missing amount for the reasons.
"""

import abc
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import math
from typing import Any
from typing import ClassVar
from typing import TypeVar

import numpy as np

from cellsched import exception
from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects
from cellsched.objects import request_groups
from cellsched.objects import resources
from cellsched.scheduler.decision import allocation
from cellsched.scheduler.decision import provider_groups
from cellsched.scheduler.decision import required_traits

#: Columns of the physical size, the most that one server may take.
_SIZES = {
    'DISK_GB': 'total_usable_disk_gb',
    'MEMORY_MB': 'total_usable_ram_mb',
    'VCPU': 'vcpus_total',
}


class _Stage(base.Filter):
    """A stage for one amount; always part of the pipeline."""

    kind: ClassVar[str]
    local = True

    def __init__(self, resource: str, amount: int) -> None:
        super().__init__()
        self.resource = resource
        self.amount = amount
        self.word, self.unit = resources.describe(resource)
        self.name = f'{self.kind}:{self.resource}'

    def cache_key(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Hashable:
        return ()


_Kind = TypeVar('_Kind', bound=_Stage)


class _Comparison(_Stage):
    """A stage that compares an amount with a column."""

    @abc.abstractmethod
    def offered(self, hosts: view.Hosts) -> view.Column:
        """Return the amount that each host offers."""

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        return self.offered(hosts) >= self.amount

    def shortfall(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> tuple[view.Column, str]:
        return self.amount - self.offered(hosts), self.unit


class Size(_Comparison):
    """Reject a host that is smaller than the server.

    An allocation ratio lets several servers share more than the physical
    amount, but not one server. One server may take at most the physical amount
    and the inventory's ``max_unit``.
    """

    kind = 'size'
    run_filter_once_per_request = True

    def __init__(self, resource: str, amount: int) -> None:
        super().__init__(resource, amount)
        self.reason = f'is too small in {self.word}'

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        _, smallest = self._sizes(hosts)
        if self.amount <= smallest:
            return None
        return super().keep(hosts, request)

    def offered(self, hosts: view.Hosts) -> view.Column:
        sizes, _ = self._sizes(hosts)
        return sizes if hosts.is_whole else sizes[hosts.rows]

    def _sizes(self, hosts: view.Hosts) -> tuple[view.Column, float]:
        """Return the largest amount of each table row, and their minimum."""
        return hosts.memo(('sizes', self.resource), self._read)

    def _read(self, hosts: view.Hosts) -> tuple[view.Column, float]:
        sizes = hosts.each('units', lambda bounds: _bounds(
            bounds, self.resource)[1], 'float64')
        physical = _SIZES.get(self.resource)
        if physical is not None:
            sizes = np.minimum(sizes, hosts[physical])
        return sizes, sizes.min(initial=math.inf)


class StepSize(_Stage):
    """Reject a host whose inventory does not allow the amount.

    An inventory has a ``min_unit``, and a ``step_size`` of which every amount
    is a multiple.
    """

    kind = 'step'
    run_filter_once_per_request = True

    def __init__(self, resource: str, amount: int) -> None:
        super().__init__(resource, amount)
        self.reason = f'gives {self.word} in other amounts'

    def restricts(self, hosts: view.Hosts) -> bool:
        """Return whether any table row has these bounds."""
        return self._known(hosts) is not None

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        bounds = self._known(hosts)
        if bounds is None:
            return None
        least, step = bounds if hosts.is_whole else (
            each[hosts.rows] for each in bounds)
        kept: view.Mask = (self.amount >= least) & (self.amount % step == 0)
        return kept

    def _known(
        self, hosts: view.Hosts
    ) -> tuple[view.Column, view.Column] | None:
        return hosts.memo(('steps', self.resource), self._read)

    def _read(
        self, hosts: view.Hosts
    ) -> tuple[view.Column, view.Column] | None:
        """Return ``min_unit`` and ``step_size`` of each table row.

        None stands for no bounds, the common case.
        """
        least = hosts.each('units', lambda bounds: _bounds(
            bounds, self.resource)[0], 'int64')
        step = hosts.each('units', lambda bounds: _bounds(
            bounds, self.resource)[2], 'int64')
        if (least <= 1).all() and (step == 1).all():
            return None
        return least, step


class Capacity(_Comparison):
    """Reject a host with too little capacity of a resource class."""

    kind = 'capacity'
    reads = frozenset({
        'flavor.extra_specs.resources:*'}) | provider_groups.READS

    def __init__(self, resource: str, amount: int) -> None:
        super().__init__(resource, amount)
        self.reason = f'lacks {self.word}'

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        if hosts.is_whole and (
                self.amount <= hosts.least_available(self.resource)):
            return None
        return super().keep(hosts, request)

    def offered(self, hosts: view.Hosts) -> view.Column:
        return hosts.available(self.resource)


def counts(hosts: view.Hosts, request: objects.RequestSpec) -> view.Column:
    """Return the number of equal servers that each host has capacity for.

    No filter is applied. The servers of all hosts together use no more of a
    sharing provider than it has available. A request without amounts yields
    the largest integer.
    """
    wants = provider_demand(hosts, request, request.resources())
    if wants is not None:
        counter = _Counter(hosts, wants)
        return np.array([*map(counter.count, range(len(hosts)))], 'int64')
    found = np.full(len(hosts), resources.AMOUNT_MAX)
    for resource, amount in request.resources().items():
        found = np.minimum(found, hosts.available(resource) // amount)
    return np.maximum(found, 0).astype('int64')


def provider_demand(
    hosts: view.Hosts, request: objects.RequestSpec,
    amounts: Mapping[str, int],
) -> allocation.ProviderDemand | None:
    """Return the demand of a request on the providers of its host.

    None means that the host itself serves everything, as for most requests.

    :param amounts: unnumbered amounts of the request
    """
    demand = request.group_demand()
    if demand is request_groups.NO_GROUPS and not hosts.given_by_others(
            amounts):
        return None
    return allocation.ProviderDemand(
        tuple(amounts.items()), demand, *required_traits.unnumbered(request))


def stages(
    hosts: view.Hosts, request: objects.RequestSpec
) -> list[base.Filter]:
    """Return the stages for the amounts of a request: bounds, then capacity.

    :raises cellsched.exception.InvalidField: an amount is invalid
    """
    amounts = request.resources()
    rest: tuple[base.Filter, ...] = ()
    wants = provider_demand(hosts, request, amounts)
    if wants is not None:
        check(amounts)
        given = hosts.given_by_others(amounts)
        rest = provider_groups.stages(wants, given)
        amounts = {resource: amount for resource, amount in amounts.items()
                   if resource not in given}
    sizes, steps, rooms = _stages(tuple(amounts.items()))
    return [*sizes, *(each for each in steps if each.restricts(hosts)),
            *rooms, *rest]


# Cached: few flavors exist, and a stage depends only on the amount.
@functools.lru_cache(1024)
def _stages(
    amounts: tuple[tuple[str, int], ...]
) -> tuple[list[Size], list[StepSize], list[Capacity]]:
    check(dict(amounts))
    return ([_stage(Size, *each) for each in amounts],
            [_stage(StepSize, *each) for each in amounts],
            [_stage(Capacity, *each) for each in amounts])


# Flavors with an equal amount share its stage, and what is kept of it.
@functools.lru_cache(1024)
def _stage(kind: type[_Kind], resource: str, amount: int) -> _Kind:
    return kind(resource, amount)


def check(amounts: Mapping[str, int]) -> None:
    """Check amounts.

    :raises cellsched.exception.InvalidField: names the resource class
    """
    for resource, amount in amounts.items():
        if not 1 <= amount <= resources.AMOUNT_MAX:
            raise exception.InvalidField(
                where='request', field=f'resources.{resource}',
                expected='an amount from 1 to '
                         f'{resources.AMOUNT_MAX}')


def _bounds(bounds: Sequence[Any], resource: str) -> tuple[int, int, int]:
    """Return min_unit, max_unit and step_size of a resource class."""
    for name, least, most, step in bounds:
        if name == resource:
            return least, most, step
    return 1, resources.AMOUNT_MAX, 1


#: The most servers of one host that are counted one by one.
ONE_BY_ONE_MAX = 10_000

#: Amounts taken of sharing providers, by uuid and resource class.
_Shared = dict[tuple[str, str], int]


class _Counter:
    """Counts servers host by host.

    :ivar left: available amounts of sharing providers
    """

    def __init__(
        self, hosts: view.Hosts, wants: allocation.ProviderDemand
    ) -> None:
        self._hosts = hosts
        self._wants = wants
        self._left = {
            (uuid, resource): hosts.shared_available(uuid, resource)
            for uuid in hosts.sharing for resource in wants.classes}
        # Amounts of one server that are counted one by one. More than this
        # times the largest count need not be distinguished.
        self._known: dict[object, tuple[int, _Shared]] = {}

    def count(self, place: int) -> int:
        """Return how many fit on the host at an index, and take them."""
        # 1. Sharing providers have what the hosts before this one left.
        places = [
            each._replace(available=tuple(
                (resource, self._left[each.name, resource])
                for resource, _ in each.available))
            if each.is_sharing else each
            for each in allocation.providers(self._hosts, place, self._wants)]
        # 2. An amount that depends on nothing else is a division. Only groups
        #    that constrain each other are placed server by server.
        alone, together = _split(self._wants, places[0].traits)
        number = ONE_BY_ONE_MAX if _is_any(together) else resources.AMOUNT_MAX
        for resource, amount in alone:
            number = min(number, sum(
                copies for _, copies in _copies(
                    places, resource, amount, self._wants.forbidden)))
        taken: _Shared = {}
        if number and _is_any(together):
            number, taken = self._one_by_one(place, places, together, number)
        # 3. The smallest of the numbers fits. Take the amounts of that many
        #    servers from sharing providers: the next hosts do not have them.
        for resource, amount in alone:
            remaining = number
            for each, copies in _copies(
                    places, resource, amount, self._wants.forbidden):
                used = min(remaining, copies)
                remaining -= used
                if each.is_sharing and used:
                    taken = {**taken, (each.name, resource): used * amount}
        for key, total in taken.items():
            self._left[key] -= total
        return number

    def _one_by_one(
        self, place: int, places: Sequence[allocation.Provider],
        wants: allocation.ProviderDemand, most: int,
    ) -> tuple[int, _Shared]:
        """Return how many fit, up to a limit, and their shared amounts."""
        total = _totals(wants)
        places = [each._replace(available=tuple(
            (resource, min(room, most * total[resource])
             if each.is_sharing else room)
            for resource, room in each.available if resource in total))
            for each in places]
        outside = allocation.outside(self._hosts, place, wants, places)
        key = wants, most, tuple(places), tuple(outside)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _placed(places, wants, outside, most)
        return found


def _split(
    wants: allocation.ProviderDemand, has: frozenset[str]
) -> tuple[list[tuple[str, int]], allocation.ProviderDemand]:
    """Split amounts into independent ones and the rest.

    :param has: the traits of the host itself
    """
    required = wants.required - has
    grouped = {resource for group in wants.demand.groups
               for resource, _ in group.resources}
    alone = [(resource, amount) for resource, amount in wants.amounts
             if not required and resource not in grouped]
    return alone, wants._replace(required=required, amounts=tuple(
        each for each in wants.amounts if each not in alone))


def _is_any(wants: allocation.ProviderDemand) -> bool:
    return bool(wants.amounts or wants.demand.groups)


def _copies(
    places: Iterable[allocation.Provider], resource: str, amount: int,
    forbidden: frozenset[str],
) -> Iterator[tuple[allocation.Provider, int]]:
    """Yield how often each provider has an amount, in order."""
    for place in places:
        room = dict(place.available).get(resource, 0.0)
        if room >= amount and forbidden.isdisjoint(place.traits) and (
                allocation.admits(place.units, resource, amount)):
            yield place, int(room // amount)


def _placed(
    places: Sequence[allocation.Provider], wants: allocation.ProviderDemand,
    outside: Sequence[frozenset[int]], most: int,
) -> tuple[int, _Shared]:
    """Assign servers one by one; return their number and shared amounts."""
    remaining = list(places)
    number = 0
    while number < most:
        found = allocation.assign(remaining, wants, outside)
        if found is None:
            break
        amounts = dict(wants.amounts)
        for resource, chosen in found.amounts.items():
            remaining[chosen] = _without(
                remaining[chosen], ((resource, amounts[resource]),))
        for group in wants.demand.groups:
            chosen = found.groups[group.suffix]
            remaining[chosen] = _without(remaining[chosen], group.resources)
        number += 1
    return number, {
        (before.name, resource): int(room - dict(after.available)[resource])
        for before, after in zip(places, remaining) if before.is_sharing
        for resource, room in before.available
        if room != dict(after.available)[resource]}


def _without(
    place: allocation.Provider, amounts: Iterable[tuple[str, int]]
) -> allocation.Provider:
    less = dict(amounts)
    return place._replace(available=tuple(
        (resource, room - less.get(resource, 0))
        for resource, room in place.available))


def _totals(wants: allocation.ProviderDemand) -> dict[str, int]:
    """Return the total amounts of one server by class."""
    total: dict[str, int] = {}
    for amounts in (wants.amounts, *(
            group.resources for group in wants.demand.groups)):
        for resource, amount in amounts:
            total[resource] = total.get(resource, 0) + amount
    return total
