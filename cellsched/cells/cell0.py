# SPDX-License-Identifier: Apache-2.0
"""The cell of what could not be built."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

from oslo_log import log

from cellsched.cells import registry
from cellsched.cells import target
from cellsched import clock as clock_
from cellsched import context as context_
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.cell import belongings
from cellsched.db.cell import instance_actions
from cellsched.db.cell import instance_faults
from cellsched.db.cell import instances as instances_
from cellsched.db import session
from cellsched import exception
from cellsched.notify import task_notifier
from cellsched import objects

LOG = log.getLogger(__name__)

#: What was being done when a build failed; Nova's name.
EVENT = 'conductor_schedule_and_build_instances'

#: Times to correct a record that its user changes while it is written.
_TRIES_MAX = 5


class Cell0:
    """Buries builds, with the reason, where their users find them.

    :param notifier: tells of each; without one nobody is told
    """

    def __init__(
        self, database: session.Database, cells: registry.CellRegistry,
        targets: target.Targets, clock: clock_.Clock, host: str,
        notifier: task_notifier.TaskNotifier | None = None,
    ) -> None:
        self._database = database
        self._cells = cells
        self._targets = targets
        self._clock = clock
        self._host = host
        self._notifier = notifier or task_notifier.TaskNotifier()

    def bury(
        self, context: context_.RequestContext,
        instances: Sequence[objects.Instance], reason: Exception,
        owner: str | None = None,
        specs: Mapping[str, objects.RequestSpec] | None = None,
    ) -> set[str]:
        """Bury builds; return the uuids of those that lie here now.

        What has a cell already, or was deleted by its user, is left alone.
        May be done again at any point: the build request goes last. As long
        as it cannot be done the requests stay, and say why they failed. It
        is told before they go: twice after a crash, but not never.

        :param owner: who leases the requests; one that is leased by another
            since is left to it
        :param specs: what was asked for, by uuid, to be told
        :raises cellsched.exception.CellMappingNotFound: cell0 is not mapped
        """
        try:
            return self._bury(context, instances, reason, owner, specs or {})
        except Exception as exc:
            self.explain([instance.uuid for instance in instances], exc,
                         owner, instance_faults.message_of(reason))
            raise

    def database(self) -> session.Database:
        """Return the database of cell0.

        It is to be asked for before a transaction is begun: who looks cells
        up reads the API database now and then, and others wait for that.

        :raises cellsched.exception.CellMappingNotFound: cell0 is not mapped
        """
        return self._targets.database(self._cells.cell0())

    def exhume(self, database: session.Database, uuids: Iterable[str]) -> None:
        """Remove what lies here of servers that are built anew.

        May be done again, and must be done before they have a cell.

        :param database: that of cell0
        """
        with database.writer() as connection:
            instances_.purge(connection, instances_.lock(connection, uuids))

    def _bury(
        self, context: context_.RequestContext,
        instances: Sequence[objects.Instance], reason: Exception,
        owner: str | None, specs: Mapping[str, objects.RequestSpec],
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
        requests = {entry.request.instance_uuid: entry.request
                    for entry in read}
        revisions = {entry.request.instance_uuid: entry.revision
                     for entry in read}
        broken = {entry.request.instance_uuid for entry in read
                  if entry.broken}
        for instance in instances:
            if instance.uuid in decided:
                requests.setdefault(instance.uuid, objects.BuildRequest(
                    instance_uuid=instance.uuid, instance=instance))
            if instance.uuid in broken:
                # Who buries it may know more.
                requests[instance.uuid].instance = instance
        database = self._targets.database(cell0)
        new = self._write(database, context, requests, revisions, reason)
        for uuid in new:
            self._notifier.failed(
                context, 'build_instances', requests[uuid].instance,
                specs.get(uuid), reason)
        return self._release(database, cell0, decided, revisions, owner)

    def _write(
        self, database: session.Database, context: context_.RequestContext,
        requests: Mapping[str, objects.BuildRequest],
        revisions: Mapping[str, int], reason: Exception,
    ) -> list[str]:
        """Write the records; those of an earlier try are replaced."""
        now = self._clock.now()
        for request in requests.values():
            instance = request.instance
            instance.vm_state, instance.task_state = 'error', None
            instance.host = instance.node = None
        with database.writer() as connection:
            # One whose request is gone lies here for good.
            there = instances_.lock(connection, revisions)
            if there:
                instances_.purge(connection, there)
            new = instances_.create(
                connection, [request.instance for request
                             in requests.values()], now)
            belongings.add(connection, [requests[uuid] for uuid in new], now)
            for uuid in new:
                instance_faults.record(
                    connection, uuid, reason, self._host, now)
            instance_actions.create_failed(
                connection, new, 'create', EVENT, context, now, reason,
                self._host)
        return new

    def _release(
        self, database: session.Database, cell0: objects.CellMapping,
        decided: set[str], revisions: dict[str, int], owner: str | None,
    ) -> set[str]:
        """Delete the requests; return what lies here now."""
        for _ in range(_TRIES_MAX):
            with self._database.writer() as connection:
                lying = instance_mappings.confirm(
                    connection, decided, cell0.id)
                left = lying - build_requests.delete(
                    connection, lying, owner, revisions)
                if owner is not None:
                    left = {*build_requests.held(
                        connection, dict.fromkeys(left, owner))}
                changed = build_requests.read(connection, left)
                lost = instance_mappings.get_many(connection, decided - lying)
            if lost:
                self._take_back(database, lost.values())
            if not changed:
                break
            with database.writer() as connection:
                for entry in changed:
                    belongings.correct(
                        connection, entry.request, self._clock.now())
            revisions.update({entry.request.instance_uuid: entry.revision
                              for entry in changed})
        return lying

    def _take_back(
        self, database: session.Database,
        mappings: Iterable[objects.InstanceMapping],
    ) -> None:
        """Remove those that are not to lie here after all.

        The user was faster and deleted them, or another conductor took them
        up, when this one had been thought dead, and gave them another cell.
        """
        with database.writer() as connection:
            for mapping in mappings:
                uuid = mapping.instance_uuid
                if mapping.queued_for_delete:
                    instances_.delete(connection, uuid, self._clock.now())
                else:
                    instances_.purge(connection, [uuid])

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
