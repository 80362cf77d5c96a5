# SPDX-License-Identifier: Apache-2.0
"""The cell of what could not be built."""

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
from cellsched.db.api import request_rows
from cellsched.db.cell import instance_children
from cellsched.db.cell import instance_history
from cellsched.db.cell.instances import create
from cellsched.db.cell.instances import delete
from cellsched.db.cell.instances import lock
from cellsched.db.cell.instances import purge
from cellsched.db import session
from cellsched import exception
from cellsched.notify import notifiers
from cellsched import objects

LOG = log.getLogger(__name__)

#: What was being done when a build failed; Nova's name.
EVENT = 'conductor_schedule_and_build_instances'


class Cell0:
    """Buries builds, with the reason, where their users find them.

    :param notifier: tells of each; without one nobody is told
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
    ) -> set[str]:
        """Bury builds; return the uuids of those that lie here now.

        What has a cell already, or was deleted by its user, is left alone.
        May be done again at any point: the build request goes last. As long
        as it cannot be done the requests stay, and say why they failed. It
        is told before they go: twice after a crash, but not never.

        What was asked for together is to be buried together: one that is
        left, and tried again alone, could be built alone.

        :param reason: what they failed of
        :param owner: who leases the requests; one that is leased by another
            since is left to it
        :param specs: what was asked for, by uuid, to be told
        :param reasons: by uuid, of those that failed of something else
        :raises cellsched.exception.CellMappingNotFound: cell0 is not mapped
        """
        all_ = {instance.uuid: (reasons or {}).get(instance.uuid, reason)
                for instance in instances}
        try:
            return self._bury(context, instances, all_, owner, specs or {})
        except Exception as exc:
            for each, uuids in _by_reason(all_, all_):
                self.explain(
                    uuids, exc, owner, instance_history.message_of(each))
            raise

    def database(self) -> session.Database:
        """Return the database of cell0.

        It is to be asked for before a transaction is begun: who looks cells
        up reads the API database now and then, and others wait for that.

        :raises cellsched.exception.CellMappingNotFound: cell0 is not mapped
        """
        return self._targets.database(self._cells.cell0())

    def remove(self, database: session.Database, uuids: Iterable[str]) -> None:
        """Remove what lies here of servers that are built anew.

        May be done again, and must be done before they have a cell.

        :param database: that of cell0
        """
        with database.writer() as connection:
            purge(connection, lock(connection, uuids))

    def _bury(
        self, context: RequestContext,
        instances: Sequence[objects.Instance],
        reasons: Mapping[str, Exception], owner: str | None,
        specs: Mapping[str, objects.RequestSpec],
    ) -> set[str]:
        cell0 = self._cells.cell0()
        uuids = [instance.uuid for instance in instances]
        with self._database.writer() as connection:
            if owner is not None:
                uuids = sorted(build_requests.held(
                    connection, dict.fromkeys(uuids, owner)))
            decided = instance_mappings.decide(
                connection, uuids, cell0.id, self._clock.now())
            # It may have been changed since the build was begun.
            read = build_requests.read(connection, decided)
        if not decided:
            return set()
        burial = _Burial(context, reasons, owner, {
            instance.uuid: instance for instance in instances
            if instance.uuid in decided})
        burial.take(read)
        database = self._targets.database(cell0)
        with database.writer() as connection:
            new = self._write(connection, burial, decided)
        there = burial.revisions.keys() - new
        if there:
            # One whose request is gone lies here for good.
            new += self._replace(database, burial, there)
        for uuid in new:
            self._notifier.failed(
                context, 'build_instances', burial.requests[uuid].instance,
                specs.get(uuid), reasons[uuid])
        return self._release(database, cell0, burial)

    def _write(
        self, connection: Any, burial: '_Burial', uuids: Collection[str]
    ) -> list[str]:
        """Write the records; return which were not there."""
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
        for uuid in new:
            instance_history.record(
                connection, uuid, burial.reasons[uuid], self._host, now)
        for reason, those in _by_reason(burial.reasons, new):
            instance_history.create_failed(
                connection, those, 'create', EVENT, burial.context, now,
                reason, self._host)
        return new

    def _replace(
        self, database: session.Database, burial: '_Burial',
        uuids: Iterable[str],
    ) -> list[str]:
        """Replace the records of earlier tries; return which were.

        That is done while nobody else can take the requests up: another
        conductor may have buried them since, and their users changed what
        lies here.
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
        """Delete the requests; return what lies here now.

        What their users changed since is brought here first, and what is not
        to lie here is removed, while nobody else can do anything with them:
        all requests go or none, for those of a batch share their fate.
        """
        with self._database.writer() as connection:
            held = build_requests.held(
                connection, dict.fromkeys(burial.requests, burial.owner))
            lying = instance_mappings.confirm(
                connection, burial.requests, cell0.id)
            mine = held.keys() & lying
            changed = [uuid for uuid in sorted(mine)
                       if held[uuid] != burial.revisions.get(uuid, 0)]
            burial.take(build_requests.read(connection, changed))
            lost = _lost(connection, burial.requests.keys() - lying, cell0)
            if changed or lost:
                with database.writer() as in_cell0:
                    for uuid in changed:
                        instance_children.correct(
                            in_cell0, burial.requests[uuid],
                            self._clock.now())
                    self._take_back(in_cell0, lost)
            build_requests.drop(connection, mine)
        return lying

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
        """Let requests say why they are there, as cell0 cannot be written.

        :param failure: what they failed of before
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
                          'failed', list(uuids))


def _by_reason(
    reasons: Mapping[str, Exception], uuids: Iterable[str]
) -> list[tuple[Exception, list[str]]]:
    """Return builds by what they failed of."""
    groups: dict[int, tuple[Exception, list[str]]] = {}
    for uuid in uuids:
        reason = reasons[uuid]
        groups.setdefault(id(reason), (reason, []))[1].append(uuid)
    return [*groups.values()]


def _lost(
    connection: Any, uuids: Iterable[str], cell0: objects.CellMapping
) -> list[objects.InstanceMapping]:
    """Return those that are not to lie here after all, and hold them so.

    The user was faster and deleted them, or another conductor took them up,
    when this one had been thought dead, and gave them another cell.
    """
    uuids = sorted(uuids)
    if not uuids:
        return []
    instance_mappings.hold(connection, uuids)
    return [
        mapping for mapping in instance_mappings.get_many(
            connection, uuids).values()
        if mapping.queued_for_delete or mapping.cell_mapping is None
        or mapping.cell_mapping.id != cell0.id]


@dataclasses.dataclass
class _Burial:
    """Builds that are buried together.

    :param reasons: what each failed of, by uuid
    :param owner: who leases their requests; None for anybody
    :param instances: as who buries them knows them
    """

    context: RequestContext
    reasons: Mapping[str, Exception]
    owner: str | None
    instances: Mapping[str, objects.Instance]
    #: What is asked for, and in which revision where there is a request.
    requests: dict[str, objects.BuildRequest] = dataclasses.field(init=False)
    revisions: dict[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.requests = {
            uuid: objects.BuildRequest(instance_uuid=uuid, instance=instance)
            for uuid, instance in self.instances.items()}

    def take(self, entries: Iterable[request_rows.LeasedRequest]) -> None:
        """Have requests as they were just read."""
        for entry in entries:
            request = entry.request
            uuid = request.instance_uuid
            if entry.broken:
                # Who buries it may know more.
                request.instance = self.instances[uuid]
            self.requests[uuid] = request
            self.revisions[uuid] = entry.revision
