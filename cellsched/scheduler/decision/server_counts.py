# SPDX-License-Identifier: Apache-2.0
"""The number of equal servers that fit on hosts with several providers.

Hosts are counted one after the other, as if servers were placed on them. The
amounts that the servers of one host take of a sharing provider are missing
for the next hosts.

An amount that does not interact with groups is counted by a division. Groups,
and amounts that may compete for the same providers, are assigned server by
server; hosts with equal available amounts are counted once.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

from cellsched.hosts import view
from cellsched.objects import resources
from cellsched.scheduler.decision import allocation
from cellsched.scheduler.decision import assignment

#: The most servers of one host that are counted one by one.
ONE_BY_ONE_MAX = 10_000

#: Amounts taken of sharing providers, by uuid and resource class.
_Shared = dict[tuple[str, str], int]


def counts(
    hosts: view.Hosts, wants: assignment.ProviderDemand
) -> view.Column:
    """Return the number of equal servers that each host has capacity for.

    Together they use no more of a sharing provider than it has available.
    """
    counter = _Counter(hosts, wants)
    return np.array([counter.count(place) for place in range(len(hosts))],
                    dtype='int64')


class _Counter:
    """Counts servers host by host.

    :ivar left: available amounts of sharing providers
    """

    def __init__(
        self, hosts: view.Hosts, wants: assignment.ProviderDemand
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
        places = [
            each._replace(available=tuple(
                (resource, self._left[each.name, resource])
                for resource, _ in each.available))
            if each.is_sharing else each
            for each in allocation.providers(self._hosts, place, self._wants)]
        alone, together = _split(self._wants, places[0].traits)
        number = ONE_BY_ONE_MAX if _is_any(together) else resources.AMOUNT_MAX
        for resource, amount in alone:
            number = min(number, sum(
                copies for _, copies in _copies(
                    places, resource, amount, self._wants.forbidden)))
        taken: _Shared = {}
        if number and _is_any(together):
            number, taken = self._one_by_one(place, places, together, number)
        for resource, amount in alone:
            left = number
            for each, copies in _copies(
                    places, resource, amount, self._wants.forbidden):
                used = min(left, copies)
                left -= used
                if each.is_sharing and used:
                    taken = {**taken, (each.name, resource): used * amount}
        for key, total in taken.items():
            self._left[key] -= total
        return number

    def _one_by_one(
        self, place: int, places: Sequence[assignment.Provider],
        wants: assignment.ProviderDemand, most: int,
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
    wants: assignment.ProviderDemand, has: frozenset[str]
) -> tuple[list[tuple[str, int]], assignment.ProviderDemand]:
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


def _is_any(wants: assignment.ProviderDemand) -> bool:
    return bool(wants.amounts or wants.demand.groups)


def _copies(
    places: Iterable[assignment.Provider], resource: str, amount: int,
    forbidden: frozenset[str],
) -> Iterator[tuple[assignment.Provider, int]]:
    """Yield how often each provider has an amount, in order."""
    for place in places:
        room = dict(place.available).get(resource, 0.0)
        if room >= amount and forbidden.isdisjoint(place.traits) and (
                assignment.admits(place.units, resource, amount)):
            yield place, int(room // amount)


def _placed(
    places: Sequence[assignment.Provider], wants: assignment.ProviderDemand,
    outside: Sequence[frozenset[int]], most: int,
) -> tuple[int, _Shared]:
    """Assign servers one by one; return their number and shared amounts."""
    left = list(places)
    number = 0
    while number < most:
        found = assignment.assign(left, wants, outside)
        if found is None:
            break
        amounts = dict(wants.amounts)
        for resource, chosen in found.amounts.items():
            left[chosen] = _without(
                left[chosen], ((resource, amounts[resource]),))
        for group in wants.demand.groups:
            chosen = found.groups[group.suffix]
            left[chosen] = _without(left[chosen], group.resources)
        number += 1
    return number, {
        (before.name, resource): int(room - dict(after.available)[resource])
        for before, after in zip(places, left) if before.is_sharing
        for resource, room in before.available
        if room != dict(after.available)[resource]}


def _without(
    place: assignment.Provider, amounts: Iterable[tuple[str, int]]
) -> assignment.Provider:
    less = dict(amounts)
    return place._replace(available=tuple(
        (resource, room - less.get(resource, 0))
        for resource, room in place.available))


def _totals(wants: assignment.ProviderDemand) -> dict[str, int]:
    """Return the total amounts of one server by class."""
    total: dict[str, int] = {}
    for amounts in (wants.amounts, *(
            group.resources for group in wants.demand.groups)):
        for resource, amount in amounts:
            total[resource] = total.get(resource, 0) + amount
    return total
