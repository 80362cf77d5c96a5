# SPDX-License-Identifier: Apache-2.0
"""Requests that several providers of a host may meet, on columns.

Each kind of numbered group is counted on all hosts at once: how many of a
host's providers could give one. That decides most requests. Where groups may
want the same provider, or something has to be near something else, hosts that
passed are looked at exactly, those that are alike once; see
:mod:`.assignment`.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import functools
import itertools

import numpy as np

from cellsched.filters import base
from cellsched.hosts import columns
from cellsched.hosts import view
from cellsched import objects
from cellsched.objects import request_groups
from cellsched.objects import resources
from cellsched.scheduler.decision import allocation
from cellsched.scheduler.decision import assignment
from cellsched.scheduler.decision import provider_offers
from cellsched.scheduler.decision import required_traits

#: Kinds of groups that are compared with each other on columns; with more of
#: them every host is looked at exactly.
_COMPARED_MAX = 8

#: Extra specs and fields that are read here.
READS = frozenset({
    'flavor.extra_specs.resources{group}:*',
    'flavor.extra_specs.trait{group}:*',
    'flavor.extra_specs.group_policy', 'requested_resources',
    'request_level_params.same_subtree'})


def asked(
    hosts: view.Hosts, request: objects.RequestSpec,
    amounts: Mapping[str, int],
) -> assignment.ProviderDemand | None:
    """Return what a request asks the providers of its host for.

    None stands for what hosts themselves have to give, which is all of it for
    most requests.

    :param amounts: what it takes without a number
    """
    demand = request.group_demand()
    if demand is request_groups.NO_GROUPS and not hosts.given_by_others(
            amounts):
        return None
    return assignment.ProviderDemand(
        tuple(amounts.items()), demand, *required_traits.unnumbered(request))


class _Stage(base.Filter):
    """Looks at providers; made for a request, and always in the pipeline."""

    # What one host is given of a sharing provider others lack.
    local = False

    def __init__(self) -> None:
        super().__init__(options=None)


class ProviderCapacity(_Stage):
    """Reject a host of whose providers none has room for an amount."""

    def __init__(
        self, resource: str, amount: int, forbidden: frozenset[str]
    ) -> None:
        super().__init__()
        self.resource = resource
        self.amount = amount
        self.forbidden = forbidden
        self.name = f'capacity:{resource}'
        self.word, self.unit = resources.describe(resource)
        self.reason = f'lacks {self.word}'
        self._offers = provider_offers.Offers(request_groups.RequestGroup(
            '', ((resource, amount),), forbidden=forbidden), 1, False)

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        return self._offers.count(hosts)

    def shortfall(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> tuple[view.Column, str]:
        return self.amount - provider_offers.most_available(
            hosts, self.resource, frozenset(), self.forbidden), self.unit


class GroupCapacity(_Stage):
    """Reject a host that cannot have so many groups of one kind.

    :param shares: whether several groups may have one provider
    """

    def __init__(
        self, group: request_groups.RequestGroup, number: int, shares: bool
    ) -> None:
        super().__init__()
        self.wants = group
        self.number = number
        self.name = f'group:{group.suffix}'
        self.reason = f'lacks {_described(group, number)}'
        self.offers = provider_offers.Offers(group, number, shares)

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        count = self.offers.count(hosts)
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
        count = self.offers.count(hosts)
        missing = self.number - (np.full(len(hosts), self.number)
                                 if count is None else count)
        return missing, 'provider' if self.number == 1 else 'providers'

    def _missing(
        self, hosts: view.Hosts
    ) -> tuple[view.Column, str] | None:
        """Return by how much hosts miss the class that the nearest misses.

        A host misses most the class of which the greatest share is missing;
        it counts for no other. None where some host has enough of each of
        several classes, and no provider that has all of them.
        """
        classes = self.wants.resources
        missing = np.array([np.maximum(
            amount - provider_offers.most_available(
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


class ProviderFit(_Stage):
    """Reject a host whose providers cannot give all of it together.

    Hosts on which no two parts of the request want the same provider are not
    looked at: each part is there.

    :param kinds: the kinds of numbered groups
    """

    name = 'providers'
    reason = 'cannot give all of it from its providers'

    def __init__(
        self, wants: assignment.ProviderDemand,
        kinds: tuple[GroupCapacity, ...],
    ) -> None:
        super().__init__()
        self._wanted = wants
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
        """Return the hosts to be looked at exactly; None for none of them."""
        wants, kinds = self._wanted, self._kinds
        demand = wants.demand
        numbered = {resource for group in demand.groups
                    for resource, _ in group.resources}
        if (demand.same_subtree or len(kinds) > _COMPARED_MAX
                or not numbered.isdisjoint(dict(wants.amounts))):
            return np.ones(len(hosts), dtype=bool)
        found: view.Mask | None = None
        if wants.required:
            found = ~hosts.each(
                'traits', lambda has: wants.required <= has)
        offers = [dict(kind.offers.places(hosts)) for kind in kinds]
        for one, other in itertools.combinations(range(len(kinds)), 2):
            if not (demand.isolate or _alike(kinds[one].wants,
                                             kinds[other].wants)):
                continue
            for name in offers[one].keys() & offers[other].keys():
                either = provider_offers.both(
                    offers[one][name], offers[other][name])
                if either is None:
                    return np.ones(len(hosts), dtype=bool)
                found = either if found is None else found | either
        return found

    def _look(self, hosts: view.Hosts, places: view.Column) -> view.Mask:
        """Return which of some hosts can give all; those alike once."""
        picked = hosts.at(hosts.table_rows(places))
        outside = [kind.offers.restricts for kind in self._kinds]
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
            # A tree is one host's.
            first = alike = np.arange(len(picked))
        answers = np.array([
            allocation.allocate(picked, int(place), self._wanted) is not None
            for place in first], dtype=bool)
        return answers[alike.reshape(-1)]

    def _rooms(self, hosts: view.Hosts) -> Iterator[view.Column]:
        for resource in self._wanted.classes:
            yield hosts.available(resource)
            for number in hosts.children_with(resource):
                yield hosts.available(f'{resource}{columns.AT}{number}')


# Flavors are few, and there is nothing in a stage but what they ask for.
@functools.lru_cache(1024)
def stages(
    wants: assignment.ProviderDemand, given: frozenset[str]
) -> tuple[base.Filter, ...]:
    """Return what the providers of a host must have for a request.

    :param given: resource classes that others than hosts themselves give;
        :mod:`.capacity` asks for the rest
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
    """Return whether two groups ask for the same resource class."""
    return not dict(one.resources).keys().isdisjoint(dict(other.resources))


def _described(group: request_groups.RequestGroup, number: int) -> str:
    """Return the providers that a group wants, for people."""
    amounts = ', '.join(f'{amount} {resource}'
                        for resource, amount in group.resources)
    traits = [*sorted(group.required),
              *(f'no {trait}' for trait in sorted(group.forbidden))]
    which = 'a provider' if number == 1 else f'{number} providers'
    return (which + (f' of {amounts}' if amounts else '')
            + (f' with {", ".join(traits)}' if traits else ''))
