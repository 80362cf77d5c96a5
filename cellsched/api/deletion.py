# SPDX-License-Identifier: Apache-2.0
"""Deleting servers, whatever is being done with them."""

from collections.abc import Callable
import datetime
from typing import Any
from typing import TYPE_CHECKING

from oslo_log import log

from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import cell_mappings
from cellsched.db.api import instance_groups
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched import objects

if TYPE_CHECKING:
    from cellsched.rpc import compute as compute_rpc

LOG = log.getLogger(__name__)


class Deletion:
    """Deletes servers: from now on nobody brings one into a cell.

    That is said in the API database first, in one transaction: the build
    request is gone, and the mapping takes no cell. Then the row goes, where
    there is one, and where one may be on its way a deleted one is put, which
    whoever comes to write it finds.
    """

    def __init__(
        self, database: session.Database, targets: target.Targets,
        compute: 'Callable[[], compute_rpc.ComputeAPIs]',
        claims: claims_base.ClaimStore,
        clock: Clock, reached: Callable[[str], None],
    ) -> None:
        self._database = database
        self._targets = targets
        self._compute = compute
        self._claims = claims
        self._clock = clock
        self._reached = reached

    def run(self, context: RequestContext, uuid: str) -> None:
        """Delete a server, or go on with it where it was broken off."""
        with self._database.writer() as connection:
            request = build_requests.get(connection, uuid, lock=True)
            instance_mappings.mark_deleted(
                connection, [uuid], self._clock.now())
            if request is None:
                # It may have been made anew since; now it cannot be any more.
                request = build_requests.get(connection, uuid, lock=True)
            if request is not None:
                if request.buried:
                    self._exhume(connection, uuid)
                build_requests.delete(connection, [uuid])
            instance_groups.remove_members(connection, [uuid])
            mapping = instance_mappings.get_many(connection, [uuid]).get(uuid)
        self._reached('Delete')
        decided = None if mapping is None else mapping.cell_mapping
        if decided is not None:
            # It may be there before its request is gone, and left there by a
            # conductor that died.
            self._delete_in_cell(context, decided, uuid, request)
        elif request is not None:
            # A conductor that is at it finds the request gone, and undoes
            # what it did.
            self._claims.release([uuid])

    def _exhume(self, connection: Any, uuid: str) -> None:
        """Remove what lies in cell0 of a server that is tried again.

        Nobody can take the request up meanwhile, and if that cannot be done
        the request stays.
        """
        cell0 = cell_mappings.find(connection, objects.CELL0_UUID)
        if cell0 is not None:
            with self._targets.database(cell0).writer() as in_cell0:
                instances.purge(in_cell0, instances.lock(in_cell0, [uuid]))

    def _delete_in_cell(
        self, context: RequestContext, cell: objects.CellMapping,
        uuid: str, request: objects.BuildRequest | None,
    ) -> None:
        aimed = self._targets.aim(context, cell)
        assert aimed.cell is not None
        if request is not None:
            with aimed.cell.database.writer() as connection:
                _forestall(connection, request.instance, self._clock.now())
        instance = self._mark(aimed.cell.database, uuid)
        if instance is None:
            self._claims.release([uuid])
            return
        try:
            self._compute().get(aimed.cell.transport).terminate_instance(
                aimed, instance.host, instance)
        except Exception as exc:
            # The row says it, and agents look for such rows.
            from cellsched.rpc import delivery

            LOG.warning('Request %s: could not cast to host %s of cell %s to '
                        'delete instance %s; it will find it: %s',
                        context.request_id, instance.host, cell.identity,
                        uuid, delivery.describe(exc))

    def _mark(
        self, database: session.Database, uuid: str
    ) -> objects.Instance | None:
        """Delete a row that is on no host; else mark it, and return it."""
        while True:
            now = self._clock.now()
            with database.writer() as connection:
                if instances.delete(connection, uuid, now, host=None):
                    return None
                instance = instances.get(connection, uuid)
                # It may have left its host, or come to one, since the last
                # statement.
                if instance is None or instance.host and instances.transit(
                        connection, uuid, 'mark_deleting', now,
                        host=instance.host):
                    return instance


def _forestall(
    connection: Any, instance: objects.Instance, now: datetime.datetime
) -> None:
    """Put a deleted row where a conductor may be about to write one."""
    if instances.create(connection, [instance], now):
        instances.delete(connection, instance.uuid, now)
