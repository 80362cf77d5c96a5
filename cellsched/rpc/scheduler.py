# SPDX-License-Identifier: Apache-2.0
"""The RPC client of the scheduler."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import oslo_messaging

from cellsched import context as request_context
from cellsched import exception
from cellsched import objects
from cellsched.objects import legacy
from cellsched.rpc import client
from cellsched.rpc import versions

TOPIC = 'scheduler'

#: The version that a server offers.
VERSION = '4.5'

#: Number of servers from which on placing a request may take seconds.
LONG_FROM = 100


class SchedulerAPI(client.Client):
    """Calls a scheduler for hosts.

    A request for many servers may take up to the long timeout while the
    scheduler sends heartbeats.

    :param now: returns seconds since the epoch by the clock of the API
        database, as schedulers do; without it they may process expired
        requests
    :param version_cap: ``[upgrade_levels] scheduler``, a release or a number;
        the newest version up to it is sent
    :param version_min: lowest version that the caller requires
    """

    def __init__(
        self, transport: oslo_messaging.Transport,
        now: Callable[[], float] | None = None,
        timeout_s: float | None = None, long_timeout_s: float | None = None,
        version_cap: versions.Cap = None, version_min: str | None = None,
    ) -> None:
        super().__init__(
            transport, TOPIC, '4.0', timeout_s=timeout_s,
            long_timeout_s=long_timeout_s,
            version_cap=versions.cap(TOPIC, VERSION, version_cap),
            version_min=version_min, now=now)

    def select_destinations(
        self, context: request_context.RequestContext,
        spec_obj: objects.RequestSpec, instance_uuids: Sequence[str],
        return_objects: bool = True, return_alternates: bool = True,
    ) -> list[Any]:
        """Return the hosts of instances, in the order of ``instance_uuids``.

        For each instance a list of :class:`cellsched.objects.Selection`: the
        claimed host, then its alternates, all in one cell. Without
        ``return_objects`` a dict of ``host``, ``nodename`` and ``limits`` for
        each.

        Below version 4.4 the uuids are not sent. The scheduler then selects
        ``num_instances`` hosts and claims none.

        :raises cellsched.exception.NoValidHost: nothing was claimed;
            ``rejections`` has the reasons
        :raises cellsched.exception.HostStateUncertain: another scheduler may
            decide otherwise
        :raises oslo_messaging.MessagingTimeout: the claims are unknown
        :raises SelectionObjectsWithOldRPCVersionNotSupported: of
            :mod:`cellsched.exception`: objects or alternates need version 4.5
        """
        version, arguments = self._form(
            spec_obj, list(instance_uuids), return_objects, return_alternates)
        call = self.call
        if max(len(instance_uuids), spec_obj.num_instances) >= LONG_FROM:
            call = self.call_long
        return call(context, 'select_destinations', version, **arguments)

    def _form(
        self, spec: objects.RequestSpec, uuids: list[str],
        return_objects: bool, return_alternates: bool,
    ) -> tuple[str, dict[str, Any]]:
        """Return the newest version that may be sent, and its arguments."""
        cap = self._cap()
        if versions.can_send('4.5', cap):
            return '4.5', {
                'spec_obj': spec, 'instance_uuids': uuids,
                'return_objects': return_objects,
                'return_alternates': return_alternates}
        if return_objects or return_alternates:
            raise exception.SelectionObjectsWithOldRPCVersionNotSupported(
                version=cap)
        if versions.can_send('4.4', cap):
            return '4.4', {'spec_obj': spec, 'instance_uuids': uuids}
        if versions.can_send('4.3', cap):
            return '4.3', {'spec_obj': spec}
        return '4.0', _dicts(spec)


def _dicts(spec: objects.RequestSpec) -> dict[str, Any]:
    request_spec, filter_properties = legacy.dicts(spec)
    return {'request_spec': request_spec,
            'filter_properties': filter_properties}
