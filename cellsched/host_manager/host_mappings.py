# SPDX-License-Identifier: Apache-2.0
"""Host mappings of all cells, read when they changed."""

from collections.abc import Mapping
from collections.abc import Set
from typing import Any

from cellsched.db.api import host_mappings
from cellsched.db import session

_NONE: frozenset[str] = frozenset()


class HostMappings:
    """The hosts of each cell, as the API database has them mapped.

    :param database: the API database
    """

    def __init__(self, database: session.Database) -> None:
        self._database = database
        self._fingerprint: Any = None
        self._hosts: Mapping[str, Set[str]] = {}

    def read(self) -> None:
        """Read them again if they are not the same.

        Who deletes a mapping, such as a command of Nova, tells nobody. So
        that is found by one statement, whose answer is a few numbers.
        """
        with self._database.reader() as connection:
            fingerprint = host_mappings.fingerprint(connection)
            if fingerprint != self._fingerprint:
                self._hosts = host_mappings.by_cell(connection)
                self._fingerprint = fingerprint

    def hosts(self, cell_uuid: str) -> Set[str]:
        """Return the hosts of a cell: the same set, until they change."""
        return self._hosts.get(cell_uuid, _NONE)
