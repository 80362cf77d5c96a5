# SPDX-License-Identifier: Apache-2.0
"""Taking networks back from servers that ended without it."""

from oslo_log import log

from cellsched import context
from cellsched.db.cell import networks
from cellsched.db import session
from cellsched.network import deallocation

LOG = log.getLogger(__name__)


class NetworkCleanup:
    """Finds servers of a cell that ended and still may have networks.

    A server that waits for a host is deleted by the API alone, which knows no
    networks of cells. Others were left behind by who died, or by a plug-in
    that failed. Several conductors may do this at the same time.

    :param database: the cell's database
    :param batch: servers to read at once
    """

    def __init__(
        self, database: session.Database,
        networks_: deallocation.NetworkDeallocation, batch: int = 100,
    ) -> None:
        self._database = database
        self._networks = networks_
        self._batch = batch

    def run(self) -> None:
        """Free what is found; what fails is found again the next time."""
        after = ''
        while True:
            with self._database.reader() as connection:
                found = networks.list_to_free(
                    connection, self._batch, after)
            if not found:
                return
            for instance in found:
                LOG.info('Deallocating networks of ended instance %s',
                         instance.uuid)
                self._networks.free(context.of_owner(instance), instance)
            after = found[-1].uuid
