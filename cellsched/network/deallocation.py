# SPDX-License-Identifier: Apache-2.0
"""Taking networks back from servers that ended."""

from oslo_log import log

from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.cell import networks
from cellsched.db import session
from cellsched.network import base
from cellsched import objects

LOG = log.getLogger(__name__)


class NetworkDeallocation:
    """Takes networks back, and says so in the server's row.

    A row says that its server may have networks from before they are given
    until after they are taken back. So nobody who dies in between leaves some
    behind that could not be found.

    :param database: the cell's database
    """

    def __init__(
        self, network: base.NetworkAPI, database: session.Database,
        clock: Clock,
    ) -> None:
        self._network = network
        self._database = database
        self._clock = clock

    def deallocate(
        self, context: RequestContext, instance: objects.Instance
    ) -> bool:
        """Take back what a server has; return whether that succeeded.

        Where it did not, the row goes on saying so, and a conductor of the
        cell tries again when the server has ended.
        """
        try:
            self._network.deallocate_for_instance(context, instance)
        except Exception:
            LOG.exception('Could not deallocate networks of instance %s',
                          instance.uuid)
            return False
        return True

    def free(
        self, context: RequestContext, instance: objects.Instance
    ) -> bool:
        """Take back what a server that ended has; return whether it went."""
        freed = self.deallocate(context, instance)
        if freed:
            with self._database.writer() as connection:
                networks.forget(connection, instance.uuid, self._clock.now())
        return freed
