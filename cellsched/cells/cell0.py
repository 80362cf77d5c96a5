# SPDX-License-Identifier: Apache-2.0
"""Cell0: the records of builds that failed."""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from oslo_log import log

from cellsched.cells import registry
from cellsched.cells import target
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instance_children
from cellsched.db.cell import instance_history
from cellsched.db.cell.instances import correct
from cellsched.db.cell.instances import create
from cellsched.db.cell.instances import delete
from cellsched.db.cell.instances import lock
from cellsched.db.cell.instances import purge
from cellsched.db import session
from cellsched import exception
from cellsched.notify import notifiers
from cellsched import objects

LOG = log.getLogger(__name__)

#: Event of the instance action of a failed build; Nova's name.
EVENT = 'conductor_schedule_and_build_instances'


class Cell0:
    """Records failed builds with the reason, visible to their users.

    :param notifier: sends a notification for each; none by default
    """

    def __init__(
        self, database: session.Database, cells: registry.CellRegistry,
        targets: target.Targets, clock: Clock, host: str,
        notifier: notifiers.TaskNotifier | None = None,
    ) -> None:
        self._database = database
        self._cells = cells
        self._targets = targets
        self._clock = clock
        self._host = host
        self._notifier = notifier or notifiers.TaskNotifier()

    def bury(
        self, context: RequestContext,
        instances: Sequence[objects.Instance], reason: Exception,
        owner: str | None = None,
        specs: Mapping[str, objects.RequestSpec] | None = None,
        reasons: Mapping[str, Exception] | None = None,
        known: Iterable[build_requests.LeasedRequest] = (),
    ) -> set[str]:
        """Record failed builds; return the uuids that cell0 has now.

        A build with a cell, or deleted by its user, is skipped. The call is
        idempotent: the build request is deleted last. If cell0 cannot be
        written, the requests stay and contain the reason. The notification is
        sent before the requests are deleted, so a crash may repeat it, but
        never loses it.

        Pass all builds of a batch in one call: a build that remained would be
        retried alone, and could be built alone.

        :param reason: reason of the failure
        :param owner: owner of the leases; requests that another owner leases
            are skipped
        :param specs: request specs by uuid, for notifications
        :param reasons: reasons by uuid, where they differ from ``reason``
        :param known: requests that the owner of the leases has read; those
            that have not changed since are not read again
        :raises cellsched.exception.CellMappingNotFound: cell0 is not mapped
        """
        all_ = {instance.uuid: (reasons or {}).get(instance.uuid, reason)
                for instance in instances}
        try:
            return self._bury(
                context, instances, all_, owner, specs or {}, known)
        except Exception as exc:
            for each, uuids in _by_reason(all_, all_):
                self.explain(
                    uuids, exc, owner, instance_history.message_of(each))
            raise

    def database(self) -> session.Database:
        """Return the database of cell0.

        Call it before a transaction on the API database begins, because it may
        read the cell mappings from there.

        :raises cellsched.exception.CellMappingNotFound: cell0 is not mapped
        """
        return self._targets.database(self._cells.cell0())

    def remove(self, database: session.Database, uuids: Iterable[str]) -> None:
        """Remove the records of servers that are retried.

        Idempotent; must be called before the servers can have another cell.

        :param database: the database of cell0
        """
        with database.writer() as connection:
            purge(connection, lock(connection, uuids))

    def _bury(
        self, context: RequestContext,
        instances: Sequence[objects.Instance],
        reasons: Mapping[str, Exception], owner: str | None,
        specs: Mapping[str, objects.RequestSpec],
        known: Iterable[build_requests.LeasedRequest],
    ) -> set[str]:
        cell0 = self._cells.cell0()
        uuids = [instance.uuid for instance in instances]
        current: dict[str, build_requests.LeasedRequest] = {}
        with self._database.writer() as connection:
            if owner is not None:
                held = build_requests.held(
                    connection, dict.fromkeys(uuids, owner))
                uuids = sorted(held)
                current = {
                    entry.request.instance_uuid: entry for entry in known
                    if entry.revision == held.get(entry.request.instance_uuid)}
            decided = instance_mappings.decide(
                connection, uuids, cell0.id, self._clock.now())
            # The user may have changed the others meanwhile.
            read = build_requests.read(
                connection, [uuid for uuid in decided if uuid not in current])
        if not decided:
            return set()
        burial = _Burial(context, reasons, owner, {
            instance.uuid: instance for instance in instances
            if instance.uuid in decided})
        burial.take([*read, *(entry for uuid, entry in current.items()
                              if uuid in decided)])
        database = self._targets.database(cell0)
        with database.writer() as connection:
            new = self._write(connection, burial, decided)
        existing = burial.revisions.keys() - new
        if existing:
            # A record without a request is final; the others are replaced.
            new += self._replace(database, burial, existing)
        for reason, those in _by_reason(reasons, new):
            text = exception.describe(reason)
            for uuid in those:
                LOG.info('Recorded in cell0: %s', text, instance_uuid=uuid,
                         context=context)
                self._notifier.failed(
                    context, 'build_instances',
                    burial.requests[uuid].instance, specs.get(uuid), reason)
        return self._release(database, cell0, burial)

    def _write(
        self, connection: Any, burial: '_Burial', uuids: Collection[str]
    ) -> list[str]:
        """Write the records; return the uuids of new ones."""
        now = self._clock.now()
        requests = [request for uuid, request in burial.requests.items()
                    if uuid in uuids]
        for request in requests:
            instance = request.instance
            instance.vm_state, instance.task_state = 'error', None
            instance.host = instance.node = None
        new = create(
            connection, [request.instance for request in requests], now)
        instance_children.add(
            connection, [burial.requests[uuid] for uuid in new], now)
        for reason, those in _by_reason(burial.reasons, new):
            instance_history.record_all(
                connection, those, reason, self._host, now)
            instance_history.create_failed(
                connection, those, EVENT, burial.context, now, reason,
                self._host)
        return new

    def _replace(
        self, database: session.Database, burial: '_Burial',
        uuids: Iterable[str],
    ) -> list[str]:
        """Replace the records of earlier attempts; return their uuids.

        The requests are locked meanwhile. Otherwise another conductor could
        write the records, and users change them, before they are replaced.
        """
        with self._database.writer() as connection:
            held = build_requests.held(
                connection, dict.fromkeys(uuids, burial.owner))
            if not held:
                return []
            burial.take(build_requests.read(connection, held))
            with database.writer() as in_cell0:
                purge(in_cell0, lock(in_cell0, held))
                return self._write(in_cell0, burial, held)

    def _release(
        self, database: session.Database, cell0: objects.CellMapping,
        burial: '_Burial',
    ) -> set[str]:
        """Delete the requests; return the uuids that cell0 has now.

        Changes by users are written to the records first, and records that do
        not belong to cell0 are removed. The requests are locked, and all of
        them are deleted or none, because a batch succeeds or fails as one.
        """
        with self._database.writer() as connection:
            held = build_requests.held(
                connection, dict.fromkeys(burial.requests, burial.owner))
            confirmed = instance_mappings.confirm(
                connection, burial.requests, cell0.id)
            owned = held.keys() & confirmed
            changed = [uuid for uuid in sorted(owned)
                       if held[uuid] != burial.revisions.get(uuid, 0)]
            burial.take(build_requests.read(connection, changed))
            # The user deleted these servers, or another conductor resumed
            # the builds after the lease expired and chose another cell.
            lost = []
            if rest := sorted(burial.requests.keys() - confirmed):
                instance_mappings.hold(connection, rest)
                lost = [
                    mapping for mapping in instance_mappings.get_many(
                        connection, rest).values()
                    if mapping.queued_for_delete
                    or mapping.cell_mapping is None
                    or mapping.cell_mapping.id != cell0.id]
            if changed or lost:
                with database.writer() as in_cell0:
                    for uuid in changed:
                        correct(
                            in_cell0, burial.requests[uuid],
                            self._clock.now())
                    self._take_back(in_cell0, lost)
            build_requests.drop(connection, owned)
        return confirmed

    def _take_back(
        self, connection: Any, mappings: Iterable[objects.InstanceMapping]
    ) -> None:
        for mapping in mappings:
            uuid = mapping.instance_uuid
            if mapping.queued_for_delete:
                delete(connection, uuid, self._clock.now())
            else:
                purge(connection, [uuid])

    def explain(
        self, uuids: Iterable[str], obstacle: Exception,
        owner: str | None = None, failure: str = '',
    ) -> None:
        """Record in the requests that cell0 cannot be written.

        :param failure: reason of the build's failure
        """
        because = ('is not mapped' if isinstance(
            obstacle, exception.CellMappingNotFound)
            else 'cannot be written now')
        failure = f'{failure} It waits for cell0, which {because}.'.lstrip()
        try:
            with self._database.writer() as connection:
                build_requests.explain(connection, uuids, failure, owner)
        except Exception:
            LOG.exception('Could not record why the builds of instances %s '
                          'failed', exception.name_some(uuids))


def _by_reason(
    reasons: Mapping[str, Exception], uuids: Iterable[str]
) -> list[tuple[Exception, list[str]]]:
    """Group uuids by the reason."""
    groups: dict[int, tuple[Exception, list[str]]] = {}
    for uuid in uuids:
        reason = reasons[uuid]
        groups.setdefault(id(reason), (reason, []))[1].append(uuid)
    return [*groups.values()]


@dataclasses.dataclass
class _Burial:
    """Builds that are recorded together.

    :param reasons: reason of each, by uuid
    :param owner: owner of the leases; None for any owner
    :param instances: instances by uuid, as the caller knows them
    """

    context: RequestContext
    reasons: Mapping[str, Exception]
    owner: str | None
    instances: Mapping[str, objects.Instance]
    #: Requests, and their revisions where they exist in the database.
    requests: dict[str, objects.BuildRequest] = dataclasses.field(init=False)
    revisions: dict[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.requests = {
            uuid: objects.BuildRequest(instance_uuid=uuid, instance=instance)
            for uuid, instance in self.instances.items()}

    def take(self, entries: Iterable[build_requests.LeasedRequest]) -> None:
        """Use the requests as they were just read."""
        for entry in entries:
            request = entry.request
            uuid = request.instance_uuid
            if entry.broken:
                # An unreadable request: use the caller's instance.
                request.instance = self.instances[uuid]
            self.requests[uuid] = request
            self.revisions[uuid] = entry.revision
