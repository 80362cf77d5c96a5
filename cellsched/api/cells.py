# SPDX-License-Identifier: Apache-2.0
"""Cells: list, get."""

from collections.abc import Sequence
import dataclasses
import datetime

from cellsched.api import authorization
from cellsched.api import base
from cellsched.api import validation
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.context import admin
from cellsched.context import RequestContext
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import exception
from cellsched.listing import server
from cellsched import objects
from cellsched import urls

UP = 'up'
DOWN = 'down'


@dataclasses.dataclass(frozen=True)
class CellRecord:
    """A cell.

    :param state: whether its database answers: ``up`` or ``down``
    :param hosts: how many hosts are mapped to it
    :param hosts_up: how many of its compute services are up; None where its
        database does not answer
    :param servers: how many servers it has that are not deleted
    :param transport_url: without its password
    :param database_connection: without its password
    :param reason: why its database does not answer; empty otherwise
    """

    uuid: str
    name: str
    disabled: bool
    state: str
    hosts: int
    hosts_up: int | None
    servers: int
    transport_url: str
    database_connection: str
    reason: str = ''


class CellStates(base.Controller):
    """Reads cells, as they are mapped and as they answer.

    :param down_s: seconds without a report after which a service is down
    """

    def __init__(
        self, authorizer: authorization.Authorizer, database: session.Database,
        cells: registry.CellRegistry, gatherer: gather.Gatherer, down_s: float,
    ) -> None:
        super().__init__(authorizer)
        self._database = database
        self._cells = cells
        self._gatherer = gatherer
        self._down_s = down_s

    @base.requires('cellsched:cells:index')
    def list(self, context: RequestContext) -> Sequence[CellRecord]:
        """Return all cells by name, cell0 and disabled ones among them.

        One that does not answer within the deadline is down.
        """
        self._cells.refresh()
        return self._read(self._cells.all())

    @base.requires('cellsched:cells:show')
    def get(self, context: RequestContext, name: str) -> CellRecord:
        """Return a cell, by its name or its uuid.

        :raises cellsched.exception.InvalidField: the name is invalid
        :raises cellsched.exception.CellMappingNotFound: it does not exist
        """
        validation.check_text('cell', 'name', name)
        self._cells.refresh()
        found = [each for each in self._cells.all()
                 if name in (each.uuid, each.get('name'))]
        if not found:
            raise exception.CellMappingNotFound(uuid=name)
        [record] = self._read(found)
        return record

    def _read(
        self, cells: Sequence[objects.CellMapping]
    ) -> Sequence[CellRecord]:
        with self._database.reader() as connection:
            hosts = host_mappings.by_cell(connection)
            servers = instance_mappings.count_by_cell(connection)
        gathered = self._gatherer.gather(admin(), cells, self._count_up)
        return sorted((
            CellRecord(
                each.uuid, server.name_of(each), each.disabled,
                UP if each.uuid in gathered.results else DOWN,
                len(hosts.get(each.uuid, ())),
                gathered.results.get(each.uuid), servers.get(each.id, 0),
                urls.mask(each.transport_url),
                urls.mask(each.database_connection),
                _reason(gathered.outcome(each.uuid)))
            for each in cells), key=lambda record: (record.name, record.uuid))

    def _count_up(self, cell_context: RequestContext) -> int:
        database = cell_context.cell.database
        with database.reader() as connection:
            return len(services.list_up(
                connection, services.COMPUTE, database.now()
                - datetime.timedelta(seconds=self._down_s)))


def _reason(outcome: Exception | str) -> str:
    if isinstance(outcome, exception.ConfigurationInvalid):
        # Only administrators list cells.
        return outcome.format_message()
    return (exception.user_text(outcome) if isinstance(outcome, Exception)
            else outcome)
