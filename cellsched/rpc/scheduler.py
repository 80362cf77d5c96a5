# SPDX-License-Identifier: Apache-2.0
"""The client of the scheduler."""

from collections.abc import Sequence
from typing import Any

import oslo_messaging

from cellsched import context as request_context
from cellsched import objects
from cellsched.rpc import client

TOPIC = 'scheduler'

#: What a server offers.
VERSION = '4.5'


class SchedulerAPI(client.Client):
    """Asks a scheduler for hosts."""

    def __init__(
        self, transport: oslo_messaging.Transport,
        timeout_s: float | None = None,
        call_monitor_timeout_s: float | None = None,
    ) -> None:
        super().__init__(
            transport, TOPIC, '4.0', timeout_s=timeout_s,
            call_monitor_timeout_s=call_monitor_timeout_s)

    def select_destinations(
        self, context: request_context.RequestContext,
        spec_obj: objects.RequestSpec, instance_uuids: Sequence[str],
        return_objects: bool = True, return_alternates: bool = True,
    ) -> list[Any]:
        """Return where instances go, in the order of ``instance_uuids``.

        For each of them a list of :class:`cellsched.objects.Selection`: the
        host that was claimed for it, then its alternates, all in one cell.
        Without ``return_objects`` a dict of ``host``, ``nodename`` and
        ``limits`` for each.

        :raises cellsched.exception.NoValidHost: nothing was claimed;
            ``rejections`` says why
        :raises oslo_messaging.MessagingTimeout: what was claimed is not known
        """
        return self.call(
            context, 'select_destinations', VERSION, spec_obj=spec_obj,
            instance_uuids=list(instance_uuids), return_objects=return_objects,
            return_alternates=return_alternates)
