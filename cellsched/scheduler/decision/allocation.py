# SPDX-License-Identifier: Apache-2.0
"""Allocations: the providers of a selected host and their amounts."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import itertools
from typing import NamedTuple

from cellsched.hosts import columns
from cellsched.hosts import view
from cellsched.objects import request_groups
from cellsched.scheduler.decision import assignment


def allocate(
    hosts: view.Hosts, place: int, wants: assignment.ProviderDemand
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
#: :class:`.assignment.Provider`, and the amounts.
_Part = tuple[str, str, tuple[tuple[str, int], ...]]


def _each_alone(
    hosts: view.Hosts, place: int, wants: assignment.ProviderDemand
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
            and assignment.admits(bounds, resource, amount)), None)
        if found is None:
            found = next((
                uuid for uuid in sharing
                if hosts.shared_available(uuid, resource) >= amount
                and assignment.admits(
                    hosts.sharing[uuid].units, resource, amount)), None)
        if found is None:
            return None
        parts.append(('', found, ((resource, amount),)))
    return parts


def _all_together(
    hosts: view.Hosts, place: int, wants: assignment.ProviderDemand
) -> list[_Part] | None:
    """Allocate request groups together with unnumbered amounts."""
    places = providers(hosts, place, wants)
    found = assignment.assign(
        places, wants, outside(hosts, place, wants, places))
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
        cls, wants: assignment.ProviderDemand,
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


def outside(
    hosts: view.Hosts, place: int, wants: assignment.ProviderDemand,
    places: Sequence[assignment.Provider],
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


def is_member(
    group: request_groups.RequestGroup, uuids: Set[str]
) -> bool:
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
    hosts: view.Hosts, place: int, wants: assignment.ProviderDemand
) -> list[assignment.Provider]:
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
    found = [assignment.Provider('', -1, traits, available(''), units)]
    for number, ((parent, has), bounds) in enumerate(
            zip(children, child_units), start=1):
        found.append(assignment.Provider(
            str(number), parent, has, available(str(number)), bounds))
    found += [assignment.Provider(
        uuid, -1, hosts.sharing[uuid].traits, available(uuid),
        hosts.sharing[uuid].units)
        for uuid in sharing if uuid in hosts.sharing]
    return found
