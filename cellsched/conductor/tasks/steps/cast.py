# SPDX-License-Identifier: Apache-2.0
"""The step that hands builds to compute hosts."""

from collections.abc import Sequence

from oslo_log import log

from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.conductor.tasks.build import Build
from cellsched.conductor.tasks.build import by_cell
from cellsched.conductor.tasks.build import Outcome
from cellsched.conductor.tasks import saga
from cellsched import context
from cellsched.db.cell import build_message
from cellsched.db.cell import instances
from cellsched.notify import task_notifier
from cellsched import objects
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import delivery

LOG = log.getLogger(__name__)


class Cast(saga.Step):
    """Hand the build to the compute host, on its cell's transport.

    Nothing is undone any more. What a broker does not take is left to who
    looks for lost builds. A server that cannot be handed over for another
    reason ends in ERROR in its cell, and does not keep the others.
    """

    final = True

    def __init__(
        self, targets: target.Targets, compute: compute_rpc.ComputeAPIs,
        claims: claims_base.ClaimStore, clock: Clock, host: str,
        notifier: task_notifier.TaskNotifier,
    ) -> None:
        self._targets = targets
        self._compute = compute
        self._claims = claims
        self._clock = clock
        self._host = host
        self._notifier = notifier

    def do(self, builds: Sequence[Build]) -> None:
        for cell, batch in by_cell(builds):
            try:
                self._cast_all(cell, batch)
            except delivery.ERRORS as exc:
                # Each of the others would wait as long for the same broker.
                LOG.warning('The hosts of cell %s cannot be told of %s; they '
                            'will be: %s', cell.identity,
                            [build.uuid for build in batch],
                            delivery.describe(exc))

    def _cast_all(
        self, cell: objects.CellMapping, builds: Sequence[Build]
    ) -> None:
        aimed: dict[int, context.RequestContext] = {}
        for build in builds:
            try:
                if id(build.context) not in aimed:
                    aimed[id(build.context)] = self._targets.aim(
                        build.context, cell)
                self._cast(aimed[id(build.context)], build)
            except delivery.ERRORS:
                raise
            except Exception as exc:
                build.end(Outcome.FINISHED, exc)
                self._give_up(cell, build, exc)

    def _cast(
        self, aimed: context.RequestContext, build: Build
    ) -> None:
        assert aimed.cell is not None
        message = build_message.BuildMessage.first(
            build.selections, build.spec)
        self._compute.get(aimed.cell.transport).build_and_run_instance(
            aimed, instance=build.instance, **message.arguments())

    def _give_up(
        self, cell: objects.CellMapping, build: Build,
        reason: Exception,
    ) -> None:
        uuid = build.uuid
        LOG.error('%s cannot be handed to a host of cell %s: %s',
                  uuid, cell.identity, reason)
        try:
            with self._targets.database(cell).writer() as connection:
                failed = instances.fail(
                    connection, uuid, reason, self._host, self._clock.now(),
                    host=None, task_state='scheduling')
            if failed:
                self._claims.release([uuid])
                self._notifier.failed(
                    build.context, 'build_instances', build.instance,
                    build.spec, reason)
        except Exception:
            LOG.exception('%s is left in BUILD', uuid)
