# SPDX-License-Identifier: Apache-2.0
"""A host is mapped to the cell that has its compute node: a part of S3."""

from cellsched.audit import facts
from cellsched.audit import findings
from cellsched.db.api import host_mappings
from cellsched.db.cell import audit_queries


def check(reader: facts.Reader) -> list[findings.Finding]:
    """Return the hosts that are mapped to another cell, or not any more.

    One that was never mapped is, by the next scheduler that sees it.
    """
    found = []
    names = reader.names()
    there = reader.ask(
        lambda cell, connection: audit_queries.nodes(connection),
        reader.cells())
    for cell, nodes in there.items():
        # Whether one of its nodes was known as mapped, by host.
        hosts: dict[str, bool] = {}
        for node in nodes.values():
            hosts[node.host] = node.mapped or hosts.get(node.host, False)
        with reader.database.reader() as connection:
            mapped = host_mappings.get_many(connection, hosts)
        for host, was_mapped in sorted(hosts.items()):
            if host not in mapped:
                if was_mapped:
                    found.append(findings.Finding(
                        'host-unmapped', host,
                        'has a compute node in this cell, and its mapping has '
                        'gone', names[cell], cell, None,
                        'map it with cell_v2 discover_hosts --by-service, or '
                        'delete what is left of it in the cell'))
            elif mapped[host].uuid != cell:
                other = names.get(mapped[host].uuid, mapped[host].uuid)
                found.append(findings.Finding(
                    'host-elsewhere', host,
                    f'has a compute node in this cell, and is mapped to '
                    f'{other}', names[cell], cell, None,
                    'let its agent report to one of them only, and delete '
                    'what is left of it in the other'))
    return found
