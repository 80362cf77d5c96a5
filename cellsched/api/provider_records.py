# SPDX-License-Identifier: Apache-2.0
"""Resource providers as they are shown."""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
from typing import NamedTuple

from cellsched.claims import base as claims
from cellsched.db.api import shared_providers
from cellsched.db.cell import compute_nodes
from cellsched.objects import resources

#: Kinds of providers: a compute node; what is below one; and what the hosts
#: of an aggregate share.
ROOT, CHILD, SHARING = KINDS = ('root', 'child', 'sharing')


class ClassUsage(NamedTuple):
    """The inventory of a resource class, and what is taken of it."""

    inventory: resources.Inventory
    used: int

    @property
    def is_over(self) -> bool:
        """Return whether more is taken than there is."""
        return self.used > self.inventory.capacity


@dataclasses.dataclass(frozen=True)
class ProviderRecord:
    """A resource provider.

    :param kind: one of :data:`KINDS`
    :param parent: uuid of the provider that a child is directly below
    :param root: uuid of the root that it belongs to; its own, unless it is a
        child
    :param host: the compute host that it is of, unless it is shared
    :param cell: what users call the cell of its host
    :param aggregate: name of the aggregate whose hosts share it
    :param inventories: by resource class
    :param consumers: how many hold something of it
    """

    uuid: str
    name: str
    kind: str
    parent: str | None
    root: str
    host: str | None
    cell: str | None
    aggregate: str | None
    traits: frozenset[str]
    inventories: Mapping[str, ClassUsage] = dataclasses.field(
        default_factory=dict)
    consumers: int = 0

    @property
    def over_capacity(self) -> list[str]:
        """The resource classes of which more is taken than there is, sorted.

        Their inventories shrank. What is taken stays, and nothing more is
        given of them.
        """
        return [name for name, has in sorted(self.inventories.items())
                if has.is_over]


@dataclasses.dataclass(frozen=True)
class ProviderPage:
    """Resource providers, and the names of cells that did not answer.

    Nodes come with their children, by cell and name, and sharing ones after
    them.
    """

    providers: list[ProviderRecord]
    down_cells: list[str]


def of_nodes(
    nodes: Iterable[compute_nodes.RootRow], cell: str
) -> list[ProviderRecord]:
    """Return the nodes of a cell and what is below them."""
    found = []
    for node in nodes:
        found.append(ProviderRecord(
            node.uuid, node.name, ROOT, None, node.uuid, node.host, cell,
            None, node.traits))
        found += [
            ProviderRecord(
                child.uuid, child.name, CHILD, child.parent or node.uuid,
                node.uuid, node.host, cell, None, child.traits)
            for child in node.children]
    return found


def of_shared(
    shared: Iterable[shared_providers.SharedProvider],
    aggregates: Mapping[str, str],
) -> list[ProviderRecord]:
    """Return sharing providers.

    :param aggregates: names of aggregates, by uuid
    """
    return [
        ProviderRecord(
            each.uuid, each.name, SHARING, None, each.uuid, None, None,
            aggregates.get(each.aggregate_uuid, each.aggregate_uuid),
            each.traits)
        for each in shared]


def with_usage(
    records: Iterable[ProviderRecord], store: claims.ClaimStore,
    everything: bool = False,
) -> list[ProviderRecord]:
    """Return providers with what they have and what is taken of that.

    A class of which there is nothing and nothing is taken is left out.

    :param everything: whether they are nearly all that the store knows, which
        it is asked for then
    """
    records = list(records)
    asked = None if everything else [each.uuid for each in records]
    usages = {each.provider: each
              for each in store.usages(providers=asked).usages}
    inventories = store.inventories(asked)
    return [
        dataclasses.replace(
            each, consumers=usages[each.uuid].consumers, inventories=_shown(
                usages[each.uuid], inventories.get(each.uuid, {})))
        if each.uuid in usages else each for each in records]


def _shown(
    usage: claims.Usage, inventories: Mapping[str, resources.Inventory]
) -> dict[str, ClassUsage]:
    nothing = resources.Inventory(0)
    shown = {
        name: ClassUsage(inventories.get(name, nothing),
                         usage.used.get(name, 0))
        for name in sorted({*inventories, *usage.used})}
    return {name: has for name, has in shown.items()
            if has.inventory.total or has.used}
