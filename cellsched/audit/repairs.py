# SPDX-License-Identifier: Apache-2.0
"""Mending what can be mended safely.

Each repair looks once more, with what it looks at locked or in the condition
of its own statement, and does nothing where things are not as they were found.
"""

from collections.abc import Callable
from collections.abc import Mapping
import contextlib
from typing import Any

from oslo_utils import uuidutils

from cellsched.audit import claim_holders
from cellsched.audit.facts import Facts
from cellsched.audit.facts import Reader
from cellsched.audit import findings
from cellsched.audit.rows import RowRepairs
from cellsched.audit import sizes
from cellsched.cells.cell0 import Cell0
from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.claims import moves
from cellsched.clock import Clock
from cellsched import context
from cellsched.db.api import audit_queries as api
from cellsched.db.api import build_requests
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_groups
from cellsched.db.api import instance_mappings
from cellsched.db.cell import audit_queries
from cellsched import exception
from cellsched import objects

Action = findings.Action

#: Seconds to lease a request for that is to be buried.
_LEASE_S = 60.0


class Repairs:
    """Does what a finding's action says.

    :param host: who says so in faults
    """

    def __init__(
        self, reader: Reader, targets: target.Targets,
        cell0: Cell0, clock: Clock, host: str,
    ) -> None:
        self._reader = reader
        self._database = reader.database
        self._targets = targets
        self._cell0 = cell0
        self._clock = clock
        rows = RowRepairs(reader, targets, clock, host)
        self._by_action: Mapping[Action, Callable[
            [findings.Finding, Facts], None]] = {
                Action.BURY: self._bury,
                Action.BURY_REQUEST: self._bury_request,
                Action.REMAP: self._remap,
                Action.FAIL: rows.fail,
                Action.TAKE_BACK: rows.take_back,
                Action.GIVE_UP: rows.give_up,
                Action.RECLAIM: self._reclaim,
                Action.PURGE: self._purge,
                Action.DECIDE: self._decide,
                Action.MAP: self._map,
                Action.FORGET: self._forget,
                Action.DELETE: rows.delete,
                Action.RELEASE: self._release,
                Action.RELEASE_MOVE: self._release,
                Action.CLAIM: self._claim,
                Action.EXPLAIN: rows.explain,
            }

    def repair(
        self, finding: findings.Finding, facts: Facts
    ) -> None:
        """Repair what was found, if it is still so.

        :param facts: what it was judged by
        :raises cellsched.exception.CellschedException: it cannot be
        """
        assert finding.action is not None
        self._by_action[finding.action](finding, facts)

    def recount(self, provider: str) -> None:
        """Have the claim store count anew; that is safe at any time."""
        if self._reader.claims is not None:
            self._reader.claims.recount(provider)

    def release(self, uuid: str, action: Action) -> bool:
        """Release a claim that was found leaked; return whether it was.

        Until it is released nobody changes the mapping, nor the row that the
        server has in a cell.
        """
        store = self._reader.claims
        if store is None:
            return False
        with contextlib.ExitStack() as held:
            connection = held.enter_context(api.holding(self._database))
            mapping = api.lock(connection, uuid)
            if mapping is None or api.requested(connection, [uuid]):
                return False
            if not self._still_leaks(held, mapping, uuid, action):
                return False
            store.release([_holder(uuid, action)])
        return True

    def _still_leaks(
        self, held: contextlib.ExitStack, mapping: api.MappingRow,
        uuid: str, action: Action,
    ) -> bool:
        """Look at the row, and hold it, as long as the stack is open."""
        if mapping.cell is None:
            return mapping.deleted
        connection = held.enter_context(self._cell(mapping.cell).writer())
        row = audit_queries.lock(connection, uuid)
        if row is None or mapping.cell == objects.CELL0_UUID:
            return mapping.deleted or mapping.cell == objects.CELL0_UUID
        if action is Action.RELEASE_MOVE:
            return row.deleted or (
                row.task_state is None and not row.moving)
        return claim_holders.due_in_cell(row) is claim_holders.Due.NOTHING

    def _release(
        self, finding: findings.Finding, facts: Facts
    ) -> None:
        assert finding.action is not None
        self.release(facts.uuid, finding.action)

    def _claim(self, finding: findings.Finding, facts: Facts) -> None:
        assert facts.mapping is not None and finding.cell_uuid is not None
        row = facts.rows[finding.cell_uuid]
        if row.provider is None or self._reader.claims is None:
            return
        with self._cell(finding.cell_uuid).writer() as connection:
            now = audit_queries.lock(connection, facts.uuid)
            if now is not None and now.provider == row.provider and (
                    claim_holders.due_in_cell(now)
                    is claim_holders.Due.SOMETHING):
                self._reader.claims.claim(
                    self._right(facts, row, facts.uuid))

    def _reclaim(
        self, finding: findings.Finding, facts: Facts
    ) -> None:
        """Claim in the name of a move, and let what is held follow it.

        So it never holds nothing. Nobody else claims in that name as long as
        the row is held and the server is not moved.
        """
        assert finding.cell_uuid is not None
        store, row = self._reader.claims, facts.rows[finding.cell_uuid]
        if store is None:
            return
        name = moves.consumer(facts.uuid)
        with self._cell(finding.cell_uuid).writer() as connection:
            if audit_queries.lock(connection, facts.uuid) != row:
                return
            store.claim(self._right(facts, row, name))
            store.transfer(name, facts.uuid)

    def _right(
        self, facts: Facts, row: audit_queries.ServerRow, consumer: str
    ) -> list[claims_base.Claim]:
        """Return what a server that is on a host is to hold.

        What it holds there stays as it is, if that is as much as it takes.
        Else it is of the node itself: of which child provider a group is, a
        scheduler chooses.
        """
        size = facts.size
        if size is None or size.resources is None:
            raise exception.RequestUnreadable(
                uuid=facts.uuid, what='request specification',
                problem=size.problem if size else 'was not looked at')
        assert row.provider is not None and row.host is not None
        group = None
        if size.group is not None:
            with self._database.reader() as connection:
                group = instance_groups.find(connection, size.group)
        here, _ = facts.held(row)
        taken = {claim.provider: claim.resources for claim in here}
        if sizes.add_up(taken.values()) != size.total:
            assert not size.grouped
            taken = {row.provider: size.resources}
        member = claims_base.membership(group, row.host, facts.uuid)
        return [claims_base.Claim(consumer, provider, resources, member,
                                  row.project_id or None, row.user_id or None)
                for provider, resources in taken.items()]

    def _bury(self, finding: findings.Finding, facts: Facts) -> None:
        instance = self._instance(facts.uuid)
        with self._database.reader() as connection:
            if api.requested(connection, [facts.uuid]):
                return
        self._cell0.bury(
            context.admin(), [instance], exception.BuildAborted(
                uuid=facts.uuid,
                reason='its record was lost, as an audit found'))
        if self._reader.claims is not None:
            self._reader.claims.release([facts.uuid])

    def _bury_request(
        self, finding: findings.Finding, facts: Facts
    ) -> None:
        """Do what a conductor that takes the request up would do."""
        owner, now = uuidutils.generate_uuid(), self._database.timestamp()
        with self._database.writer() as connection:
            leased = build_requests.lease(
                connection, [facts.uuid], owner, now, now + _LEASE_S)
        for entry in leased:
            if entry.broken is None:
                continue
            if self._cell0.bury(
                    context.admin(), [self._instance(facts.uuid)],
                    entry.broken, owner) and self._reader.claims is not None:
                self._reader.claims.release([facts.uuid])

    def _remap(self, finding: findings.Finding, facts: Facts) -> None:
        """Map a server where all else says that it is.

        Its row there is held meanwhile, and looked for once more where it is
        mapped to.
        """
        before, after = facts.mapping, finding.cell_uuid
        assert before is not None and before.cell is not None
        assert after is not None
        row = facts.rows[after]
        with api.holding(self._database) as connection:
            if api.lock(connection, facts.uuid) != before or (
                    api.requested(connection, [facts.uuid])):
                return
            with self._cell(before.cell).reader() as elsewhere:
                if audit_queries.rows(elsewhere, [facts.uuid]):
                    return
            hosts = host_mappings.get_many(connection, [row.host or ''])
            there = hosts.get(row.host or '')
            if there is None or there.uuid != after:
                return
            with self._cell(after).writer() as here:
                if audit_queries.lock(here, facts.uuid) == row:
                    self._map_to(connection, facts.uuid, before.cell, there)

    def _map_to(
        self, connection: Any, uuid: str, before: str,
        cell: objects.CellMapping,
    ) -> None:
        arguments = uuid, before, cell.id, self._clock.now()
        if self._database.engine.dialect.name != 'sqlite':
            api.remap(connection, *arguments)
            return
        # There it only reads; see holding.
        with self._database.writer() as writing:
            api.remap(writing, *arguments)

    def _purge(self, finding: findings.Finding, facts: Facts) -> None:
        assert finding.cell_uuid is not None
        with api.holding(self._database) as connection:
            if api.lock(connection, facts.uuid) != facts.mapping or (
                    api.requested(connection, [facts.uuid])):
                return
            with self._cell(finding.cell_uuid).writer() as cell:
                audit_queries.purge_unrun(cell, facts.uuid)

    def _decide(self, finding: findings.Finding, facts: Facts) -> None:
        assert finding.cell_uuid is not None
        cell = self._reader.cells()[finding.cell_uuid]
        with self._database.writer() as connection:
            if not api.requested(connection, [facts.uuid]):
                instance_mappings.decide(
                    connection, [facts.uuid], cell.id, self._clock.now())

    def _map(self, finding: findings.Finding, facts: Facts) -> None:
        with self._database.writer() as connection:
            if finding.cell_uuid is not None:
                row = facts.rows[finding.cell_uuid]
                project_id, user_id = row.project_id, row.user_id
            else:
                request = build_requests.get(connection, facts.uuid)
                if request is None:
                    return
                project_id = request.project_id
                user_id = request.instance.get('user_id')
            api.map_missing(connection, facts.uuid, project_id or '',
                            user_id, self._clock.now())

    def _forget(self, finding: findings.Finding, facts: Facts) -> None:
        with self._database.writer() as connection:
            if api.lock(connection, facts.uuid) == facts.mapping:
                api.forget(connection, facts.uuid,
                           self._database.timestamp())

    def _instance(self, uuid: str) -> objects.Instance:
        """Return a server as its request had it, as far as that is known."""
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
                return api.spec(connection, uuid)
            except objects.READ_ERRORS:
                return None

    def _cell(self, uuid: str) -> Any:
        return self._targets.database(self._reader.cells()[uuid])


def _holder(uuid: str, action: Action) -> str:
    return moves.consumer(uuid) if action is Action.RELEASE_MOVE else uuid
