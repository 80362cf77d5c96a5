# SPDX-License-Identifier: Apache-2.0
"""Providers are there, and have the inventory that they should: part of S1.

They are compute nodes, what is below these, and what aggregates share.
"""

from collections.abc import Iterator
from collections.abc import Mapping

from cellsched.audit import facts
from cellsched.audit import findings
from cellsched.claims import base as claims_base
from cellsched.db.api import shared_providers
from cellsched.db.cell import audit_queries

#: How far a capacity may be from the right one, as a share of it: databases
#: keep ratios in few digits.
_TOLERANCE = 1e-5

_NOTHING = claims_base.Inventory(0)


def check(
    reader: facts.Reader, store: claims_base.ClaimStore
) -> Iterator[findings.Finding]:
    """Yield what the claim store says of providers and databases do not.

    A provider is in a database before it is in the store, so the store is
    asked first. What may be in a cell that does not answer is not told.
    """
    usages = {usage.provider: usage for usage in store.usages().usages}
    names = reader.names()
    nodes: dict[str, tuple[str, audit_queries.NodeRow]] = {}
    for cell, there in reader.ask(
            lambda cell, connection: audit_queries.nodes(connection),
            reader.cells()).items():
        nodes.update((uuid, (cell, node)) for uuid, node in there.items())
    shared = {each.uuid: each for each in reader.shared()}
    children = {child for _, node in nodes.values() for child in node.children}
    for uuid, usage in usages.items():
        if uuid in nodes:
            cell, node = nodes[uuid]
            yield from _compare(usage, node, cell, names)
        elif uuid not in shared and uuid not in children and (
                not reader.unheard) and (
                usage.consumers or any(usage.capacity.values())):
            yield findings.Finding(
                'provider-unknown', uuid,
                f'has claims of {usage.consumers} consumers, and no cell has '
                'such a compute node or child provider of one, and no '
                'aggregate shares it',
                advice='let the agent of its host report again; if that is '
                       'gone for good, delete the servers that hold something '
                       'there')
    for uuid, provider in shared.items():
        usage = usages.get(uuid) or claims_base.Usage(uuid, {}, {}, 0)
        yield from _compare_shared(usage, provider)


def _compare(
    usage: claims_base.Usage, node: audit_queries.NodeRow, cell: str,
    names: Mapping[str, str],
) -> Iterator[findings.Finding]:
    for resource, offer in node.offers.items():
        right = claims_base.Inventory(*offer).capacity
        capacity = usage.capacity.get(resource, 0)
        if abs(capacity - right) > max(1, _TOLERANCE * right):
            yield findings.Finding(
                f'wrong-capacity:{resource}', usage.provider,
                f'is {node.host}, which offers {right} of {resource}, and '
                f'the claim store says {capacity}', names.get(cell, cell),
                cell, findings.Action.RECOUNT)


def _compare_shared(
    usage: claims_base.Usage, provider: shared_providers.SharedProvider
) -> Iterator[findings.Finding]:
    for resource in sorted({*provider.inventories, *usage.capacity}):
        said = provider.inventories.get(resource, _NOTHING).capacity
        capacity = usage.capacity.get(resource, 0)
        if capacity != said:
            yield findings.Finding(
                f'wrong-capacity:{resource}', provider.uuid,
                f'is shared as {provider.name}, which has {said} of '
                f'{resource}, and the claim store says {capacity}',
                advice=f'cellsched provider set {provider.name}')
