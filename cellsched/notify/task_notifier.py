# SPDX-License-Identifier: Apache-2.0
"""Tells of what conductors do."""

from collections.abc import Sequence
import functools
from typing import Literal

import oslo_messaging

from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.notify.payloads import compute_task
from cellsched.notify.payloads import instance as payloads
from cellsched.notify import senders
from cellsched import objects

#: A ``vm_state`` and a ``task_state``.
State = tuple[str | None, str | None]


class TaskNotifier:
    """Tells what became of servers, in the forms that are configured.

    Nothing here fails who calls it: what cannot be sent is logged. Without a
    driver in ``[oslo_messaging_notifications] driver`` nothing is done, nor
    without a transport, which is what those have who are to tell nobody.

    :param transport: a transport for notifications; its configuration says
        which drivers and legacy topics there are
    :param host: the conductor's name
    :param form: ``unversioned``, ``versioned`` or ``both``
    :param topics: where versioned notifications go
    :param notify_on_state_change: the changes that are told: None,
        ``vm_state`` or ``vm_and_task_state``
    :raises cellsched.exception.PluginNotFound: a driver is not there
    """

    def __init__(
        self, transport: oslo_messaging.Transport | None = None,
        host: str = '', form: str = 'unversioned',
        topics: Sequence[str] = (),
        notify_on_state_change: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._host = host
        self._senders = senders.Senders(transport, form, topics, clock)
        self._on_change = notify_on_state_change if self._senders else None
        self._publisher = f'nova-conductor:{host}'

    def failed(
        self, context: RequestContext, method: str,
        instance: objects.Instance, spec: objects.RequestSpec | None,
        reason: Exception, state: str | None = 'error',
    ) -> None:
        """Tell that a task is given up.

        :param method: what could not be done, ``build_instances`` say
        :param state: the ``vm_state`` that this leaves the server in
        """
        if not self._senders:
            return
        event = f'compute_task.{method}'
        self._senders.send(
            context, 'error',
            senders.Note(
                f'compute_task.{self._host}', event, functools.partial(
                    compute_task.legacy, method, instance, spec, reason,
                    state)),
            senders.Note(
                self._publisher, f'{event}.error', functools.partial(
                    compute_task.versioned, instance, spec, reason, state)))

    def updated(
        self, context: RequestContext, instance: objects.Instance,
        old: State, new: State,
    ) -> None:
        """Tell that a server's state changed, if such a change is told."""
        if self._on_change is None or not (
                old[0] != new[0] or old[1] != new[1]
                and self._on_change == 'vm_and_task_state'):
            return
        self._senders.send(
            context, 'info',
            senders.Note(
                f'conductor.{self._host}', 'compute.instance.update',
                functools.partial(payloads.legacy_update, instance, old, new)),
            senders.Note(
                self._publisher, 'instance.update', functools.partial(
                    payloads.update, context, instance, old, new)))

    def deleted(
        self, context: RequestContext,
        phase: Literal['start', 'end'], instance: objects.Instance,
    ) -> None:
        """Tell that what was written of a build goes: its user deleted it."""
        if not self._senders:
            return
        self._senders.send(
            context, 'info',
            senders.Note(
                f'compute.{self._host}', f'compute.instance.delete.{phase}',
                functools.partial(payloads.legacy, instance)),
            senders.Note(
                self._publisher, f'instance.delete.{phase}',
                functools.partial(payloads.action, context, instance)))

    def rebuild_scheduled(
        self, context: RequestContext, instance: objects.Instance
    ) -> None:
        """Tell that there is a host for a server that is built anew."""
        if not self._senders:
            return
        self._senders.send(
            context, 'info',
            senders.Note(
                f'compute.{self._host}', 'compute.instance.rebuild.scheduled',
                functools.partial(payloads.legacy, instance)),
            senders.Note(
                self._publisher, 'instance.rebuild_scheduled',
                functools.partial(payloads.rebuild, context, instance)))
