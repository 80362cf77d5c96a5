# SPDX-License-Identifier: Apache-2.0
"""Tells of what schedulers do."""

from collections.abc import Sequence
import functools
from typing import Literal

import oslo_messaging

from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.notify.payloads import request_spec
from cellsched.notify import senders
from cellsched import objects


class SchedulerNotifier:
    """Tells what a scheduler does, in the forms that are configured.

    Nothing here fails who calls it: what cannot be sent is logged. Without a
    driver in ``[oslo_messaging_notifications] driver`` nothing is done.

    :param transport: a transport for notifications; its configuration says
        which drivers and legacy topics there are
    :param host: the scheduler's name
    :param form: ``unversioned``, ``versioned`` or ``both``
    :param topics: where versioned notifications go
    :param clock: tells whether a broker is slow; without one none is
    :raises cellsched.exception.PluginNotFound: a driver is not there
    """

    def __init__(
        self, transport: oslo_messaging.Transport, host: str, form: str,
        topics: Sequence[str], clock: Clock | None = None,
    ) -> None:
        self._host = host
        self._senders = senders.Senders(transport, form, topics, clock)

    def select_destinations(
        self, context: RequestContext,
        phase: Literal['start', 'end'], request: objects.RequestSpec,
        instance_uuids: Sequence[str] | None,
    ) -> None:
        """Tell that a decision begins, or that it has found its hosts."""
        if not self._senders:
            return
        event = f'scheduler.select_destinations.{phase}'
        asked = (request, instance_uuids or ())
        self._senders.send(
            context, 'info',
            senders.Note(f'scheduler.{self._host}', event,
                         functools.partial(request_spec.legacy, *asked)),
            senders.Note(f'nova-scheduler:{self._host}', event,
                         functools.partial(request_spec.versioned, *asked)))
