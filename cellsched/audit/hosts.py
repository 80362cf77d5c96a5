# SPDX-License-Identifier: Apache-2.0
"""A host is mapped to the cell that has its compute node: a part of S3."""

from cellsched.audit import facts as facts_
from cellsched.audit import findings
from cellsched.db.api import host_mappings
from cellsched.db.cell import surveying


def check(reader: facts_.Reader) -> list[findings.Finding]:
    """Return the hosts that are mapped to another cell.

    One that is not mapped at all is mapped by the next scheduler that sees
    it.
    """
    found = []
    names = reader.names()
    nodes = reader.ask(
        lambda cell, connection: surveying.nodes(connection), reader.cells())
    for cell, hosts in nodes.items():
        with reader.database.reader() as connection:
            mapped = host_mappings.get_many(connection, hosts.values())
        for host in sorted(set(hosts.values())):
            if host in mapped and mapped[host].uuid != cell:
                other = names.get(mapped[host].uuid, mapped[host].uuid)
                found.append(findings.Finding(
                    'S3', 'host-elsewhere', host,
                    f'has a compute node in this cell, and is mapped to '
                    f'{other}', names[cell], cell, None,
                    'let its agent report to one of them only, and delete '
                    'what is left of it in the other'))
    return found
