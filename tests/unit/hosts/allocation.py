# SPDX-License-Identifier: Apache-2.0
"""What a request takes that is claimed at once."""


def take(table, row, resources, now=0.0):
    """Have a table count what an instance takes."""
    hosts = table.view(now)
    hosts.take(row, resources)
    table.confirm(table.reserve(hosts))
