# SPDX-License-Identifier: Apache-2.0
"""Allocations: the providers of a host and their amounts.

A host is a tree of providers, plus sharing providers. Each unnumbered amount
of a resource class may come from any one of them. A numbered group comes from
a single provider.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import itertools
from typing import NamedTuple

from cellsched.hardware import devices
from cellsched.hardware import fit
from cellsched.hardware import units
from cellsched.hosts import columns
from cellsched.hosts import hardware
from cellsched.hosts import view
from cellsched.objects import request_groups


#: The most choices to try for one host, a bound on the time of hostile
#: requests. A host that exceeds it is rejected.
_TRIES_MAX = 20_000


class Provider(NamedTuple):
    """A provider that a server on a host can use.

    :param name: empty for the host itself, the number of a child provider, or
        the uuid of a sharing provider
    :param parent: index of the parent among the places; -1 for none
    :param available: available amounts of the requested resource classes
    :param units: bounds on the amounts of one claim
    """

    name: str
    parent: int
    traits: frozenset[str]
    available: tuple[tuple[str, float], ...]
    units: tuple[tuple[str, int, int, int], ...] = ()

    @property
    def is_sharing(self) -> bool:
        """Return whether it is a sharing provider."""
        return bool(self.name) and not self.name.isdigit()


class ProviderDemand(NamedTuple):
    """The demand of a server on the providers of its host.

    :param amounts: unnumbered amounts by resource class
    :param required: traits that the host or a provider of an unnumbered amount
        must have
    :param forbidden: traits that no provider of an unnumbered amount may have
    """

    amounts: tuple[tuple[str, int], ...]
    demand: request_groups.GroupDemand = request_groups.NO_GROUPS
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()

    @property
    def classes(self) -> list[str]:
        """The resource classes of all parts, sorted."""
        return sorted({resource for amounts in (
            self.amounts, *(group.resources for group in self.demand.groups))
            for resource, _ in amounts})


class Assignment(NamedTuple):
    """The places of the amounts and groups of a server.

    :param amounts: place of each unnumbered amount, by resource class
    :param groups: place of each group, by suffix
    """

    amounts: Mapping[str, int]
    groups: Mapping[str, int]


class _TooMany(Exception):
    """The search exceeded its bound."""


class _Search:
    """A backtracking search on one host.

    :param outside: the excluded places of each group
    """

    def __init__(
        self, places: Sequence[Provider], parts: ProviderDemand,
        outside: Sequence[frozenset[int]],
    ) -> None:
        self._places = places
        self._parts = parts
        self._room = [dict(place.available) for place in places]
        self._tries = 0
        groups = parts.demand.groups
        options = [
            [number for number in range(len(places))
             if number not in outside[place] and self._suits(group, number)]
            for place, group in enumerate(groups)]
        # Assign groups with the fewest possible places first, and keep equal
        # groups adjacent, so that their permutations can be skipped.
        alike: dict[tuple[object, ...], int] = {}
        for place, group in enumerate(groups):
            alike.setdefault(group[1:], place)
        self._order = sorted(range(len(groups)), key=lambda place: (
            len(options[place]), alike[groups[place][1:]], place))
        self._options = options
        self._chosen: dict[int, int] = {}

    def run(self) -> Assignment | None:
        """Return an assignment, or None if none exists."""
        try:
            for _ in self._groups(0):
                amounts = next(self._amounts(
                    sorted(self._parts.amounts), {}), None)
                if amounts is not None:
                    groups = self._parts.demand.groups
                    return Assignment(amounts, {
                        groups[place].suffix: number
                        for place, number in self._chosen.items()})
        except _TooMany:
            pass
        return None

    def _groups(self, depth: int) -> Iterator[None]:
        """Yield after each choice of places for the remaining groups."""
        # 1. All groups have a place. A subtree can be checked only now.
        demand = self._parts.demand
        if depth == len(self._order):
            if all(self._is_subtree(names) for names in demand.same_subtree):
                yield
            return
        # 2. Try places for the next group, and go deeper from each. Skipping
        #    equal groups in another order, and providers in equal states,
        #    keeps the number of tries small where nothing fits.
        place = self._order[depth]
        group = demand.groups[place]
        tried = set()
        first = self._least(depth)
        for number in self._options[place]:
            if number < first or demand.isolate and (
                    number in self._chosen.values()):
                continue
            alike = self._state(number)
            if alike in tried or not self._take(group.resources, number):
                continue
            tried.add(alike)
            self._chosen[place] = number
            yield from self._groups(depth + 1)
            del self._chosen[place]
            self._give_back(group.resources, number)

    def _least(self, depth: int) -> int:
        """Return the first place to try, past that of an equal group."""
        if not depth:
            return 0
        groups = self._parts.demand.groups
        before, now = self._order[depth - 1], self._order[depth]
        if groups[before][1:] != groups[now][1:] or (
                self._parts.demand.same_subtree):
            return 0
        return self._chosen[before]

    def _state(self, number: int) -> tuple[object, ...]:
        """Return the state of a provider; equal ones are interchangeable."""
        place = self._places[number]
        if (place.is_sharing or self._parts.demand.same_subtree
                or number in self._chosen.values()):
            return number,
        return (place.traits, place.units,
                tuple(sorted(self._room[number].items())))

    def _amounts(
        self, remaining: Sequence[tuple[str, int]], chosen: dict[str, int]
    ) -> Iterator[dict[str, int]]:
        """Yield after each choice of places for the unnumbered amounts."""
        if not remaining:
            if self._required(chosen):
                yield chosen
            return
        (resource, amount), *rest = remaining
        for number, place in enumerate(self._places):
            if not self._parts.forbidden.isdisjoint(place.traits) or not (
                    self._take(((resource, amount),), number)):
                continue
            yield from self._amounts(rest, {**chosen, resource: number})
            self._give_back(((resource, amount),), number)

    def _required(self, chosen: Mapping[str, int]) -> bool:
        """Return whether the places have the required traits."""
        has = self._places[0].traits.union(
            *(self._places[number].traits for number in chosen.values()))
        return self._parts.required <= has

    def _suits(self, group: request_groups.RequestGroup, number: int) -> bool:
        traits = self._places[number].traits
        return (group.required <= traits
                and group.forbidden.isdisjoint(traits)
                and all(self._room[number].get(resource, 0) >= amount
                        for resource, amount in group.resources))

    def _take(self, amounts: Sequence[tuple[str, int]], number: int) -> bool:
        """Take amounts of a place; return whether it has them."""
        self._tries += 1
        if self._tries > _TRIES_MAX:
            raise _TooMany()
        room, units = self._room[number], self._places[number].units
        if not all(room.get(resource, 0) >= amount
                   and admits(units, resource, amount)
                   for resource, amount in amounts):
            return False
        for resource, amount in amounts:
            room[resource] -= amount
        return True

    def _give_back(
        self, amounts: Sequence[tuple[str, int]], number: int
    ) -> None:
        for resource, amount in amounts:
            self._room[number][resource] += amount

    def _is_subtree(self, suffixes: frozenset[str]) -> bool:
        """Return whether the providers of groups form one subtree."""
        groups = self._parts.demand.groups
        numbers = {self._chosen[place] for place, group in enumerate(groups)
                   if group.suffix in suffixes}
        above = [self._above(number) for number in numbers]
        return not numbers or bool(numbers & frozenset.intersection(*above))

    def _above(self, number: int) -> frozenset[int]:
        """Return a place and its ancestors."""
        found = set()
        while number >= 0 and number not in found:
            found.add(number)
            number = self._places[number].parent
        return frozenset(found)


def assign(
    places: Sequence[Provider], requested: ProviderDemand,
    outside: Sequence[frozenset[int]] = (),
) -> Assignment | None:
    """Return an assignment of a demand to places; None if none exists.

    The places are the host, its child providers, then sharing providers. The
    host is preferred for unnumbered amounts.

    :param outside: the excluded places of each group, such as places outside
        of its tree
    """
    if not outside:
        outside = [frozenset()] * len(requested.demand.groups)
    return _Search(places, requested, outside).run()


def admits(
    units: Sequence[tuple[str, int, int, int]], resource: str, amount: int
) -> bool:
    """Return whether the bounds allow an amount for one claim."""
    for name, least, most, step in units:
        if name == resource:
            return least <= amount <= most and amount % step == 0
    return True


def allocate(
    hosts: view.Hosts, place: int, wants: ProviderDemand
) -> 'ProviderAllocations | None':
    """Return the allocation of a request on one host.

    :param place: index of the host in ``hosts``
    """
    is_plain = not (wants.demand.groups or wants.required or wants.forbidden)
    parts = (_each_alone if is_plain else _all_together)(hosts, place, wants)
    if parts is None:
        return None
    return ProviderAllocations.of(parts, (
        hosts['uuid'][place],
        *hosts.value('child_uuids', hosts['child_uuids'][place])))


#: A part of an allocation: the group's suffix, the provider's name as in
#: :class:`Provider`, and the amounts.
_Part = tuple[str, str, tuple[tuple[str, int], ...]]


def _each_alone(
    hosts: view.Hosts, place: int, wants: ProviderDemand
) -> list[_Part] | None:
    """Allocate unnumbered amounts only.

    Without groups and traits, each resource class is allocated independently.
    """
    units, child_units, sharing = hosts.values_at(
        place, 'units', 'child_units', 'sharing')
    parts: list[_Part] = []
    for resource, amount in wants.amounts:
        names = itertools.chain(
            (('', resource, units),) if columns.AVAILABLE + resource in hosts
            else (),
            ((str(number), f'{resource}{columns.AT}{number}',
              child_units[number - 1])
             for number in sorted(hosts.children_with(resource))
             if number <= len(child_units)))
        found = next((
            name for name, column, bounds in names
            if hosts[columns.AVAILABLE + column][place] >= amount
            and admits(bounds, resource, amount)), None)
        if found is None:
            found = next((
                uuid for uuid in sharing
                if hosts.shared_available(uuid, resource) >= amount
                and admits(
                    hosts.sharing[uuid].units, resource, amount)), None)
        if found is None:
            return None
        parts.append(('', found, ((resource, amount),)))
    return parts


def _all_together(
    hosts: view.Hosts, place: int, wants: ProviderDemand
) -> list[_Part] | None:
    """Allocate request groups together with unnumbered amounts."""
    places = providers(hosts, place, wants)
    found = assign(places, wants, outside(hosts, place, wants, places))
    if found is None:
        return None
    amounts = dict(wants.amounts)
    parts: list[_Part] = [
        ('', places[number].name, ((resource, amounts[resource]),))
        for resource, number in found.amounts.items()]
    return parts + [
        (group.suffix, places[found.groups[group.suffix]].name,
         group.resources) for group in wants.demand.groups]


class ProviderPart(NamedTuple):
    """A part of an allocation, on one provider.

    :param suffix: suffix of its group; empty for unnumbered amounts
    :param provider: uuid of the provider
    :param resources: pairs of a resource class and an amount
    """

    suffix: str
    provider: str
    resources: tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True)
class ProviderAllocations:
    """The allocation of a server on the providers of its host.

    :param resources: amounts by the host's column in the table: ``CLASS``,
        ``CLASS@number`` of a child or ``CLASS@uuid`` of a sharing provider
    :param allocations: amounts by resource class, by provider uuid
    :param mappings: providers by group suffix; the suffix of unnumbered
        amounts is empty
    :param parts: the parts of the request with their providers
    """

    resources: Mapping[str, int]
    allocations: Mapping[str, Mapping[str, int]]
    mappings: Mapping[str, list[str]]
    parts: Sequence[ProviderPart] = ()

    @classmethod
    def of(
        cls, parts: Iterable[_Part], uuids: Sequence[str]
    ) -> 'ProviderAllocations':
        """Return the allocation with these parts.

        :param uuids: uuids of the host and its child providers
        """
        taken: dict[str, int] = {}
        allocations: dict[str, dict[str, int]] = {}
        mappings: dict[str, list[str]] = {}
        named: list[ProviderPart] = []
        for suffix, name, amounts in parts:
            uuid = name if name and not name.isdigit() else uuids[
                int(name or 0)]
            named.append(ProviderPart(suffix, uuid, amounts))
            known = mappings.setdefault(suffix, [])
            if uuid not in known:
                known.append(uuid)
            for resource, amount in amounts:
                key = resource + (columns.AT + name if name else '')
                taken[key] = taken.get(key, 0) + amount
                given = allocations.setdefault(uuid, {})
                given[resource] = given.get(resource, 0) + amount
        return cls(taken, allocations, mappings, named)

    @classmethod
    def kept(
        cls, wants: ProviderDemand,
        held: Mapping[str, Mapping[str, int]],
    ) -> 'ProviderAllocations':
        """Return the allocation of an existing claim, which takes no capacity.

        The mapping of groups to providers is not stored with a claim, so each
        group is mapped to a provider that has at least its amounts.
        """
        mappings = {'': [*held]} if wants.amounts else {}
        for group in wants.demand.groups:
            mappings[group.suffix] = [
                uuid for uuid, amounts in held.items()
                if all(amounts.get(resource, 0) >= amount
                       for resource, amount in group.resources)][:1]
        return cls({}, held, mappings)


def whole(uuid: str, amounts: Mapping[str, int]) -> ProviderAllocations:
    """Return the allocation of everything on the host itself."""
    return ProviderAllocations(
        amounts, {uuid: amounts}, {'': [uuid]},
        [ProviderPart('', uuid, tuple(amounts.items()))])


def with_hardware(
    hosts: view.Hosts, row: int, demand: fit.Demand,
    allocated: ProviderAllocations,
) -> ProviderAllocations | None:
    """Return an allocation that also names CPUs, pages and devices.

    On a host whose CPUs and devices are not claimed, only the resources name
    them.

    :param row: row of the host in the table
    :returns: None if the server does not fit
    """
    place = hosts.place(row)
    assert place is not None, 'the host is among these'
    topology, pools, ratios, claims = hardware.on_host(hosts, place)
    placement = fit.fit(topology, demand, ratios, pools)
    if placement is None:
        return None
    remaining = devices.take(
        pools, demand.devices, None,
        [each.host_cell for each in placement] or None, topology)
    named = units.amounts(topology, placement, pools, remaining or ())
    uuid = hosts['uuid'][place]
    found = dataclasses.replace(
        allocated, resources={**allocated.resources, **named})
    if not claims:
        return found
    return dataclasses.replace(
        found, allocations={**allocated.allocations, uuid: {
            **allocated.allocations.get(uuid, {}), **named}})


def outside(
    hosts: view.Hosts, place: int, wants: ProviderDemand,
    places: Sequence[Provider],
) -> list[frozenset[int]]:
    """Return the providers of a host that each group must not use.

    They are excluded by ``in_tree`` and by aggregates.

    :param places: the providers, as :func:`providers` returns them
    """
    row = int(hosts.table_rows(place))
    found: list[frozenset[int]] = []
    for group in wants.demand.groups:
        is_own = group.in_tree is None or (
            hosts.row_of_provider(group.in_tree) == row)
        if group.aggregates or group.forbidden_aggregates:
            [aggregates] = hosts.values_at(place, 'aggregates')
            is_own &= is_member(group, {each.uuid for each in aggregates})
        elif group.in_tree is None:
            found.append(frozenset())
            continue
        found.append(frozenset(
            number for number, each in enumerate(places)
            if (is_outside(group, each.name,
                           hosts.sharing[each.name].aggregate)
                if each.is_sharing else not is_own)))
    return found


def is_member(group: request_groups.RequestGroup, uuids: Set[str]) -> bool:
    """Return whether a provider in these aggregates may serve a group."""
    return (all(uuids & one_of for one_of in group.aggregates)
            and not uuids & group.forbidden_aggregates)


def is_outside(
    group: request_groups.RequestGroup, uuid: str, aggregate: str
) -> bool:
    """Return whether a group must not use a sharing provider."""
    return (group.in_tree not in (None, uuid)
            or not is_member(group, {aggregate}))


def providers(
    hosts: view.Hosts, place: int, wants: ProviderDemand
) -> list[Provider]:
    """Return the providers of one host with their available amounts.

    The host comes first, then its child providers by number, then sharing
    providers.

    :param place: index of the host in ``hosts``
    """
    classes = wants.classes
    traits, units, children, child_units, sharing = hosts.values_at(
        place, 'traits', 'units', 'children', 'child_units', 'sharing')

    def available(name: str) -> tuple[tuple[str, float], ...]:
        if name and not name.isdigit():
            return tuple((resource, hosts.shared_available(name, resource))
                         for resource in classes)
        end = columns.AT + name if name else ''
        return tuple((resource, float(hosts.available(resource + end)[place]))
                     for resource in classes
                     if resource + end in present)

    present = {*classes, *(
        f'{resource}{columns.AT}{number}' for resource in classes
        for number in hosts.children_with(resource))}
    found = [Provider('', -1, traits, available(''), units)]
    for number, ((parent, has), bounds) in enumerate(
            zip(children, child_units), start=1):
        found.append(Provider(
            str(number), parent, has, available(str(number)), bounds))
    found += [Provider(
        uuid, -1, hosts.sharing[uuid].traits, available(uuid),
        hosts.sharing[uuid].units)
        for uuid in sharing if uuid in hosts.sharing]
    return found
