# SPDX-License-Identifier: Apache-2.0
"""Mappings: the cells, and where hosts and servers are."""

from collections.abc import Iterable

from oslo_utils import uuidutils

from cellsched.cells.maintenance import CellMaintenance
from cellsched.db.api import cell_mappings
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db import session
from cellsched import objects


class Mappings:
    """Reads mappings of the API database, and adds cells to them.

    :param database: the API database
    :param maintenance: what adds cells
    """

    def __init__(
        self, database: session.Database,
        maintenance: CellMaintenance,
    ) -> None:
        self._database = database
        self._maintenance = maintenance

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
        """Map a cell, whose database has its schema, or gets it later.

        :raises cellsched.exception.CellMappingExists: another cell has one of
            its URLs, its database or its uuid
        :raises cellsched.exception.WrongDatabase: its database is that of
            something else
        :raises cellsched.exception.InvalidField: a URL has braces that are
            not of a template's fields
        :raises cellsched.exception.ConfigurationInvalid: a URL is none that
            can be opened
        """
        return self._create(objects.CellMapping(
            uuid=uuid or uuidutils.generate_uuid(), name=name,
            transport_url=transport_url,
            database_connection=database_connection, disabled=False))

    def create_cell0(self, database_connection: str) -> objects.CellMapping:
        """Map cell0, where the records of what could not be built go.

        :raises cellsched.exception.CellMappingExists: it is mapped, or its
            database is that of a cell
        :raises cellsched.exception.WrongDatabase: as :meth:`create_cell`
        :raises cellsched.exception.InvalidField: as :meth:`create_cell`
        :raises cellsched.exception.ConfigurationInvalid: as
            :meth:`create_cell`
        """
        return self._create(objects.CellMapping(
            uuid=objects.CELL0_UUID, name='cell0', transport_url='none:///',
            database_connection=database_connection, disabled=False))

    def _create(self, mapping: objects.CellMapping) -> objects.CellMapping:
        self._maintenance.create(mapping)
        return mapping
