# SPDX-License-Identifier: Apache-2.0
"""Requests for several providers of a host, evaluated on columns.

For each kind of numbered group, a column operation counts the providers of
each host that could serve it. This necessary condition decides most requests.
If groups may compete for a provider, or must be in one subtree, the remaining
hosts are checked exactly by :mod:`.allocation`; equal hosts are checked once.
"""

from collections.abc import Iterator
import functools
import itertools
from typing import Any

import numpy as np

from cellsched.filters import base
from cellsched.hosts import columns
from cellsched.hosts import view
from cellsched import objects
from cellsched.objects import request_groups
from cellsched.objects import resources
from cellsched.scheduler.decision import allocation

#: The most kinds of groups that are compared pairwise on columns. With more,
#: every host is checked exactly.
_COMPARED_MAX = 8

#: Extra specs and fields that this module reads.
READS = frozenset({
    'flavor.extra_specs.resources{group}:*',
    'flavor.extra_specs.trait{group}:*',
    'flavor.extra_specs.group_policy', 'requested_resources',
    'request_level_params.same_subtree'})


class GroupCapacity(base.Filter):
    """Reject a host whose providers cannot serve all groups of one kind.

    It is not local: an amount of a sharing provider that one host takes is
    missing for the other hosts.

    :param number: number of groups of this kind
    :param shares: whether several of them may use one provider
    """

    def __init__(
        self, group: request_groups.RequestGroup, number: int, shares: bool
    ) -> None:
        super().__init__()
        self.wants = group
        self.number = number
        self.shares = shares
        self.name = f'group:{group.suffix}'
        self.reason = f'lacks {_described(group, number)}'

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        count = self.count(hosts)
        if count is None or count.dtype == bool:
            return count
        return count >= self.number

    def shortfall(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> tuple[view.Column, str]:
        if self.number == 1 and self.wants.resources and len(hosts):
            found = self._missing(hosts)
            if found is not None:
                return found
        count = self.count(hosts)
        missing = self.number - (np.full(len(hosts), self.number)
                                 if count is None else count)
        return missing, 'provider' if self.number == 1 else 'providers'

    def _missing(self, hosts: view.Hosts) -> tuple[view.Column, str] | None:
        """Return the missing amounts of the class that the nearest host lacks.

        A host counts for the class of which it lacks the greatest share. None
        if a host has enough of each class, but not in one provider.
        """
        classes = self.wants.resources
        missing = np.array([np.maximum(
            amount - most_available(
                hosts, resource, self.wants.required, self.wants.forbidden), 0)
            for resource, amount in classes])
        shares = missing / np.array([[amount] for _, amount in classes])
        worst = shares.argmax(axis=0)
        least = shares.max(axis=0)
        if len(classes) > 1 and not least.all():
            return None
        nearest = worst[least.argmin()]
        return (np.where(worst == nearest, missing[nearest], 0),
                resources.describe(classes[nearest][0])[1])

    @property
    def restricts(self) -> bool:
        """Return whether the group depends on the host of a provider."""
        return self.wants.in_tree is not None or bool(
            self.wants.aggregates or self.wants.forbidden_aggregates)

    def places(
        self, hosts: view.Hosts
    ) -> Iterator[tuple[str, view.Mask | None]]:
        """Yield provider names with the hosts on which they can serve one.

        None stands for all hosts. The name is as in ``allocation.Provider``.
        """
        group = self.wants
        own = self._own(hosts)
        for name in self._names(hosts):
            mask = _suiting(hosts, name, group.required, group.forbidden)
            for resource, amount in group.resources:
                mask = both(mask, _having(hosts, name, resource, amount))
            yield name, both(own, mask)
        for uuid, provider in hosts.sharing.items():
            if allocation.is_outside(
                    group, uuid, provider.aggregate) or not (
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
        names = [resource for resource, _ in self.wants.resources]
        numbers = (set.intersection(*(
            {*hosts.children_with(resource)} for resource in names))
            if names else {*range(1, hosts.most_children + 1)})
        own = all(columns.AVAILABLE + resource in hosts for resource in names)
        return [*([''] if own else ()), *map(str, sorted(numbers))]

    def _own(self, hosts: view.Hosts) -> view.Mask | None:
        """Return the mask of hosts whose tree the group may use."""
        group, mask = self.wants, None
        if group.in_tree is not None:
            row = hosts.row_of_provider(group.in_tree)
            mask = np.zeros(len(hosts), dtype=bool)
            place = None if row is None else hosts.place(row)
            if place is not None:
                mask[place] = True
        if group.aggregates or group.forbidden_aggregates:
            mask = both(mask, hosts.each(
                'aggregates', lambda value: allocation.is_member(
                    group, {each.uuid for each in value})))
        return mask

    def _copies(self, hosts: view.Hosts, name: str) -> Any:
        """Return the number of groups that a provider of each host can serve.

        It is at most the number of requested groups.
        """
        copies: Any = self.number
        for resource, amount in self.wants.resources:
            room = _room(hosts, name, resource)
            copies = np.minimum(copies, np.maximum(room // amount, 0))
        return int(copies) if np.ndim(copies) == 0 else copies


class ProviderCapacity(GroupCapacity):
    """Reject a host if none of its providers has capacity for an amount."""

    def __init__(
        self, resource: str, amount: int, forbidden: frozenset[str]
    ) -> None:
        super().__init__(request_groups.RequestGroup(
            '', ((resource, amount),), forbidden=forbidden), 1, False)
        self.name = f'capacity:{resource}'
        self.reason = f'lacks {resources.describe(resource)[0]}'


class ProviderFit(base.Filter):
    """Reject a host whose providers cannot serve all parts together.

    Hosts on which no two parts can compete for a provider are not checked
    again: each part was found by itself.

    :param kinds: the kinds of numbered groups
    """

    name = 'providers'
    reason = 'cannot give all of it from its providers'

    def __init__(
        self, wants: allocation.ProviderDemand,
        kinds: tuple[GroupCapacity, ...],
    ) -> None:
        super().__init__()
        self._demand = wants
        self._kinds = kinds

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        doubtful = self._doubtful(hosts)
        if doubtful is None:
            return None
        places = np.flatnonzero(doubtful)
        if not len(places):
            return None
        kept = np.ones(len(hosts), dtype=bool)
        kept[places] = self._look(hosts, places)
        return kept

    def _doubtful(self, hosts: view.Hosts) -> view.Mask | None:
        """Return the mask of hosts that need an exact check, or None."""
        wants, kinds = self._demand, self._kinds
        demand = wants.demand
        numbered = {resource for group in demand.groups
                    for resource, _ in group.resources}
        if (demand.same_subtree or len(kinds) > _COMPARED_MAX
                or not numbered.isdisjoint(dict(wants.amounts))):
            return np.ones(len(hosts), dtype=bool)
        found: view.Mask | None = None
        if wants.required:
            found = ~hosts.each('traits', lambda has: wants.required <= has)
        offers = [dict(kind.places(hosts)) for kind in kinds]
        for one, other in itertools.combinations(range(len(kinds)), 2):
            if not (demand.isolate or _alike(kinds[one].wants,
                                             kinds[other].wants)):
                continue
            for name in offers[one].keys() & offers[other].keys():
                either = both(offers[one][name], offers[other][name])
                if either is None:
                    return np.ones(len(hosts), dtype=bool)
                found = either if found is None else found | either
        return found

    def _look(self, hosts: view.Hosts, places: view.Column) -> view.Mask:
        """Return the hosts that pass the exact check; equal hosts once."""
        picked = hosts.at(hosts.table_rows(places))
        outside = [kind.restricts for kind in self._kinds]
        named = ['children', 'child_units', 'traits', 'units', 'sharing']
        if any(outside):
            named += ['aggregates']
        matrix = np.column_stack([
            *(picked[name] for name in named), *self._rooms(picked)]
        ).astype('float64')
        states = matrix.view(
            [('', matrix.dtype)] * matrix.shape[1]).reshape(-1)
        _, first, alike = np.unique(
            states, return_index=True, return_inverse=True)
        if any(kind.wants.in_tree for kind in self._kinds):
            # A group with in_tree matches the tree of one host.
            first = alike = np.arange(len(picked))
        answers = np.array([
            allocation.allocate(picked, int(place), self._demand) is not None
            for place in first], dtype=bool)
        return answers[alike.reshape(-1)]

    def _rooms(self, hosts: view.Hosts) -> Iterator[view.Column]:
        for resource in self._demand.classes:
            yield hosts.available(resource)
            for number in hosts.children_with(resource):
                yield hosts.available(f'{resource}{columns.AT}{number}')


# Cached: few flavors exist, and a stage depends only on the demand.
@functools.lru_cache(1024)
def stages(
    wants: allocation.ProviderDemand, given: frozenset[str]
) -> tuple[base.Filter, ...]:
    """Return the stages for the providers of a host.

    :param given: resource classes that providers other than hosts offer;
        :mod:`.capacity` checks the remaining classes
    """
    spread = [ProviderCapacity(resource, amount, wants.forbidden)
              for resource, amount in wants.amounts if resource in given]
    demand = wants.demand
    kinds: dict[request_groups.RequestGroup, list[
        request_groups.RequestGroup]] = {}
    for group in demand.groups:
        kinds.setdefault(group._replace(suffix=''), []).append(group)
    groups = tuple(
        GroupCapacity(alike[0], len(alike), not demand.isolate)
        for alike in kinds.values())
    return (*spread, *groups, ProviderFit(wants, groups))


def _alike(
    one: request_groups.RequestGroup, other: request_groups.RequestGroup
) -> bool:
    """Return whether two groups request a common resource class."""
    return not dict(one.resources).keys().isdisjoint(dict(other.resources))


def _described(group: request_groups.RequestGroup, number: int) -> str:
    """Return the description of a group's providers for messages."""
    amounts = ', '.join(f'{amount} {resource}'
                        for resource, amount in group.resources)
    traits = [*sorted(group.required),
              *(f'no {trait}' for trait in sorted(group.forbidden))]
    which = 'a provider' if number == 1 else f'{number} providers'
    return (which + (f' of {amounts}' if amounts else '')
            + (f' with {", ".join(traits)}' if traits else ''))


def both(one: view.Mask | None, other: view.Mask | None) -> view.Mask | None:
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
            mask = everyone.each('child_units', lambda value: (
                number > len(value) or allocation.admits(
                    value[number - 1], resource, amount)))
        else:
            mask = everyone.each('units', lambda value: allocation.admits(
                value, resource, amount))
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
            mask = everyone.each('children', lambda value: (
                number <= len(value) and suits(value[number - 1][1])))
        else:
            mask = everyone.each('traits', suits)
        return None if mask.all() else mask

    return _picked(hosts, hosts.memo(
        ('suiting', name, required, forbidden), make))


def _picked(hosts: view.Hosts, mask: view.Mask | None) -> view.Mask | None:
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
                    and allocation.admits(provider.units, resource, amount)
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
            remaining = hosts.shared_available(uuid, resource)
            most = np.maximum(most, remaining * hosts.each(
                'sharing', lambda uuids: uuid in uuids))
    return most
