# SPDX-License-Identifier: Apache-2.0
"""Mappings: the cells, and where hosts and servers are."""

from collections.abc import Iterable

from oslo_utils import uuidutils

from cellsched.cells import registry
from cellsched.db.api import cell_mappings
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db import session
from cellsched import objects


class Mappings:
    """Reads mappings of the API database, and adds cells to them.

    :param database: the API database
    :param cells: the registry of the process, which hears of new cells
    """

    def __init__(
        self, database: session.Database, cells: registry.CellRegistry
    ) -> None:
        self._database = database
        self._cells = cells

    def cells(self) -> list[objects.CellMapping]:
        """Return every cell, cell0 and disabled ones among them."""
        with self._database.reader() as connection:
            return cell_mappings.list_all(connection)

    def hosts(self, names: Iterable[str]) -> list[objects.HostMapping]:
        """Return the mappings of hosts; unmapped ones are left out."""
        with self._database.reader() as connection:
            found = host_mappings.get_many(connection, names)
        return [objects.HostMapping(host=host, cell_mapping=cell)
                for host, cell in found.items()]

    def instances(
        self, uuids: Iterable[str]
    ) -> dict[str, objects.InstanceMapping]:
        """Return the mappings of servers by uuid; others are left out.

        One that has no cell yet is being placed; one in cell0 could not be
        built.
        """
        with self._database.reader() as connection:
            return instance_mappings.get_many(connection, uuids)

    def create_cell(
        self, name: str, transport_url: str, database_connection: str,
        uuid: str | None = None,
    ) -> objects.CellMapping:
        """Map a cell, whose database has its schema.

        :raises cellsched.exception.CellMappingExists: another cell has one of
            its URLs or its uuid
        """
        return self._create(objects.CellMapping(
            uuid=uuid or uuidutils.generate_uuid(), name=name,
            transport_url=transport_url,
            database_connection=database_connection, disabled=False))

    def create_cell0(self, database_connection: str) -> objects.CellMapping:
        """Map cell0, where the records of what could not be built go.

        :raises cellsched.exception.CellMappingExists: it is mapped
        """
        return self._create(objects.CellMapping(
            uuid=objects.CELL0_UUID, name='cell0', transport_url='none:///',
            database_connection=database_connection, disabled=False))

    def _create(self, mapping: objects.CellMapping) -> objects.CellMapping:
        with self._database.writer() as connection:
            cell_mappings.create_apart(
                connection, mapping, self._database.now())
        self._cells.refresh()
        return mapping
