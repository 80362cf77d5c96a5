# SPDX-License-Identifier: Apache-2.0
"""Providers other than hosts: child providers and sharing providers."""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses

from cellsched.hosts import columns


@dataclasses.dataclass(frozen=True)
class SharingProvider:
    """A sharing provider, which serves every host of its aggregate.

    :param name: display name
    :param aggregate: uuid of the aggregate
    :param traits: names of the provider's traits
    :param available: the unclaimed amount, by resource class
    :param units: allocation units for one server, in the form of the column
        ``units``
    """

    name: str
    aggregate: str
    traits: frozenset[str] = frozenset()
    available: Mapping[str, float] = dataclasses.field(default_factory=dict)
    units: tuple[tuple[str, int, int, int], ...] = ()


Units = tuple[tuple[str, int, int, int], ...]


class OtherProviders:
    """The child providers of hosts, and the sharing providers.

    The mappings are replaced, never changed, so that a reader can keep one.
    The available amounts of child providers are in the table's columns.
    """

    def __init__(self) -> None:
        #: The node and number of each child provider, by uuid.
        self.children: Mapping[str, tuple[str, int]] = {}
        #: Sharing providers by uuid, with their available amounts.
        self.sharing: Mapping[str, SharingProvider] = {}

    def replace(
        self, changes: Iterable[tuple[str, Iterable[str], Iterable[str]]]
    ) -> None:
        """Replace the child providers of nodes.

        A child provider that has moved to another node stays there.

        :param changes: nodes, each with its previous and its new child
            providers
        """
        children = dict(self.children)
        for node, before, uuids in changes:
            for uuid in before:
                if children.get(uuid, ('', 0))[0] == node:
                    del children[uuid]
            children.update((uuid, (node, number))
                            for number, uuid in enumerate(uuids, start=1))
        self.children = children

    def providers_of(
        self, node: str, children: tuple[str, ...],
        resources: Iterable[tuple[str, int]],
    ) -> tuple[str, ...]:
        """Return the providers of an allocation on a host.

        :param children: the node's known child providers
        :param resources: allocated amounts by resource class
        """
        found: dict[str, None] = {node: None}
        for name, _ in resources:
            _, _, place = name.partition(columns.AT)
            if place.isdigit():
                found |= dict.fromkeys(children[int(place) - 1:int(place)])
            elif place:
                found[place] = None
        return tuple(found)

    def set_sharing(
        self, providers: Mapping[str, SharingProvider]
    ) -> list[str]:
        """Replace the sharing providers; return the uuids of new ones.

        A known provider keeps its available amounts.
        """
        known = self.sharing
        self.sharing = {
            uuid: dataclasses.replace(
                each, available=known[uuid].available, units=known[uuid].units)
            if uuid in known else each for uuid, each in providers.items()}
        return [uuid for uuid in providers if uuid not in known]

    def set_available(
        self, uuid: str, available: Mapping[str, float], units: Units
    ) -> None:
        """Set the available amounts of a sharing provider."""
        self.sharing = {**self.sharing, uuid: dataclasses.replace(
            self.sharing[uuid], available=available, units=units)}

    def add(self, name: str, amount: float) -> bool:
        """Add to the available amount of a sharing provider.

        Return whether the column belongs to one.

        :param name: the column name: ``available:CLASS@uuid``
        """
        uuid = columns.sharing_provider(name)
        if uuid is None:
            return False
        provider = self.sharing.get(uuid)
        if provider is not None:
            resource, _, _ = name.removeprefix(columns.AVAILABLE).partition(
                columns.AT)
            self.set_available(uuid, {
                **provider.available,
                resource: provider.available.get(resource, 0) + amount,
            }, provider.units)
        return True
