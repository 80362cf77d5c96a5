# SPDX-License-Identifier: Apache-2.0
"""Providers beside the hosts of a table: their children, and shared ones."""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses

from cellsched.hosts import columns


@dataclasses.dataclass(frozen=True)
class SharingProvider:
    """A sharing provider, of which every host of its aggregate may take.

    :param name: what people call it
    :param aggregate: uuid of the aggregate
    :param traits: names of what it can do
    :param available: what is left to claim, by resource class
    :param units: bounds on what one server may take, as the column ``units``
        has them
    """

    name: str
    aggregate: str
    traits: frozenset[str] = frozenset()
    available: Mapping[str, float] = dataclasses.field(default_factory=dict)
    units: tuple[tuple[str, int, int, int], ...] = ()


Units = tuple[tuple[str, int, int, int], ...]


class OtherProviders:
    """The child providers of hosts, and the sharing providers.

    A mapping that somebody was given is never changed, but replaced. What is
    left of child providers is in the table's columns.
    """

    def __init__(self) -> None:
        #: Nodes of child providers, with their numbers there.
        self.children: Mapping[str, tuple[str, int]] = {}
        #: Sharing providers by uuid, with what is left of each.
        self.sharing: Mapping[str, SharingProvider] = {}

    def replace(
        self, changes: Iterable[tuple[str, Iterable[str], Iterable[str]]]
    ) -> None:
        """Learn which children nodes have.

        One that is another node's by now stays there.

        :param changes: nodes, with those that they had and those they have
        """
        children = dict(self.children)
        for node, before, uuids in changes:
            for uuid in before:
                if children.get(uuid, ('', 0))[0] == node:
                    del children[uuid]
            children.update((uuid, (node, number))
                            for number, uuid in enumerate(uuids, start=1))
        self.children = children

    def given(
        self, node: str, children: tuple[str, ...],
        resources: Iterable[tuple[str, int]],
    ) -> tuple[str, ...]:
        """Return the providers of which something is taken on a host.

        :param children: those of the node, as far as they are known
        :param resources: amounts by resource class, as they are taken
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
        """Learn which sharing providers there are; return those new.

        What is left of those that were known before is kept.
        """
        known = self.sharing
        self.sharing = {
            uuid: dataclasses.replace(
                each, available=known[uuid].available, units=known[uuid].units)
            if uuid in known else each for uuid, each in providers.items()}
        return [uuid for uuid in providers if uuid not in known]

    def set_available(
        self, uuid: str, left: Mapping[str, float], units: Units
    ) -> None:
        """Learn what is left of a sharing provider."""
        self.sharing = {**self.sharing, uuid: dataclasses.replace(
            self.sharing[uuid], available=left, units=units)}

    def available(self, uuid: str, resource: str) -> float:
        """Return what is left of a sharing provider.

        :param resource: the class, or what is taken of it: ``CLASS@uuid``
        """
        provider = self.sharing.get(uuid)
        return 0.0 if provider is None else provider.available.get(
            resource.partition(columns.AT)[0], 0.0)

    def add(self, name: str, amount: float) -> bool:
        """Change what is left of a sharing provider, if it is that of one.

        :param name: the name of a room: ``available:CLASS@uuid``
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
