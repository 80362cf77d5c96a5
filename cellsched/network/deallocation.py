# SPDX-License-Identifier: Apache-2.0
"""Deallocation of the networks of ended servers."""

import dataclasses

from oslo_log import log

from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched.network import base
from cellsched import objects

LOG = log.getLogger(__name__)


@dataclasses.dataclass(eq=False)
class NetworkDeallocation:
    """Deallocates networks and records that in the server's row.

    The row says that the server may have networks from before the allocation
    until after the deallocation. So a crash in between leaves no networks that
    cannot be found.

    :param database: the cell's database
    """

    network: base.NetworkAPI
    database: session.Database
    clock: Clock

    def deallocate(
        self, context: RequestContext, instance: objects.Instance
    ) -> bool:
        """Deallocate the networks of a server; return whether that succeeded.

        After a failure the row keeps its mark, and a conductor of the cell
        retries when the server has ended.
        """
        try:
            self.network.deallocate_for_instance(context, instance)
        except Exception:
            LOG.exception('Could not deallocate networks of the server',
                          instance_uuid=instance.uuid, context=context)
            return False
        return True

    def free(
        self, context: RequestContext, instance: objects.Instance
    ) -> bool:
        """Deallocate the networks of an ended server and clear its mark.

        :returns: whether that succeeded
        """
        freed = self.deallocate(context, instance)
        if freed:
            with self.database.writer() as connection:
                instances.forget_networks(
                    connection, instance.uuid, self.clock.now())
        return freed
