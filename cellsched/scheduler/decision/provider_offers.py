# SPDX-License-Identifier: Apache-2.0
"""Providers of hosts that can serve a group, evaluated on columns."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from cellsched.hosts import columns
from cellsched.hosts import view
from cellsched.objects import request_groups
from cellsched.scheduler.decision import assignment


class Offers:
    """The providers of hosts that can serve one kind of group.

    :param number: number of groups of this kind
    :param shares: whether several of them may use one provider
    """

    def __init__(
        self, group: request_groups.RequestGroup, number: int, shares: bool
    ) -> None:
        self.group = group
        self.number = number
        self.shares = shares

    @property
    def restricts(self) -> bool:
        """Return whether the group depends on the host of a provider."""
        return self.group.in_tree is not None or bool(
            self.group.aggregates or self.group.forbidden_aggregates)

    def places(
        self, hosts: view.Hosts
    ) -> Iterator[tuple[str, view.Mask | None]]:
        """Yield provider names with the hosts on which they can serve one.

        None stands for all hosts. The name is as in ``assignment.Provider``.
        """
        group = self.group
        own = self._own(hosts)
        for name in self._names(hosts):
            mask = _suiting(hosts, name, group.required, group.forbidden)
            for resource, amount in group.resources:
                mask = both(mask, _having(hosts, name, resource, amount))
            yield name, both(own, mask)
        for uuid, provider in hosts.sharing.items():
            if self._is_outside(uuid, provider.aggregate) or not (
                    _shares(hosts, uuid, group)):
                continue
            yield uuid, hosts.each('sharing', lambda uuids: uuid in uuids)

    def count(self, hosts: view.Hosts) -> view.Column | None:
        """Return an upper bound of the groups that each host can serve.

        None means that all hosts can serve all groups. Several groups on one
        provider count only if that is allowed. For one group it is a mask.
        """
        if self.number == 1:
            return self._any(hosts)
        total: view.Column | None = None
        everywhere = 0
        for name, mask in self.places(hosts):
            copies = self._copies(hosts, name) if self.shares else 1
            if mask is None and isinstance(copies, int):
                everywhere += copies
            else:
                more = (np.full(len(hosts), copies) if mask is None
                        else mask * copies)
                total = more if total is None else total + more
            if everywhere >= self.number:
                return None
        if total is None:
            return np.full(len(hosts), everywhere)
        return total + everywhere

    def _any(self, hosts: view.Hosts) -> view.Mask | None:
        """Return the mask of hosts that can serve one; None for all."""
        found: view.Mask | None = None
        for _, mask in self.places(hosts):
            if mask is None:
                return None
            found = mask if found is None else found | mask
        return np.zeros(len(hosts), dtype=bool) if found is None else found

    def _names(self, hosts: view.Hosts) -> list[str]:
        """Return the names of providers that offer all classes."""
        names = [resource for resource, _ in self.group.resources]
        numbers = (set.intersection(*(
            {*hosts.children_with(resource)} for resource in names))
            if names else {*range(1, hosts.most_children + 1)})
        own = all(columns.AVAILABLE + resource in hosts for resource in names)
        return [*([''] if own else ()), *map(str, sorted(numbers))]

    def _own(self, hosts: view.Hosts) -> view.Mask | None:
        """Return the mask of hosts whose tree the group may use."""
        group, mask = self.group, None
        if group.in_tree is not None:
            row = hosts.row_of_provider(group.in_tree)
            mask = np.zeros(len(hosts), dtype=bool)
            place = None if row is None else hosts.place(row)
            if place is not None:
                mask[place] = True
        if group.aggregates or group.forbidden_aggregates:
            mask = both(mask, hosts.each(
                'aggregates', lambda said: self._is_member(
                    {each.uuid for each in said})))
        return mask

    def _is_member(self, uuids: set[str]) -> bool:
        return (all(uuids & one_of for one_of in self.group.aggregates)
                and not uuids & self.group.forbidden_aggregates)

    def _is_outside(self, uuid: str, aggregate: str) -> bool:
        """Return whether the group must not use a sharing provider."""
        return (self.group.in_tree not in (None, uuid)
                or not self._is_member({aggregate}))

    def outside(self, hosts: view.Hosts, row: int, places: Any) -> set[int]:
        """Return the places of a host that the group must not use."""
        own = self._own(hosts.at(np.array([row])))
        return {number for number, place in enumerate(places)
                if (self._is_outside(
                    place.name, hosts.sharing[place.name].aggregate)
                    if place.is_sharing else own is not None and not own[0])}

    def _copies(self, hosts: view.Hosts, name: str) -> Any:
        """Return the number of groups that a provider of each host can serve.

        It is at most the number of requested groups.
        """
        copies: Any = self.number
        for resource, amount in self.group.resources:
            room = _room(hosts, name, resource)
            copies = np.minimum(copies, np.maximum(room // amount, 0))
        return int(copies) if np.ndim(copies) == 0 else copies


def both(
    one: view.Mask | None, other: view.Mask | None
) -> view.Mask | None:
    """Return the intersection of two masks; None means all hosts."""
    if one is None or other is None:
        return one if other is None else other
    return one & other


def _room(hosts: view.Hosts, name: str, resource: str) -> Any:
    if name and not name.isdigit():
        return hosts.shared_available(name, resource)
    return hosts.available(resource + (columns.AT + name if name else ''))


def _having(
    hosts: view.Hosts, name: str, resource: str, amount: int
) -> view.Mask | None:
    """Return the hosts whose provider gives an amount; None for all."""
    place = columns.AT + name if name else ''
    bounds = _admitting(hosts, name, resource, amount)
    mask: view.Mask = hosts.available(resource + place) >= amount
    # That takes less than to look up the least of a column that changes.
    return bounds if mask.all() else both(bounds, mask)


def _admitting(
    hosts: view.Hosts, name: str, resource: str, amount: int
) -> view.Mask | None:
    """Return the hosts whose provider's bounds admit an amount."""
    def make(everyone: view.Hosts) -> view.Mask | None:
        if name:
            number = int(name)
            mask = everyone.each('child_units', lambda said: (
                number > len(said) or assignment.admits(
                    said[number - 1], resource, amount)))
        else:
            mask = everyone.each('units', lambda said: assignment.admits(
                said, resource, amount))
        return None if mask.all() else mask

    return _picked(hosts, hosts.memo(
        ('admitting', name, resource, amount), make))


def _suiting(
    hosts: view.Hosts, name: str, required: frozenset[str],
    forbidden: frozenset[str],
) -> view.Mask | None:
    """Return the hosts whose provider has the traits; None means all."""
    def suits(traits: frozenset[str]) -> bool:
        return required <= traits and forbidden.isdisjoint(traits)

    def make(everyone: view.Hosts) -> view.Mask | None:
        if name:
            number = int(name)
            mask = everyone.each('children', lambda said: (
                number <= len(said) and suits(said[number - 1][1])))
        else:
            mask = everyone.each('traits', suits)
        return None if mask.all() else mask

    return _picked(hosts, hosts.memo(
        ('suiting', name, required, forbidden), make))


def _picked(
    hosts: view.Hosts, mask: view.Mask | None
) -> view.Mask | None:
    """Return the rows of these hosts from a value for all table rows."""
    return mask if mask is None or hosts.is_whole else mask[hosts.rows]


def _shares(
    hosts: view.Hosts, uuid: str, group: request_groups.RequestGroup
) -> bool:
    """Return whether a sharing provider could serve a group."""
    provider = hosts.sharing[uuid]
    return (group.required <= provider.traits
            and group.forbidden.isdisjoint(provider.traits)
            and all(hosts.shared_available(uuid, resource) >= amount
                    and assignment.admits(provider.units, resource, amount)
                    for resource, amount in group.resources))


def most_available(
    hosts: view.Hosts, resource: str, required: frozenset[str],
    forbidden: frozenset[str],
) -> view.Column:
    """Return the largest available amount of a class per host.

    Only providers with the traits count.
    """
    most = np.zeros(len(hosts))
    for name in ('', *map(str, hosts.children_with(resource))):
        mask = _suiting(hosts, name, required, forbidden)
        room = _room(hosts, name, resource)
        most = np.maximum(most, room if mask is None else room * mask)
    for uuid, provider in hosts.sharing.items():
        if required <= provider.traits and (
                forbidden.isdisjoint(provider.traits)):
            left = hosts.shared_available(uuid, resource)
            most = np.maximum(most, left * hosts.each(
                'sharing', lambda uuids: uuid in uuids))
    return most
