# SPDX-License-Identifier: Apache-2.0
"""Notifiers of schedulers and conductors."""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import logging
import math
from typing import Any
from typing import Literal
from typing import NamedTuple

import oslo_messaging

from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched import exception
from cellsched.notify.payloads import instance as payloads
from cellsched.notify.payloads.instance import State
from cellsched.notify.payloads import request_spec
from cellsched import objects
from cellsched.observability.conditions import Conditions
from cellsched import plugins
from cellsched.rpc import serializer

LOG = logging.getLogger(__name__)

_DRIVERS = 'oslo.messaging.notify.drivers'

#: Seconds after which a failure was slow, and for which nothing is sent then.
SLOW_S = 1.0
PAUSE_S = 30.0


class Note(NamedTuple):
    """A notification in one form.

    ``payload`` is called for its content, only if it is sent.
    """

    publisher: str
    event: str
    payload: Callable[[], dict[str, Any]]


class Notifier:
    """Sends both forms of notifications.

    Never fails the caller: errors are logged, those of the broker by
    oslo.messaging. Nothing is sent without a driver in
    ``[oslo_messaging_notifications] driver``, or without a transport. After a
    send longer than ``SLOW_S``, nothing is sent for ``PAUSE_S``. So a broker
    that does not answer costs its timeout once, not for each server.

    :param transport: a transport for notifications; its configuration has the
        drivers and the legacy topics
    :param host: the name of the service
    :param form: ``unversioned``, ``versioned`` or ``both``
    :param topics: topics of versioned notifications
    :param clock: measures the broker; without it no broker counts as slow
    :raises cellsched.exception.PluginNotFound: a driver does not exist
    """

    def __init__(
        self, transport: oslo_messaging.Transport | None = None,
        host: str = '', form: str = 'unversioned', topics: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        self._host = host
        self._legacy = self._versioned = None
        self._clock = clock
        self._paused_until = -math.inf
        self._conditions = Conditions(LOG, self._now)
        if transport is None:
            return
        options = transport.conf.oslo_messaging_notifications
        if not set(options.driver) - {'noop'}:
            return
        available = plugins.names(_DRIVERS)
        for name in options.driver:
            if name not in available:
                raise exception.PluginNotFound(
                    name=name, namespace=_DRIVERS,
                    named=', which [oslo_messaging_notifications] driver '
                          'names',
                    available=', '.join(available))
        if form in ('unversioned', 'both'):
            self._legacy = _sender(transport)
        if form in ('versioned', 'both'):
            self._versioned = _sender(transport, list(topics))

    def send(
        self, context: RequestContext,
        priority: Literal['info', 'error'], legacy: Note, versioned: Note,
    ) -> None:
        """Send a notification in each configured form."""
        for form, sender, note in (
                ('Unversioned', self._legacy, legacy),
                ('Versioned', self._versioned, versioned)):
            if sender is None:
                continue
            unsent = f'{form} notification {note.event} cannot be sent'
            began = self._now()
            if began < self._paused_until:
                self._conditions.occur(
                    unsent, 'the broker was too slow a moment ago')
                continue
            try:
                notify = getattr(sender.prepare(note.publisher), priority)
                notify(context, note.event, note.payload())
                # oslo.messaging does not raise the errors of a broker.
                if self._now() - began < SLOW_S:
                    self._conditions.end(unsent)
            except Exception as exc:
                self._conditions.occur(unsent, exc)
            ended = self._now()
            if ended - began >= SLOW_S:
                self._paused_until = ended + PAUSE_S

    def _now(self) -> float:
        return self._clock.monotonic() if self._clock is not None else 0.0


def _sender(
    transport: oslo_messaging.Transport, topics: list[str] | None = None
) -> oslo_messaging.Notifier:
    # Below zero means for ever, for which no request can wait.
    retries = max(transport.conf.oslo_messaging_notifications.retry, 0)
    return oslo_messaging.Notifier(
        transport, retry=retries, serializer=serializer.Serializer(),
        topics=topics)


class TaskNotifier(Notifier):
    """Sends the notifications of a conductor.

    :param notify_on_state_change: changes to send: None, ``vm_state`` or
        ``vm_and_task_state``
    """

    def __init__(
        self, transport: oslo_messaging.Transport | None = None,
        host: str = '', form: str = 'unversioned', topics: Sequence[str] = (),
        notify_on_state_change: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(transport, host, form, topics, clock)
        self._on_change = notify_on_state_change
        self._publisher = f'nova-conductor:{host}'

    def failed(
        self, context: RequestContext, method: str,
        instance: objects.Instance, spec: objects.RequestSpec | None,
        reason: Exception, state: str | None = 'error',
    ) -> None:
        """Notify that a task has failed for good.

        :param method: the failed task, for example ``build_instances``
        :param state: the ``vm_state`` of the server afterwards
        """
        event = f'compute_task.{method}'
        self.send(
            context, 'error',
            Note(
                f'compute_task.{self._host}', event, functools.partial(
                    payloads.legacy_failed_task, method, instance, spec,
                    reason, state)),
            Note(
                self._publisher, f'{event}.error', functools.partial(
                    payloads.failed_task, instance, spec, reason, state)))

    def updated(
        self, context: RequestContext, instance: objects.Instance,
        old: State, new: State,
    ) -> None:
        """Notify of a change of a server's state, if it is configured."""
        if self._on_change is None or not (
                old[0] != new[0] or old[1] != new[1]
                and self._on_change == 'vm_and_task_state'):
            return
        self.send(
            context, 'info',
            Note(
                f'conductor.{self._host}', 'compute.instance.update',
                functools.partial(payloads.legacy_update, instance, old, new)),
            Note(
                self._publisher, 'instance.update', functools.partial(
                    payloads.update, context, instance, old, new)))

    def deleted(
        self, context: RequestContext,
        phase: Literal['start', 'end'], instance: objects.Instance,
    ) -> None:
        """Notify of the deletion of a build's row; its user deleted it."""
        self.send(
            context, 'info',
            Note(
                f'compute.{self._host}', f'compute.instance.delete.{phase}',
                functools.partial(payloads.legacy, instance)),
            Note(
                self._publisher, f'instance.delete.{phase}',
                functools.partial(payloads.action, context, instance)))

    def rebuild_scheduled(
        self, context: RequestContext, instance: objects.Instance
    ) -> None:
        """Notify that a rebuild has its host."""
        self.send(
            context, 'info',
            Note(
                f'compute.{self._host}', 'compute.instance.rebuild.scheduled',
                functools.partial(payloads.legacy, instance)),
            Note(
                self._publisher, 'instance.rebuild_scheduled',
                functools.partial(payloads.rebuild, context, instance)))


class SchedulerNotifier(Notifier):
    """Sends the notifications of a scheduler."""

    def select_destinations(
        self, context: RequestContext,
        phase: Literal['start', 'end'], request: objects.RequestSpec,
        instance_uuids: Sequence[str] | None,
    ) -> None:
        """Notify that a decision starts, or that it has found its hosts."""
        event = f'scheduler.select_destinations.{phase}'
        requested = (request, instance_uuids or ())
        self.send(
            context, 'info',
            Note(f'scheduler.{self._host}', event,
                 functools.partial(request_spec.legacy, *requested)),
            Note(f'nova-scheduler:{self._host}', event,
                 functools.partial(request_spec.versioned, *requested)))
