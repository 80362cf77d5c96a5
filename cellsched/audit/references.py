# SPDX-License-Identifier: Apache-2.0
"""Checks of the records that are not of one server.

Hosts, providers, members of groups, archived rows and leases name each other
by uuids and names in several databases. Each function yields the names that
nothing has, and the records that contradict each other. What a cell that does
not answer may have is no finding.
"""

from collections.abc import Callable
from collections.abc import Container
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import functools
import math
from typing import Any

from cellsched.audit.findings import Action
from cellsched.audit.findings import Finding
from cellsched.audit.state import StateReader
from cellsched.claims import base as claims_base
from cellsched.db.api import audit_queries as api
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_groups
from cellsched.db.api import models as api_models
from cellsched.db.api import shared_providers
from cellsched.db.cell import audit_queries
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import models
from cellsched.db.cell import services
from cellsched.db import value_types

#: The longest lease, in seconds: leases last seconds to minutes.
LEASE_MAX_S = 24 * 3600

#: Relative tolerance of capacities and ratios, as databases store ratios with
#: few digits.
_TOLERANCE = 1e-5

_REPORT_AGAIN = 'restart the agent of its host, which reports it again'

Nodes = Mapping[str, tuple[str, audit_queries.NodeRow]]
Shared = Mapping[str, shared_providers.SharedProvider]


def check_all(reader: StateReader) -> Iterator[Finding]:
    """Yield all findings of this module except those of providers."""
    for check in _CHECKS:
        yield from check(reader)


def check_api_values(reader: StateReader) -> list[Finding]:
    """Check that all values of the API database have the right type."""
    with reader.database.reader() as connection:
        return [_wrong_type(each) for each in value_types.find_wrong(
            connection, api_models.METADATA, reader.page)]


def check_cell_values(reader: StateReader) -> list[Finding]:
    """Check that all values of the cells have the right type.

    The reader reads no more of a cell with a value of another type.
    """
    found = []
    for cell, wrong in reader.ask(
            lambda cell, connection: value_types.find_wrong(
                connection, models.METADATA, reader.page),
            reader.cells()).items():
        found += [_wrong_type(each, cell) for each in wrong]
        if wrong:
            reader.unheard[cell] = 'it has values of a wrong type'
    return found


def _wrong_type(
    wrong: value_types.WrongValue, cell: str | None = None
) -> Finding:
    # The bytes may be those of a password.
    value = ('bytes' if isinstance(wrong.value, bytes)
             else f'{wrong.value!r:.80}')
    return Finding(
        'wrong-type', f'{wrong.table} {wrong.key}',
        f'has {wrong.column} = {value}, which is no {wrong.expected}',
        cell,
        advice='correct the value, and audit again; until then the other '
               'records of its database are not checked')


def _check_hosts(reader: StateReader) -> Iterator[Finding]:
    """Check that each mapped host has a compute service."""
    with reader.database.reader() as connection:
        mapped = host_mappings.by_cell(connection)
    for cell, (served, with_nodes) in reader.ask(
            lambda cell, connection: (
                set(services.list_hosts(connection, services.COMPUTE)),
                set(compute_nodes.list_hosts(connection))),
            reader.cells()).items():
        for host in sorted(mapped.get(cell, set()) - served):
            if host in with_nodes:
                yield Finding(
                    'service-missing', host,
                    'has compute nodes, and its compute service is missing',
                    cell,
                    advice='start its agent, which records the service again')
            else:
                yield Finding(
                    'host-mapping-unknown', host,
                    'is mapped to this cell, which has neither a compute '
                    'service nor a node of it', cell,
                    advice='start its agent, or unmap it with cell_v2 '
                           'delete_host')


#: Tables of which the shadow table never has a live row.
_ARCHIVED = (models.instances, models.migrations, models.services,
             models.compute_nodes)


def _check_archive(reader: StateReader) -> Iterator[Finding]:
    """Check that no live row is in the shadow table as well."""
    for table in _ARCHIVED:
        for cell, uuid in _walk(reader, functools.partial(
                audit_queries.live_in_shadow, table=table)):
            yield Finding(
                'row-archived', uuid,
                f'is a row of {table.name}, and is in its shadow table too',
                cell,
                advice='compare the two rows, and delete the one in the '
                       'shadow table if the other is in use')


def _check_flavors(reader: StateReader) -> Iterator[Finding]:
    """Check that the flavors of all servers in the cells can be read."""
    for cell, uuid in _walk(reader, audit_queries.unreadable_flavors):
        yield Finding(
            'flavor-unreadable', uuid,
            'has a row of instance_extra whose flavor cannot be read',
            cell,
            advice='its host uses the amounts of its row of instances; '
                   'correct the flavor by its request specification')


def _walk(
    reader: StateReader, query: Callable[..., tuple[int | None, list[str]]]
) -> Iterator[tuple[str, str]]:
    """Yield the cells and the uuids of all pages of a query.

    :param query: called with a connection, ``after`` and ``limit``; returns
        the end of the page, None after the last one, and uuids
    """
    after = dict.fromkeys(reader.cells(), 0)

    def page(cell: str, connection: Any) -> tuple[int | None, list[str]]:
        return query(connection, after=after[cell], limit=reader.page)

    while after:
        pages = reader.ask(page, after)
        for cell, (_, uuids) in pages.items():
            for uuid in sorted(uuids):
                yield cell, uuid
        after = {cell: end for cell, (end, _) in pages.items()
                 if end is not None}


def _check_members(reader: StateReader) -> Iterator[Finding]:
    """Check that the members of all groups are known servers."""
    for uuids in reader.pages(api.members_after):
        for uuid in sorted(set(uuids) - reader.known(uuids)):
            yield Finding(
                'group-member-unknown', uuid,
                'is a member of a server group, and the API database does not '
                'know it',
                advice='delete its row of instance_group_member, unless the '
                       'mapping of the server was lost')


def _check_policies(reader: StateReader) -> Iterator[Finding]:
    """Check that the policies and rules of all groups are known."""
    with reader.database.reader() as connection:
        wrong = instance_groups.wrong_policies(connection)
    for uuid, problem in wrong:
        yield Finding(
            'group-policy', uuid, f'is a server group, and {problem}',
            advice='correct its row of instance_group_policy')


def _check_aggregates(reader: StateReader) -> Iterator[Finding]:
    """Check that the aggregates of all sharing providers exist."""
    with reader.database.reader() as connection:
        unknown = api.unknown_aggregates(connection)
    for provider, aggregate in unknown:
        yield Finding(
            'aggregate-unknown', provider,
            f'is shared by aggregate {aggregate}, which does not exist',
            advice='set another aggregate with provider set --aggregate, or '
                   'delete the provider')


def _check_leases(reader: StateReader) -> Iterator[Finding]:
    """Check that no lease ends later than any process leases."""
    with reader.database.reader() as connection:
        found = api.leases_after(
            connection, reader.database.timestamp() + LEASE_MAX_S,
            reader.page)
    for name, owner, end in found:
        yield Finding(
            'lease-excess', name,
            f'is leased by {owner} until {end:.0f} (seconds since the epoch), '
            'so that no other process can take it', action=Action.EXPIRE)


_CHECKS = (_check_hosts, _check_archive, _check_flavors, _check_members,
           _check_policies, _check_aggregates, _check_leases)


def check_identity(
    store: claims_base.Providers, nodes: Iterable[Nodes], shared: Shared,
    names: Mapping[str, str],
) -> Iterator[Finding]:
    """Check that each provider is one thing, in the tree of its node.

    :param nodes: the compute nodes of each cell
    :param shared: sharing providers by uuid
    """
    # 1. By uuid: what has it, the root of its tree, and whether its agent
    # must have reported that.
    owners: dict[str, list[tuple[str, str, bool]]] = {
        uuid: [(f'the sharing provider {provider.name}', uuid, False)]
        for uuid, provider in shared.items()}
    for of_cell in nodes:
        for uuid, (cell, node) in of_cell.items():
            if node.vanished:
                # It may have moved to another host or cell.
                continue
            where = f'host {node.host} of {names.get(cell, cell)}'
            owners.setdefault(uuid, []).append(
                (f'a node of {where}', uuid, node.mapped))
            for child in node.children:
                owners.setdefault(child, []).append(
                    (f'a child provider of {where}', uuid, node.mapped))
    # 2. A store that keeps no trees has no roots.
    roots = store.roots(owners)
    for uuid, owned_by in owners.items():
        text, root, due = owned_by[0]
        if len(owned_by) > 1:
            yield Finding(
                'provider-twice', uuid,
                'is ' + ' and '.join(sorted(each for each, _, _ in owned_by)),
                advice='stop the agent that has the uuid of the other, and '
                       'delete its service')
        elif roots and roots.get(uuid, None if due else root) != root:
            yield Finding(
                'provider-root', uuid,
                f'is {text}, in the tree of {root}, and the claim store has '
                f'it in the tree of {roots.get(uuid)}', advice=_REPORT_AGAIN)


def check_inventories(
    inventories: Mapping[str, Mapping[str, claims_base.Inventory]],
    usages: Mapping[str, claims_base.Usage], nodes: Nodes, shared: Shared,
    unreadable: Container[str] = (),
) -> Iterator[Finding]:
    """Check the inventories behind the capacities, and that nodes have one.

    A store may keep only the capacity; then there is nothing to compare.

    :param unreadable: providers to leave out
    """
    for uuid, (_, node) in nodes.items():
        if uuid not in usages and uuid not in unreadable and (
                node.mapped and not node.vanished
                and any(offer[0] for offer in node.offers.values())):
            yield Finding(
                'provider-missing', uuid,
                f'is a node of host {node.host}, and is not in the claim '
                'store', advice=_REPORT_AGAIN)
    for uuid in inventories.keys() & usages.keys():
        due: Mapping[str, claims_base.Inventory] = {}
        if uuid in nodes and not nodes[uuid][1].vanished:
            due = {name: claims_base.Inventory(*offer)
                   for name, offer in nodes[uuid][1].offers.items()}
        elif uuid in shared:
            due = shared[uuid].inventories
        for name, inventory in inventories[uuid].items():
            capacity = usages[uuid].capacity.get(name, 0)
            right = due.get(name, inventory)
            if name in due and not is_close(right.capacity, capacity):
                # Another record has the right capacity: another finding.
                continue
            if name not in due:
                wrong = capacity != right.capacity
            else:
                wrong = not (_is_same(inventory, right) and (
                    uuid in nodes or inventory.units == right.units)) and (
                    inventory.total, inventory.reserved,
                    inventory.allocation_ratio) != (capacity, 0, 1.0)
            if wrong:
                yield Finding(
                    f'wrong-inventory:{name}', uuid,
                    f'has {capacity} of {name}, and an inventory with total '
                    f'{inventory.total}, reserved {inventory.reserved} and '
                    f'ratio {inventory.allocation_ratio:g}',
                    advice='run provider set for it' if uuid in shared
                    else _REPORT_AGAIN)


def is_close(right: int, capacity: int) -> bool:
    """Return whether a capacity is right, but for its rounding."""
    return abs(capacity - right) <= max(1, _TOLERANCE * right)


def _is_same(
    first: claims_base.Inventory, second: claims_base.Inventory
) -> bool:
    return ((first.total, first.reserved) == (second.total, second.reserved)
            and math.isclose(first.allocation_ratio, second.allocation_ratio,
                             rel_tol=_TOLERANCE))
