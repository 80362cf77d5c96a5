# SPDX-License-Identifier: Apache-2.0
"""Retry of a build on another host of its cell."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from oslo_config import cfg
from oslo_log import log

from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.conductor.tasks import steps
from cellsched.context import RequestContext
from cellsched.db.cell import build_casts
from cellsched.db.cell import instance_history
from cellsched.db.cell.instances import fail
from cellsched.db.cell.instances import get
from cellsched.db.cell.instances import lock
from cellsched.db.cell.instances import transit
from cellsched.db.cell.instances import update
from cellsched.db import session
from cellsched import exception
from cellsched import migrations
from cellsched.notify import notifiers
from cellsched import objects
from cellsched.observability import tracing
from cellsched.rpc import compute as compute_rpc

LOG = log.getLogger(__name__)


@dataclasses.dataclass(eq=False)
class BuildInstances:
    """Moves failed builds to their next alternates.

    The scheduler is not called again, and a build never leaves its cell: the
    alternates of the first decision are in the same cell. Each is claimed
    before use. Without a remaining alternate, or after ``attempts_max`` hosts,
    the server ends in ERROR.

    :param database: the cell's database
    :param compute: the agents of the cell
    :param attempts_max: maximum number of hosts for a build
    :param notifier: sends a notification for each build that fails for good
    :param free: deallocates the networks of a server that has ended
    """

    database: session.Database
    compute: compute_rpc.ComputeAPI
    claims: claims_base.Claims
    clock: Clock
    host: str
    attempts_max: int
    notifier: notifiers.TaskNotifier = dataclasses.field(
        default_factory=notifiers.TaskNotifier)
    free: Callable[[RequestContext, objects.Instance], object] = (
        lambda context, instance: None)

    def __post_init__(self) -> None:
        self._alternates = steps.Alternates(self.claims)

    def run(
        self, context: RequestContext,
        instances: Sequence[objects.Instance],
        filter_properties: Mapping[str, Any],
        request_spec: objects.RequestSpec,
        host_lists: Sequence[Sequence[objects.Selection]],
    ) -> None:
        """Build each instance on its first host that can be claimed.

        :param host_lists: the remaining hosts of each instance, in order
        """
        for instance, hosts in zip(instances, host_lists, strict=True):
            with tracing.span('reschedule', context, [instance.uuid]):
                self._try_next(context, instance, dict(filter_properties),
                               request_spec, list(hosts))

    def _try_next(
        self, context: RequestContext, instance: objects.Instance,
        properties: dict[str, Any], spec: objects.RequestSpec,
        hosts: list[objects.Selection],
    ) -> None:
        retry = {'num_attempts': 1, 'hosts': [],
                 **(properties.get('retry') or {})}
        tried = retry['num_attempts']
        if not self._is_ours(instance.uuid, tried):
            LOG.info('Not retrying the build: the server is deleted, or its '
                     'build was retried already', instance_uuid=instance.uuid,
                     context=context)
            return
        try:
            self._move_on(context, instance, properties, spec, hosts, retry)
        except exception.MaxRetriesExceeded as exc:
            self._give_up(context, instance, spec, tried, exc)
        except (*exception.DATABASE_UNAVAILABLE, cfg.Error):
            # StalledBuilds finds it when the stored message is old.
            LOG.exception('Could not retry the build yet',
                          instance_uuid=instance.uuid, context=context)
        except Exception as exc:
            LOG.exception('Could not retry the build',
                          instance_uuid=instance.uuid, context=context)
            self._give_up(context, instance, spec, tried, exc)

    def _move_on(
        self, context: RequestContext, instance: objects.Instance,
        properties: dict[str, Any], spec: objects.RequestSpec,
        hosts: list[objects.Selection], retry: dict[str, Any],
    ) -> None:
        tried = retry['num_attempts']
        last_reason = retry.pop('exc_reason', '')
        if tried >= self.attempts_max:
            raise exception.MaxRetriesExceeded(reason=(
                f'Exceeded max scheduling attempts {self.attempts_max} for '
                f'instance {instance.uuid}. Last exception: {last_reason}'))
        chosen = self._alternates.claim_first(
            instance, hosts, spec.get('instance_group') if spec else None,
            lambda: self._is_trying(instance.uuid, tried + 1))
        if chosen is None:
            raise exception.MaxRetriesExceeded(reason=(
                'Exhausted all hosts available for retrying build failures '
                f'for instance {instance.uuid}.'))
        retry['num_attempts'] = tried + 1
        retry['hosts'] = [*retry['hosts'],
                          [chosen.service_host, chosen.nodename]]
        message = build_casts.BuildMessage(chosen, hosts, spec, {
            **properties, 'retry': retry,
            'limits': chosen.to_dict()['limits']})
        self._keep(message, instance.uuid)
        LOG.info('Retrying the build on host %s, attempt %d',
                 chosen.service_host, tried + 1, instance_uuid=instance.uuid,
                 context=context)
        try:
            self.compute.build_and_run_instance(
                context, instance=instance, **message.arguments())
        except steps.UNSENT as exc:
            LOG.warning('Could not cast the build to host %s; the cast is '
                        'retried: %s',
                        chosen.service_host, exception.describe(exc),
                        instance_uuid=instance.uuid, context=context)

    def _keep(self, message: build_casts.BuildMessage, uuid: str) -> None:
        """Store the message to the host, unless the build has ended."""
        with self.database.writer() as connection:
            if lock(connection, [uuid]):
                build_casts.replace(
                    connection,
                    message.kept(uuid, self.database.timestamp()))

    def _is_ours(self, uuid: str, tried: int) -> bool:
        """Count the attempt; of several deliveries of a message one succeeds.

        The agent that reschedules a build leaves it without a task.
        """
        with self.database.writer() as connection:
            return transit(
                connection, uuid, 'try_next', self.clock.now(),
                {'build_attempts': tried + 1}, host=None,
                build_attempts=tried)

    def _is_trying(self, uuid: str, attempt: int) -> bool | None:
        """Return whether the build waits for the host of an attempt.

        The result is for :func:`.migrations.withdraw`.
        """
        with self.database.reader() as connection:
            row = get(connection, uuid)
            if row is not None and (None, 'scheduling', attempt) == (
                    row.host, row.task_state, row.build_attempts):
                return True
            return False if migrations.is_at_rest(connection, row) else None

    def _give_up(
        self, context: RequestContext, instance: objects.Instance,
        spec: objects.RequestSpec, tried: int, reason: Exception,
    ) -> None:
        uuid, now = instance.uuid, self.clock.now()
        with self.database.writer() as connection:
            failed = fail(
                connection, uuid, reason, self.host, now,
                instance_history.RETRY_EVENT, host=None,
                task_state='scheduling', build_attempts=tried + 1)
            if failed:
                # Undo the count: the attempt is not made.
                update(connection, uuid, {'build_attempts': tried}, now)
            deleted = get(connection, uuid) is None
        if failed or deleted:
            self.claims.release(migrations.consumers([uuid]))
        if failed:
            self.notifier.failed(
                context, 'build_instances', instance, spec, reason)
            self.free(context, instance)
