# SPDX-License-Identifier: Apache-2.0
"""Versions of the compute services of all cells."""

from oslo_log import log

from cellsched.cells import gather
from cellsched.cells import registry
from cellsched import context
from cellsched.db.cell import services
from cellsched.rpc import compute

LOG = log.getLogger(__name__)


def over_cells(
    cells: registry.CellRegistry, gatherer: gather.Gatherer
) -> compute.Lowest:
    """Query all cells in parallel; log the cells that do not answer.

    Disabled cells are included, because their servers still need messages.
    """
    asked = {cell.uuid: cell for cell in cells.real()}
    gathered = gatherer.gather(context.admin(), asked.values(), _version_there)
    failed = {**gathered.failures,
              **dict.fromkeys(gathered.silent, 'timeout')}
    for uuid, reason in failed.items():
        LOG.warning('Could not read the versions of compute services of cell '
                    '%s; it is left out: %s', asked[uuid].identity, reason)
    return compute.Lowest(
        min(filter(None, gathered.results.values()), default=None),
        frozenset(failed))


def _version_there(cell_context: context.RequestContext) -> int | None:
    assert cell_context.cell is not None
    with cell_context.cell.database.reader() as connection:
        return services.lowest_version(connection, services.COMPUTE)
