# SPDX-License-Identifier: Apache-2.0
"""Mending what can be mended safely.

Each repair looks once more, with what it looks at locked or in the condition
of its own statement, and does nothing where things are not as they were found.
"""

from collections.abc import Callable
from collections.abc import Mapping
import contextlib
from typing import Any

from cellsched.audit import facts as facts_
from cellsched.audit import findings
from cellsched.audit import holding
from cellsched.cells import cell0 as cell0_
from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.claims import moving
from cellsched import clock as clock_
from cellsched import context as context_
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.api import surveying as api
from cellsched.db.cell import instance_actions
from cellsched.db.cell import instance_faults
from cellsched.db.cell import instances
from cellsched.db.cell import surveying
from cellsched import exception
from cellsched import objects

Action = findings.Action


class Repairs:
    """Does what a finding's action says.

    :param host: who says so in faults
    """

    def __init__(
        self, reader: facts_.Reader, targets: target.Targets,
        cell0: cell0_.Cell0, clock: clock_.Clock, host: str,
    ) -> None:
        self._reader = reader
        self._database = reader.database
        self._targets = targets
        self._cell0 = cell0
        self._clock = clock
        self._host = host
        self._by_action: Mapping[Action, Callable[
            [findings.Finding, facts_.Facts], None]] = {
                Action.BURY: self._bury,
                Action.PURGE: self._purge,
                Action.DECIDE: self._decide,
                Action.MAP: self._map,
                Action.FORGET: self._forget,
                Action.DELETE: self._delete,
                Action.RELEASE: self._release,
                Action.RELEASE_MOVE: self._release,
                Action.CLAIM: self._claim,
                Action.EXPLAIN: self._explain,
            }

    def repair(
        self, finding: findings.Finding, facts: facts_.Facts
    ) -> None:
        """Repair what was found, if it is still so.

        :param facts: what it was judged by
        :raises cellsched.exception.CellschedException: it cannot be
        """
        assert finding.action is not None
        self._by_action[finding.action](finding, facts)

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
        self, held: contextlib.ExitStack, mapping: api.Mapping,
        uuid: str, action: Action,
    ) -> bool:
        """Look at the row, and hold it, as long as the stack is open."""
        if mapping.cell is None:
            return mapping.deleted
        connection = held.enter_context(self._cell(mapping.cell).writer())
        row = surveying.lock(connection, uuid)
        if row is None or mapping.cell == objects.CELL0_UUID:
            return mapping.deleted or mapping.cell == objects.CELL0_UUID
        if action is Action.RELEASE_MOVE:
            return row.deleted or (
                row.task_state is None and not row.moving)
        return holding.due_in_cell(row) is holding.Due.NOTHING

    def _release(
        self, finding: findings.Finding, facts: facts_.Facts
    ) -> None:
        assert finding.action is not None
        self.release(facts.uuid, finding.action)

    def _claim(self, finding: findings.Finding, facts: facts_.Facts) -> None:
        assert facts.mapping is not None and finding.cell_uuid is not None
        spec = self._spec(facts.uuid)
        row = facts.rows[finding.cell_uuid]
        if row.provider is None or self._reader.claims is None:
            return
        with self._cell(finding.cell_uuid).writer() as connection:
            now = surveying.lock(connection, facts.uuid)
            if now is not None and now.provider == row.provider and (
                    holding.due_in_cell(now) is holding.Due.SOMETHING):
                self._reader.claims.claim([claims_base.Claim(
                    facts.uuid, row.provider, spec.resources())])

    def _bury(self, finding: findings.Finding, facts: facts_.Facts) -> None:
        instance = self._instance(facts.uuid)
        with self._database.reader() as connection:
            if api.requested(connection, [facts.uuid]):
                return
        self._cell0.bury(
            context_.admin(), [instance], exception.BuildAborted(
                uuid=facts.uuid,
                reason='its record was lost, as an audit found'))
        if self._reader.claims is not None:
            self._reader.claims.release([facts.uuid])

    def _purge(self, finding: findings.Finding, facts: facts_.Facts) -> None:
        assert finding.cell_uuid is not None
        with api.holding(self._database) as connection:
            if api.lock(connection, facts.uuid) != facts.mapping or (
                    api.requested(connection, [facts.uuid])):
                return
            with self._cell(finding.cell_uuid).writer() as cell:
                surveying.purge_unrun(cell, facts.uuid)

    def _decide(self, finding: findings.Finding, facts: facts_.Facts) -> None:
        assert finding.cell_uuid is not None
        cell = self._reader.cells()[finding.cell_uuid]
        with self._database.writer() as connection:
            if not api.requested(connection, [facts.uuid]):
                instance_mappings.decide(
                    connection, [facts.uuid], cell.id, self._clock.now())

    def _map(self, finding: findings.Finding, facts: facts_.Facts) -> None:
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

    def _forget(self, finding: findings.Finding, facts: facts_.Facts) -> None:
        with self._database.writer() as connection:
            if api.lock(connection, facts.uuid) == facts.mapping:
                api.forget(connection, facts.uuid, self._clock.timestamp())

    def _delete(self, finding: findings.Finding, facts: facts_.Facts) -> None:
        assert finding.cell_uuid is not None
        with self._cell(finding.cell_uuid).writer() as connection:
            instances.delete(
                connection, facts.uuid, self._clock.now(), host=None)

    def _explain(
        self, finding: findings.Finding, facts: facts_.Facts
    ) -> None:
        assert finding.cell_uuid is not None
        now = self._clock.now()
        with self._cell(finding.cell_uuid).writer() as connection:
            row = surveying.lock(connection, facts.uuid)
            if row is None or row != facts.rows[finding.cell_uuid]:
                return
            if finding.kind == 'no-reason':
                instance_faults.record(
                    connection, facts.uuid, exception.BuildAborted(
                        uuid=facts.uuid, reason='nobody recorded why'),
                    self._host, now)
            else:
                instance_actions.create_all(
                    connection, {facts.uuid: context_.admin()}, 'create',
                    now, message='Error')

    def _instance(self, uuid: str) -> objects.Instance:
        """Return a server as its request had it, as far as that is known."""
        spec = self._spec(uuid)
        with self._database.reader() as connection:
            owner = api.owner(connection, uuid)
        if owner is None:
            raise exception.InstanceMappingNotFound(uuid=uuid)
        flavor, image = spec.flavor, spec.get('image')
        return objects.Instance(
            uuid=uuid, project_id=owner[0], user_id=owner[1],
            display_name=f'Server {uuid}',
            image_ref=image.get('id') if image else None, vm_state='error',
            vcpus=flavor.vcpus, memory_mb=flavor.memory_mb,
            root_gb=flavor.root_gb, ephemeral_gb=flavor.get('ephemeral_gb'),
            instance_type_id=flavor.get('id'), flavor=flavor,
            availability_zone=spec.get('availability_zone'))

    def _spec(self, uuid: str) -> objects.RequestSpec:
        with self._database.reader() as connection:
            spec = api.spec(connection, uuid)
        if spec is None:
            raise exception.BuildRequestNotFound(uuid=uuid)
        return spec

    def _cell(self, uuid: str) -> Any:
        return self._targets.database(self._reader.cells()[uuid])


def _holder(uuid: str, action: Action) -> str:
    return moving.consumer(uuid) if action is Action.RELEASE_MOVE else uuid
