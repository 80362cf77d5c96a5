# SPDX-License-Identifier: Apache-2.0
"""Allocations of a chosen host's providers, as they are claimed and told."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
from typing import NamedTuple

from cellsched.hosts import columns
from cellsched.hosts import view
from cellsched.scheduler.decision import assignment
from cellsched.scheduler.decision import provider_groups


def allocate(
    hosts: view.Hosts, place: int, wants: assignment.ProviderDemand
) -> 'ProviderAllocations | None':
    """Return which providers of one host give what is wanted.

    :param place: where the host is among these
    """
    is_plain = not (wants.demand.groups or wants.required or wants.forbidden)
    parts = (_each_alone if is_plain else _all_together)(hosts, place, wants)
    if parts is None:
        return None
    return ProviderAllocations.of(parts, (
        hosts['uuid'][place],
        *hosts.value('child_uuids', hosts['child_uuids'][place])))


#: Of what a server is given: the suffix, the name of the provider as that of
#: a place, and the amounts.
_Part = tuple[str, str, tuple[tuple[str, int], ...]]


def _each_alone(
    hosts: view.Hosts, place: int, wants: assignment.ProviderDemand
) -> list[_Part] | None:
    """Return which providers give amounts that have no number.

    As nothing else is asked, one resource class has nothing to do with
    another.
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
    """Return which providers give groups, and amounts beside them."""
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
    """The part of what a server asks for that one provider gives.

    :param suffix: of the group that it is for; empty for what has no number
    :param provider: uuid of the provider
    :param resources: pairs of a resource class and an amount
    """

    suffix: str
    provider: str
    resources: tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True)
class ProviderAllocations:
    """The providers that give a server what it asks for.

    :param resources: amounts as they are taken of the host in the table:
        ``CLASS``, ``CLASS@number`` or ``CLASS@uuid``
    :param allocations: amounts by resource class, by provider
    :param mappings: providers by suffix; those of what has no number have
        an empty one
    :param parts: each part that is asked for, with its provider
    """

    resources: Mapping[str, int]
    allocations: Mapping[str, Mapping[str, int]]
    mappings: Mapping[str, list[str]]
    parts: Sequence[ProviderPart] = ()

    @classmethod
    def of(
        cls, parts: Iterable[_Part], uuids: Sequence[str]
    ) -> 'ProviderAllocations':
        """Return what parts stand for.

        :param uuids: of the host and its child providers
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
        """Return what is held already, and nothing is taken for.

        Which group is which provider's nobody knows any more, so each is said
        to be that of one that has as much.
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
    """Return for each group which providers of a host it must not have.

    That is what its tree and its aggregates say.

    :param places: the providers, as :func:`providers` returns them
    """
    row = int(hosts.table_rows(place))
    return [
        frozenset(offer.outside(hosts, row, places)) if offer.restricts
        else frozenset[int]() for offer in (
            provider_groups.Offers(group, 1, False)
            for group in wants.demand.groups)]


def providers(
    hosts: view.Hosts, place: int, wants: assignment.ProviderDemand
) -> list[assignment.Provider]:
    """Return the providers of one host, with what they have left.

    The host comes first, its child providers by their numbers, and then the
    sharing ones.

    :param place: where the host is among these
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
