# SPDX-License-Identifier: Apache-2.0
"""Records of services: the heartbeat of one, and the states of all."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import datetime

from cellsched.cells import gather
from cellsched.cells import registry
from cellsched import context
from cellsched.db.cell import services
from cellsched.db import session
from cellsched.observability import metrics
from cellsched.rpc import compute

#: The state of services whose cell does not answer.
UNKNOWN = 'unknown'

#: The label of cells without a name.
_UNNAMED = 'unnamed'

#: Numbers of services by binary and state.
_Counts = Mapping[tuple[str, str], int]


class Heartbeat:
    """The record of a scheduler or a conductor.

    As in Nova, the processes of one kind with the same host share a record,
    and services above the cells have it in cell0.

    :param binary: Nova's name of the service
    :param database: returns the database that has the record
    """

    def __init__(
        self, binary: str, topic: str, host: str,
        database: Callable[[], session.Database], new_uuid: Callable[[], str],
    ) -> None:
        self._binary = binary
        self._topic = topic
        self._host = host
        self._database = database
        self._new_uuid = new_uuid

    def report(self) -> None:
        """Record that the service works.

        :raises cellsched.exception.CellMappingNotFound: cell0 is not mapped
        """
        database = self._database()
        with database.writer() as connection:
            services.report(
                connection, self._new_uuid(), self._host, self._binary,
                self._topic, database.now(), compute.SERVICE_VERSION)

    def stop(self) -> None:
        """Record that the service has stopped in order.

        :raises cellsched.exception.CellMappingNotFound: cell0 is not mapped
        """
        database = self._database()
        with database.writer() as connection:
            services.stop(
                connection, self._host, self._binary, database.now())


class ServiceCounts:
    """Counts the services of all cells, for metrics.

    :param down_s: seconds without a report after which a service is down
    """

    def __init__(
        self, cells: registry.CellRegistry, gatherer: gather.Gatherer,
        down_s: float,
    ) -> None:
        self._cells = cells
        self._gatherer = gatherer
        self._down = datetime.timedelta(seconds=down_s)
        self._counts: dict[str, tuple[str, _Counts]] = {}

    def read(self) -> None:
        """Count the services of all cells, cell0 among them.

        The services of a cell that does not answer are those of its last
        answer, in an unknown state.
        """
        cells = self._cells.all()
        gathered = self._gatherer.gather(context.admin(), cells, self._count)
        self._counts = {cell.uuid: (cell.name or _UNNAMED, gathered.results[
            cell.uuid] if cell.uuid in gathered.results else _unknown(
                self._counts.get(cell.uuid, ('', {}))[1])) for cell in cells}

    def metrics(self) -> Iterator[metrics.Reading]:
        """Yield the numbers of services."""
        for cell, counts in self._counts.values():
            for (binary, state), number in counts.items():
                yield metrics.SERVICES, (binary, cell, state), number

    def _count(self, cell_context: context.RequestContext) -> _Counts:
        database = cell_context.cell.database
        with database.reader() as connection:
            return services.count(connection, database.now() - self._down)


def _unknown(counts: _Counts) -> _Counts:
    found: dict[tuple[str, str], int] = {}
    for (binary, _), number in counts.items():
        found[binary, UNKNOWN] = found.get((binary, UNKNOWN), 0) + number
    return found
