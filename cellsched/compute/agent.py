# SPDX-License-Identifier: Apache-2.0
"""What a compute agent answers over RPC."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from oslo_concurrency import lockutils
from oslo_log import log
import oslo_messaging

from cellsched.claims import base as claims_base
from cellsched import clock as clock_
from cellsched.compute import outcomes as outcomes_
from cellsched import context as context_
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched import exception
from cellsched import objects
from cellsched.rpc import compute
from cellsched.rpc import conductor as conductor_rpc
from cellsched.virt import base as virt_base

LOG = log.getLogger(__name__)

#: Nova's number for a server that runs.
RUNNING = 1


class Agent:
    """Builds and removes the servers of one host.

    A server's row says what is to become of it, and every change of it is
    made on the condition that it is as this agent left it. So a message that
    comes twice does nothing the second time, and a deletion wins over a build
    at any moment.
    """

    target = oslo_messaging.Target(version=compute.VERSION)

    def __init__(
        self, host: str, database: session.Database,
        claims: claims_base.ClaimStore, driver: virt_base.Driver,
        conductor: conductor_rpc.ConductorAPI, clock: clock_.Clock,
        outcomes: outcomes_.Outcomes,
    ) -> None:
        self._host = host
        self._database = database
        self._claims = claims
        self._driver = driver
        self._conductor = conductor
        self._clock = clock
        self._outcomes = outcomes

    def build_and_run_instance(
        self, context: context_.RequestContext, instance: objects.Instance,
        request_spec: objects.RequestSpec,
        filter_properties: Mapping[str, Any], node: str,
        limits: Mapping[str, Any], host_list: Sequence[objects.Selection],
    ) -> None:
        """Build a server, or hand it on to another host of the cell."""
        with self._lock(instance.uuid):
            if not self._begin(instance, node, filter_properties):
                self._pass_over(instance.uuid)
                return
            try:
                self._driver.spawn(instance, node)
            except exception.BuildFailed as exc:
                self._outcomes.failed(node)
                self._hand_on(context, instance, request_spec,
                              dict(filter_properties), host_list, exc)
            except Exception as exc:
                self._outcomes.failed(node)
                LOG.exception('The build of %s failed for good',
                              instance.uuid)
                self._end_in_error(instance, exc, self._host)
            else:
                self._outcomes.succeeded(node)
                self._finish(instance)

    def terminate_instance(
        self, context: context_.RequestContext, instance: objects.Instance
    ) -> None:
        """Remove a server and give back what it holds."""
        with self._lock(instance.uuid):
            self._driver.destroy(instance)
            with self._database.writer() as connection:
                instances.delete(connection, instance.uuid, self._clock.now())
            self._claims.release([instance.uuid])

    def _lock(self, uuid: str) -> Any:
        return lockutils.lock(f'{self._host}-{uuid}')

    def _begin(
        self, instance: objects.Instance, node: str,
        properties: Mapping[str, Any],
    ) -> bool:
        expected: dict[str, Any] = {
            'host': None, 'vm_state': 'building', 'task_state': 'scheduling'}
        retry = properties.get('retry')
        if retry:
            # A message of an earlier try may come again, when the build is
            # on its way to another host and what it claims is there.
            expected['build_attempts'] = retry['num_attempts']
        return self._update(
            instance, {'host': self._host, 'node': node,
                       'task_state': 'spawning'}, **expected)

    def _pass_over(self, uuid: str) -> None:
        """Leave a build that is not to be begun; a deleted one holds nothing.

        It may have been claimed after its deletion gave back what it held.
        """
        LOG.info('Not building %s: it is deleted, or was begun already', uuid)
        with self._database.reader() as connection:
            deleted = instances.get(connection, uuid) is None
        if deleted:
            self._claims.release([uuid])

    def _finish(self, instance: objects.Instance) -> None:
        active = self._update(
            instance, {'vm_state': 'active', 'task_state': None,
                       'power_state': RUNNING,
                       'launched_at': self._clock.now()},
            host=self._host, task_state='spawning')
        if not active:
            # Its deletion waits for this build's lock and does the rest.
            LOG.info('%s was deleted while it was built', instance.uuid)
            self._driver.destroy(instance)

    def _hand_on(
        self, context: context_.RequestContext, instance: objects.Instance,
        spec: objects.RequestSpec, properties: dict[str, Any],
        host_list: Sequence[objects.Selection], reason: Exception,
    ) -> None:
        """Have a conductor of the cell try the build elsewhere.

        The claim goes before the row says that the build is free to go on:
        afterwards the claim is the next host's. Until a conductor takes it up
        the build has no task, so that no message of this try begins it again.
        """
        LOG.info('The build of %s failed here: %s', instance.uuid, reason)
        if not self._is_spawning(instance.uuid):
            return
        if not properties.get('retry'):
            self._end_in_error(instance, reason, self._host)
            return
        self._claims.release([instance.uuid])
        freed = self._update(
            instance, {'host': None, 'node': None, 'task_state': None},
            host=self._host, task_state='spawning')
        if not freed:
            return
        properties['retry'] = {**properties['retry'],
                               'exc_reason': str(reason)}
        try:
            self._conductor.build_instances(
                context, [instance], properties, spec, [list(host_list)])
        except oslo_messaging.MessagingException:
            LOG.exception('No conductor could be told of %s', instance.uuid)
            self._end_in_error(instance, reason, host=None, task_state=None)

    def _end_in_error(
        self, instance: objects.Instance, reason: Exception,
        host: str | None, task_state: str | None = 'spawning',
    ) -> None:
        """Put a build into ERROR if it is as this agent left it."""
        with self._database.writer() as connection:
            failed = instances.fail(
                connection, instance.uuid, reason, self._host,
                self._clock.now(), host=host, task_state=task_state,
                vm_state='building')
        if failed:
            self._claims.release([instance.uuid])

    def _is_spawning(self, uuid: str) -> bool:
        with self._database.reader() as connection:
            row = instances.get(connection, uuid)
        return (row is not None and row.host == self._host
                and row.task_state == 'spawning')

    def _update(
        self, instance: objects.Instance, values: Mapping[str, Any],
        **expected: Any,
    ) -> bool:
        with self._database.writer() as connection:
            return instances.update(
                connection, instance.uuid, values, self._clock.now(),
                **expected)
