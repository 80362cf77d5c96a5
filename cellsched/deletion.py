# SPDX-License-Identifier: Apache-2.0
"""Deletion of servers, and its record.

A deletion changes two databases. From the first change to the last, the API
database has a record of it: an entry of the table ``leaders``. If the process
stops in between, a conductor finds the record and continues the deletion.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import datetime
import threading
from typing import Any
import weakref

from oslo_log import log

from cellsched import batching
from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import cell_mappings
from cellsched.db.api import instance_groups
from cellsched.db.api import instance_mappings
from cellsched.db.api import leases
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched import exception
from cellsched.migrations import LocalDeletion
from cellsched import objects
from cellsched.rpc.compute import ComputeAPIs

LOG = log.getLogger(__name__)

#: Seconds after which a deletion without an end counts as interrupted.
LEASE_S = 5.0


@dataclasses.dataclass(eq=False)
class _Call:
    """A call that deletes a server, and the result of its first step.

    :ivar mapping: the mapping of the server, if it has one
    :ivar request: its build request, which this call has deleted
    :ivar continues: whether this call does the other steps; if not, another
        call does them
    """

    uuid: str
    mapping: objects.InstanceMapping | None = None
    request: objects.BuildRequest | None = None
    continues: bool = False
    error: Exception | None = None


class Deletion:
    """Deletes servers, in any state.

    First, one transaction in the API database deletes the build request and
    marks the mapping, which then takes no cell. Then the row in the cell is
    deleted. If a conductor may be about to write the row, a deleted row is
    written first, which the conductor finds.

    Calls for the same server share the transaction, and one of them does the
    rest. A transaction may wait for a conductor that builds the server, and
    only one connection waits.

    :param down_s: seconds without a report after which a host is down
    :param reached: called with ``Delete`` when the API database has the
        deletion
    """

    def __init__(
        self, database: session.Database, targets: target.Targets,
        compute: Callable[[], ComputeAPIs],
        claims: claims_base.Claims, clock: Clock, down_s: float,
        reached: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._local = LocalDeletion(claims, down_s)
        self._database = database
        self._targets = targets
        self._compute = compute
        self._claims = claims
        self._clock = clock
        self._reached = reached
        self._lock = threading.Lock()
        #: Groups in use, by server.
        self._groups: weakref.WeakValueDictionary[
            str, batching.GroupCommit[_Call]] = weakref.WeakValueDictionary()

    def run(
        self, context: RequestContext, uuid: str, resumes: bool = False
    ) -> None:
        """Delete a server, or continue an interrupted deletion.

        Returns at once if a concurrent call does so.

        :param resumes: whether an earlier call may have deleted the request
        :raises cellsched.exception.ServiceBusy: another call waits for long
        """
        with self._lock:
            group = self._groups.get(uuid)
            if group is None:
                group = self._groups[uuid] = batching.GroupCommit(
                    self._begin, make_lock=self._clock.lock)
        call = _Call(uuid)
        group.do(call)
        if call.error is not None:
            raise call.error
        if not call.continues:
            return
        self._reached('Delete')
        mapping = call.mapping
        if mapping is not None and mapping.cell_mapping is not None:
            # The row may exist before the request is deleted, if a conductor
            # has died between the two.
            request = call.request
            self._delete_in_cell(
                context, mapping.cell_mapping, uuid,
                request.instance if request
                else _unknown(mapping) if resumes else None)
        elif call.request is not None or resumes:
            # A conductor that works on the build finds the request deleted,
            # and rolls back.
            self._claims.release([uuid])
        self._end(uuid)

    def _begin(self, calls: Sequence[_Call]) -> None:
        """Delete the request, mark the mapping, and record the deletion."""
        call = calls[0]
        try:
            self._database.write(self._mark_in_api, call)
        except Exception as exc:
            # Each call would wait as long.
            for each in calls:
                each.error = exception.copy_of(exc)
        else:
            call.continues = True

    def _mark_in_api(self, connection: Any, call: _Call) -> None:
        uuid = call.uuid
        request = build_requests.get(connection, uuid, lock=True)
        instance_mappings.mark_deleted(connection, [uuid], self._clock.now())
        if request is None:
            # A retry may have created it before the mapping was marked.
            request = build_requests.get(connection, uuid, lock=True)
        if request is not None:
            if request.buried:
                self._remove_from_cell0(connection, uuid)
            build_requests.delete(connection, [uuid])
        instance_groups.remove_members(connection, [uuid])
        call.request = request
        call.mapping = instance_mappings.get_many(connection, [uuid]).get(uuid)
        if call.mapping is not None:
            leases.record_deletion(
                connection, uuid, self._database.timestamp() + LEASE_S)

    def _end(self, uuid: str) -> None:
        try:
            with self._database.each_alone() as connection:
                leases.end_deletion(connection, uuid)
        except (*exception.DATABASE_UNAVAILABLE,
                exception.TransactionLost) as exc:
            LOG.warning('The record of the deletion stays, and a conductor '
                        'repeats the deletion: %s', exception.describe(exc),
                        instance_uuid=uuid)

    def _remove_from_cell0(self, connection: Any, uuid: str) -> None:
        """Remove the row in cell0 of a server that is being retried.

        The caller holds the lock of the request, so no conductor takes it.
        """
        cell0 = cell_mappings.find(connection, objects.CELL0_UUID)
        if cell0 is not None:
            with self._targets.database(cell0).writer() as in_cell0:
                instances.purge(in_cell0, instances.lock(in_cell0, [uuid]))

    def _delete_in_cell(
        self, context: RequestContext, cell: objects.CellMapping,
        uuid: str, requested: objects.Instance | None,
    ) -> None:
        cell_context = self._targets.target_cell(context, cell)
        if requested is not None:
            with cell_context.cell.database.writer() as connection:
                _forestall(connection, requested, self._clock.now())
        instance = self._mark(cell_context, uuid)
        if instance is None:
            self._claims.release([uuid])
            return
        try:
            self._compute().get(
                cell_context.cell.transport).terminate_instance(
                cell_context, instance.host, instance)
        except Exception as exc:
            # The row is marked, and agents look for marked rows.
            LOG.warning('Request %s: could not cast to host %s of cell %s to '
                        'delete the server; the host deletes it later: %s',
                        context.request_id, instance.host, cell.identity,
                        exception.describe(exc), instance_uuid=uuid)
        try:
            self._local.delete(cell_context.cell.database, uuid)
        except Exception as exc:
            # The deletion is accepted, and a conductor completes it.
            LOG.warning('Request %s: could not complete the deletion of the '
                        'server in cell %s; a conductor completes it later: '
                        '%s', context.request_id, cell.identity,
                        exception.user_text(exc), instance_uuid=uuid)

    def _mark(
        self, cell_context: RequestContext, uuid: str
    ) -> objects.Instance | None:
        """Delete a row without a host; else mark the row, and return it."""
        while True:
            now = self._clock.now()
            with cell_context.cell.database.writer() as connection:
                if instances.delete(connection, uuid, now, host=None):
                    instance_history.create_all(
                        connection, {uuid: cell_context}, 'delete', now,
                        finished=True)
                    return None
                instance = instances.get(connection, uuid)
                if instance is None:
                    return None
                # The row may have changed its host since it was read.
                if instance.host and instances.transit(
                        connection, uuid, 'mark_deleting', now,
                        host=instance.host):
                    if instance.task_state != 'deleting':
                        instance_history.create_all(
                            connection, {uuid: cell_context}, 'delete', now)
                    return instance


def _forestall(
    connection: Any, instance: objects.Instance, now: datetime.datetime
) -> None:
    """Write a deleted row before a conductor writes the row."""
    if instances.create(connection, [instance], now):
        instances.delete(connection, instance.uuid, now)


def _unknown(mapping: objects.InstanceMapping) -> objects.Instance:
    """Return a server of which only the mapping is known."""
    return objects.Instance(
        uuid=mapping.instance_uuid, project_id=mapping.project_id,
        user_id=mapping.user_id, vm_state='building', task_state='scheduling')
