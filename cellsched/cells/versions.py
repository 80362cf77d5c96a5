# SPDX-License-Identifier: Apache-2.0
"""The versions of the compute services of all cells."""

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
    """Ask all cells at once; those that do not answer are logged.

    Disabled ones are asked too: their servers are still looked after.
    """
    asked = {cell.uuid: cell for cell in cells.real()}
    gathered = gatherer.gather(
        context.admin(), asked.values(), _version_there)
    failed = {**gathered.failures,
              **dict.fromkeys(gathered.silent, 'it does not answer')}
    for uuid, reason in failed.items():
        LOG.warning('The versions of the compute services of cell %s are not '
                    'known, and it is left out: %s',
                    asked[uuid].identity, reason)
    return compute.Lowest(
        min(filter(None, gathered.results.values()), default=None),
        frozenset(failed))


def _version_there(aimed: context.RequestContext) -> int | None:
    assert aimed.cell is not None
    with aimed.cell.database.reader() as connection:
        return services.lowest_version(connection, services.COMPUTE)
