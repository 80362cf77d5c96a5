# SPDX-License-Identifier: Apache-2.0
"""Providers are known, and nodes have the nodes' inventory: part of S1.

A provider is a compute node, below one, or shared by hosts.
"""

from collections.abc import Iterator
from collections.abc import Mapping

from cellsched.audit import facts as facts_
from cellsched.audit import findings
from cellsched.claims import base as claims_base
from cellsched.db.cell import audit_queries

#: How far a capacity may be from the right one, as a share of it: databases
#: keep ratios in few digits.
_TOLERANCE = 1e-5


def check(
    reader: facts_.Reader, store: claims_base.ClaimStore
) -> Iterator[findings.Finding]:
    """Yield what the claim store says of providers and cells do not.

    A node is reported to its cell before it is to the store, so the store is
    asked first. What may be in a cell that does not answer is not told.
    """
    usages = store.usages().usages
    names = reader.names()
    nodes: dict[str, tuple[str, audit_queries.NodeRow]] = {}
    known = {provider.uuid for provider in reader.shared()}
    for cell, there in reader.ask(
            lambda cell, connection: audit_queries.nodes(connection),
            reader.cells()).items():
        nodes.update((uuid, (cell, node)) for uuid, node in there.items())
        known.update(*(node.children for node in there.values()))
    for usage in usages:
        if usage.provider in nodes:
            cell, node = nodes[usage.provider]
            yield from _compare(usage, node, cell, names)
        elif usage.provider not in known and not reader.unheard and (
                usage.consumers or any(usage.capacity.values())):
            yield findings.Finding(
                'provider-unknown', usage.provider,
                f'has claims of {usage.consumers} consumers, and no cell has '
                'such a compute node or child provider of one',
                advice='let the agent of its host report again; if that is '
                       'gone for good, delete the servers that hold something '
                       'there')


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
