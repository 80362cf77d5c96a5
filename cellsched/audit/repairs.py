# SPDX-License-Identifier: Apache-2.0
"""Repairs of findings.

Each repair checks its finding again and does nothing if the records have
changed. It locks the rows, or has a condition in its statement. No row is
locked while the claim store works: a repair of claims checks again after it
has transferred them to another consumer, so that no capacity is free before.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
from typing import Any
from typing import NamedTuple

from oslo_utils import uuidutils

from cellsched.audit import checks
from cellsched.audit.findings import Action
from cellsched.audit.findings import Finding
from cellsched.audit.state import add_up
from cellsched.audit.state import ServerState
from cellsched.audit.state import StateReader
from cellsched.cells.cell0 import Cell0
from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched import context
from cellsched.db.api import audit_queries as api
from cellsched.db.api import build_requests
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_groups
from cellsched.db.api import instance_mappings
from cellsched.db.cell import audit_queries
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import server_moves
from cellsched.db import session
from cellsched import exception
from cellsched.hardware import units
from cellsched import migrations
from cellsched import objects

#: Seconds for which a request is leased to bury it.
_LEASE_S = 60.0


class _Leak(NamedTuple):
    """Leaked claims of a server.

    :ivar names: their consumers
    :ivar is_final: whether it gets no other claims any more
    :ivar providers: the providers of its node, if it is on a host
    """

    names: list[str]
    is_final: bool
    providers: frozenset[str] = frozenset()


class _RowChanged(Exception):
    """The row of a finding has changed, so its repair ends."""


class Repairs:
    """Repairs findings by their action.

    :param host: recorded as the host of faults
    """

    def __init__(
        self, reader: StateReader, targets: target.Targets,
        cell0: Cell0, clock: Clock, host: str,
    ) -> None:
        self._reader = reader
        self._database = reader.database
        self._targets = targets
        self._cell0 = cell0
        self._clock = clock
        self._host = host
        self._migrations = (
            None if reader.claims is None
            else migrations.Migrations(reader.claims, host))
        self._by_action: Mapping[
            Action, Callable[[Finding, ServerState], None]] = {
                Action.BURY: self._bury,
                Action.BURY_REQUEST: self._bury_request,
                Action.REMAP: self._remap,
                Action.FAIL: self._fail,
                Action.TAKE_BACK: self._take_back,
                Action.GIVE_UP: self._give_up,
                Action.RECLAIM: self._reclaim,
                Action.PURGE: self._purge,
                Action.DECIDE: self._decide,
                Action.MAP: self._map,
                Action.FORGET: self._forget,
                Action.DELETE: self._delete,
                Action.RELEASE: self._release,
                Action.RELEASE_MOVE: self._release,
                Action.CLAIM: self._claim,
                Action.JOIN: self._join,
                Action.LEAVE: self._leave,
                Action.EXPLAIN: self._explain,
            }

    def repair(self, finding: Finding, server: ServerState) -> None:
        """Repair a finding if it is still valid.

        :param server: the state in which it was found
        :raises cellsched.exception.CellschedException: the repair failed
        """
        assert finding.action is not None
        with contextlib.suppress(_RowChanged):
            self._by_action[finding.action](finding, server)

    def recount(self, provider: str) -> None:
        """Correct the counters of a provider, which is safe at any time."""
        if self._reader.claims is not None:
            self._reader.claims.recount(provider)

    def mend(self) -> None:
        """Correct the records of the store, which is safe at any time."""
        if self._reader.claims is not None:
            self._reader.claims.mend()

    def release(self, uuid: str, action: Action) -> bool:
        """Release a leaked claim if it still leaks; return whether it did.

        No row is locked while the claim store works. If the server may get new
        claims at any time, its claims are withdrawn. A server on a host that
        has lost its claims to a late call gets them back.
        """
        store = self._reader.claims
        leak = None if store is None else self._leak(uuid, action)
        if store is None or leak is None:
            return False
        if action is Action.RELEASE and not leak.is_final:
            return migrations.withdraw(
                store, uuid, migrations.consumer(uuid),
                lambda: self._leak(uuid, action) is not None)
        if leak.providers and migrations.restore(
                store, uuid, leak.names, leak.providers):
            return False
        store.release(leak.names)
        return True

    def _leak(self, uuid: str, action: Action) -> _Leak | None:
        """Return the leak of a server's claims; None if there is none."""
        is_move, row = action is Action.RELEASE_MOVE, None
        with self._database.reader() as connection:
            mapping = api.mappings(connection, [uuid]).get(uuid)
            if mapping is None or build_requests.present(connection, [uuid]):
                return None
        names = [migrations.consumer(uuid) if is_move else uuid]
        if mapping.cell is not None:
            row = self._row(mapping.cell, uuid)
        if row is None or mapping.cell == objects.CELL0_UUID:
            # A user can retry the build of a server in cell0.
            return _Leak(names, mapping.deleted) if (
                mapping.deleted or mapping.cell == objects.CELL0_UUID
            ) else None
        expected = checks.expected_in_cell(row)
        if not is_move:
            # A server that was shelved can be restored.
            return _Leak(names, row.deleted or row.vm_state == 'error') if (
                expected is checks.Expected.NONE) else None
        if not row.deleted and (row.task_state is not None or row.moving):
            return None
        return _Leak(
            names + [*row.moves], True,
            frozenset({row.provider or '', *row.children})
            if expected is checks.Expected.CLAIM else frozenset())

    def _row(
        self, cell: str, uuid: str
    ) -> audit_queries.ServerRow | None:
        with self._cell(cell).reader() as connection:
            return audit_queries.rows(connection, [uuid]).get(uuid)

    def expire(self, limit_s: float) -> None:
        """End the leases that would last longer than a limit."""
        now = self._database.timestamp()
        with self._database.writer() as connection:
            api.end_leases_after(connection, now + limit_s, now)

    def _join(self, finding: Finding, server: ServerState) -> None:
        assert server.size is not None
        with self._database.writer() as connection:
            if api.lock(connection, server.uuid) != server.mapping:
                return
            group = instance_groups.find(connection, server.size.group or '')
            if group is not None:
                instance_groups.add_members(
                    connection, group.id, [server.uuid], self._clock.now())

    def _leave(self, finding: Finding, server: ServerState) -> None:
        with self._database.writer() as connection:
            mapping = api.lock(connection, server.uuid)
            if mapping is not None and mapping.deleted:
                instance_groups.remove_members(connection, [server.uuid])

    def _release(self, finding: Finding, server: ServerState) -> None:
        assert finding.action is not None
        self.release(server.uuid, finding.action)

    def _claim(self, finding: Finding, server: ServerState) -> None:
        """Claim for a server on a host.

        If the server changes meanwhile, the claim is refused or leaks.
        """
        assert server.mapping is not None and finding.cell_uuid is not None
        row = server.rows[finding.cell_uuid]
        if row.provider is None or self._reader.claims is None:
            return
        now = self._row(finding.cell_uuid, server.uuid)
        if now is not None and now.provider == row.provider and (
                checks.expected_in_cell(now) is checks.Expected.CLAIM):
            self._reader.claims.claim(self._right(server, row))

    def _reclaim(self, finding: Finding, server: ServerState) -> None:
        """Claim again, while another consumer keeps the former claims.

        So the capacity is never free, as in :func:`.migrations.withdraw`.
        """
        assert finding.cell_uuid is not None
        store, row = self._reader.claims, server.rows[finding.cell_uuid]
        uuid, name = server.uuid, migrations.consumer(server.uuid)
        if store is None or self._row(finding.cell_uuid, uuid) != row:
            return
        if store.claims_of([name]):
            raise exception.ClaimConflict(consumer=name)
        claims = self._right(server, row)
        store.transfer(uuid, name)
        if self._row(finding.cell_uuid, uuid) != row:
            migrations.restore(store, uuid, [name])
            return
        try:
            store.claim(claims)
        except (exception.ClaimBusy, exception.ClaimRefused):
            migrations.restore(store, uuid, [name])
            raise
        store.release([name])

    def _right(
        self, server: ServerState, row: audit_queries.ServerRow
    ) -> list[claims_base.Claim]:
        """Return the claims that a server on a host should hold.

        Its claims there are kept if their sum is right. Otherwise everything
        is claimed from the node itself, as only a scheduler chooses child
        providers.
        """
        size = server.size
        if size is None or size.resources is None:
            raise exception.RequestUnreadable(
                uuid=server.uuid, what='request specification',
                problem=size.problem if size else 'was not looked at')
        assert row.provider is not None and row.host is not None
        group = None
        if size.group is not None:
            with self._database.reader() as connection:
                group = instance_groups.find(connection, size.group)
        here, _ = server.held(row)
        taken = {claim.provider: claim.resources for claim in here}
        if add_up(map(units.plain, taken.values())) != size.total:
            assert not size.grouped
            taken = {row.provider: size.resources}
        member = claims_base.membership(group, row.host, server.uuid)
        return [claims_base.Claim(server.uuid, provider, resources, member,
                                  row.project_id or None, row.user_id or None)
                for provider, resources in taken.items()]

    def _bury(self, finding: Finding, server: ServerState) -> None:
        instance = self._instance(server.uuid)
        with self._database.reader() as connection:
            if build_requests.present(connection, [server.uuid]):
                return
        self._cell0.bury(
            context.admin(), [instance], exception.BuildAborted(
                uuid=server.uuid,
                reason='its record was lost; found by an audit'))
        if self._reader.claims is not None:
            self._reader.claims.release([server.uuid])

    def _bury_request(self, finding: Finding, server: ServerState) -> None:
        """Bury a request as the conductor would do."""
        owner, now = uuidutils.generate_uuid(), self._database.timestamp()
        with self._database.writer() as connection:
            leased = build_requests.lease(
                connection, [server.uuid], owner, now, now + _LEASE_S)
        for entry in leased:
            if entry.broken is None or isinstance(
                    entry.broken, exception.RequestTooNew):
                continue
            if self._cell0.bury(
                    context.admin(), [self._instance(server.uuid)],
                    entry.broken, owner) and self._reader.claims is not None:
                self._reader.claims.release([server.uuid])

    def _remap(self, finding: Finding, server: ServerState) -> None:
        """Map a server to the cell that has its row, host and claim.

        The row is locked, and the cell of the old mapping is read again.
        """
        before, after = server.mapping, finding.cell_uuid
        assert before is not None and before.cell is not None
        assert after is not None
        row = server.rows[after]
        with api.holding(self._database) as connection:
            if api.lock(connection, server.uuid) != before or (
                    build_requests.present(connection, [server.uuid])):
                return
            with self._cell(before.cell).reader() as elsewhere:
                if audit_queries.rows(elsewhere, [server.uuid]):
                    return
            hosts = host_mappings.get_many(connection, [row.host or ''])
            cell = hosts.get(row.host or '')
            if cell is None or cell.uuid != after:
                return
            with self._cell(after).writer() as here:
                if audit_queries.lock(here, server.uuid) == row:
                    self._map_to(connection, server.uuid, before.cell, cell)

    def _map_to(
        self, connection: Any, uuid: str, before: str,
        cell: objects.CellMapping,
    ) -> None:
        arguments = uuid, before, cell.id, self._clock.now()
        if self._database.engine.dialect.name != 'sqlite':
            api.remap(connection, *arguments)
            return
        # On SQLite the held connection only reads; see api.holding.
        with self._database.writer() as writing:
            api.remap(writing, *arguments)

    def _purge(self, finding: Finding, server: ServerState) -> None:
        assert finding.cell_uuid is not None
        with api.holding(self._database) as connection:
            if api.lock(connection, server.uuid) != server.mapping or (
                    build_requests.present(connection, [server.uuid])):
                return
            with self._cell(finding.cell_uuid).writer() as cell:
                audit_queries.purge_unrun(cell, server.uuid)

    def _decide(self, finding: Finding, server: ServerState) -> None:
        with self._database.writer() as connection:
            if not build_requests.present(connection, [server.uuid]):
                self._set_cell(connection, finding)

    def _set_cell(self, connection: Any, finding: Finding) -> None:
        assert finding.cell_uuid is not None
        cell = self._reader.cells()[finding.cell_uuid]
        instance_mappings.decide(
            connection, [finding.of], cell.id, self._clock.now())

    def _map(self, finding: Finding, server: ServerState) -> None:
        with self._database.writer() as connection:
            if finding.cell_uuid is not None:
                row = server.rows[finding.cell_uuid]
                project_id, user_id = row.project_id, row.user_id
            else:
                request = build_requests.get(connection, server.uuid)
                if request is None:
                    return
                project_id = request.project_id
                user_id = request.instance.get('user_id')
            api.map_missing(connection, server.uuid, project_id or '',
                            user_id, self._clock.now())

    def _forget(self, finding: Finding, server: ServerState) -> None:
        with self._database.writer() as connection:
            if api.lock(connection, server.uuid) == server.mapping and (
                    api.forget(connection, server.uuid,
                               self._database.timestamp())) and (
                    finding.cell_uuid is not None):
                self._set_cell(connection, finding)

    def _instance(self, uuid: str) -> objects.Instance:
        """Return a server as its request described it, if that is known."""
        with self._database.reader() as connection:
            owner = api.owner(connection, uuid)
        if owner is None:
            raise exception.InstanceMappingNotFound(uuid=uuid)
        instance = objects.Instance(
            uuid=uuid, project_id=owner[0], user_id=owner[1],
            display_name=f'Server {uuid}', vm_state='error')
        spec = self._spec(uuid)
        if spec is None or not spec.get('flavor'):
            return instance
        flavor, image = spec.flavor, spec.get('image')
        return instance.but(
            image_ref=image.get('id') if image else None,
            vcpus=flavor.vcpus, memory_mb=flavor.memory_mb,
            root_gb=flavor.root_gb, ephemeral_gb=flavor.get('ephemeral_gb'),
            instance_type_id=flavor.get('id'), flavor=flavor,
            availability_zone=spec.get('availability_zone'))

    def _spec(self, uuid: str) -> objects.RequestSpec | None:
        with self._database.reader() as connection:
            try:
                return build_requests.read_spec(connection, uuid)
            except (exception.InstanceMappingNotFound,
                    exception.RequestUnreadable):
                return None

    def _delete(self, finding: Finding, server: ServerState) -> None:
        """Mark a row as deleted; the mapping first."""
        assert finding.cell_uuid is not None
        row = server.rows[finding.cell_uuid]
        if row.task_state == 'deleting':
            with self._database.writer() as connection:
                instance_mappings.mark_deleted(
                    connection, [server.uuid], self._clock.now())
                instance_groups.remove_members(connection, [server.uuid])
        with self._unchanged(finding, server) as connection:
            instances.delete(
                connection, server.uuid, self._clock.now(), host=row.host)

    def _fail(self, finding: Finding, server: ServerState) -> None:
        """Set a build without progress to ERROR; its claims then leak."""
        with self._unchanged(finding, server) as connection:
            instances.fail(
                connection, server.uuid, exception.TaskAbandoned(
                    uuid=server.uuid, task='build'), self._host,
                self._clock.now(), instance_history.RETRY_EVENT, host=None)

    def _take_back(self, finding: Finding, server: ServerState) -> None:
        """Revert the task of a server that has no move."""
        assert finding.cell_uuid is not None
        row = server.rows[finding.cell_uuid]
        revert = checks.reverting(row)
        if revert is None:
            return
        now = self._clock.now()
        with self._unchanged(finding, server) as connection:
            if instances.transit(
                    connection, server.uuid, revert.transition, now,
                    host=row.host):
                instance_history.record(
                    connection, server.uuid, exception.TaskAbandoned(
                        uuid=server.uuid, task=revert.task), self._host, now)

    def _give_up(self, finding: Finding, server: ServerState) -> None:
        """End a move that does not match the server's task."""
        assert finding.cell_uuid is not None
        row = server.rows[finding.cell_uuid]
        database = self._cell(finding.cell_uuid)
        with self._unchanged(finding, server) as connection:
            move = server_moves.live(connection, server.uuid)
        if self._migrations is None or move is None or row.move is None:
            return
        if move.status == server_moves.MOVED:
            self._migrations.finish(database, move)
            return
        # The move cannot complete, as the server does not wait for it.
        self._migrations.abort(
            database, move, exception.TaskAbandoned(
                uuid=server.uuid, task=move.migration_type),
            [row.move.status])

    def _explain(self, finding: Finding, server: ServerState) -> None:
        """Record a fault with an unknown reason."""
        now = self._clock.now()
        with self._unchanged(finding, server) as connection:
            if finding.kind == 'no-reason':
                instance_history.record(
                    connection, server.uuid,
                    exception.ReasonUnknown(uuid=server.uuid), self._host, now)
            else:
                instance_history.create_all(
                    connection, {server.uuid: context.admin()}, 'create',
                    now, message='Error')

    @contextlib.contextmanager
    def _unchanged(
        self, finding: Finding, server: ServerState
    ) -> Iterator[Any]:
        """Yield a connection with the row locked, unless it has changed."""
        assert finding.cell_uuid is not None
        with self._cell(finding.cell_uuid).writer() as connection:
            row = audit_queries.lock(connection, server.uuid)
            if row != server.rows[finding.cell_uuid]:
                raise _RowChanged
            yield connection

    def _cell(self, uuid: str) -> session.Database:
        return self._targets.database(self._reader.cells()[uuid])
