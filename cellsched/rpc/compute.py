# SPDX-License-Identifier: Apache-2.0
"""The client of the compute agents of one cell."""

from collections.abc import Mapping
from collections.abc import Sequence
import threading
from typing import Any

import oslo_messaging

from cellsched import context as request_context
from cellsched import objects
from cellsched.rpc import client

TOPIC = 'compute'

#: What a server offers.
VERSION = '6.0'


class ComputeAPI(client.Client):
    """Tells the agent of a host what to do.

    What is sent to an agent that is not there waits for it.
    """

    def __init__(
        self, transport: oslo_messaging.Transport,
        retries_max: int | None = None,
    ) -> None:
        super().__init__(transport, TOPIC, VERSION, retries_max=retries_max)

    def build_and_run_instance(
        self, context: request_context.RequestContext, host: str,
        instance: objects.Instance, request_spec: objects.RequestSpec,
        filter_properties: Mapping[str, Any], node: str,
        limits: Mapping[str, Any],
        host_list: Sequence[objects.Selection],
    ) -> None:
        """Have the host build an instance on one of its nodes.

        :param limits: what filters allow beyond the host's totals
        :param host_list: the places that are left to try if this one fails
        """
        self.cast(context, 'build_and_run_instance', None, host,
                  instance=instance, request_spec=request_spec,
                  filter_properties=dict(filter_properties), node=node,
                  limits=dict(limits), host_list=list(host_list))

    def terminate_instance(
        self, context: request_context.RequestContext, host: str,
        instance: objects.Instance,
    ) -> None:
        """Have the host remove an instance; it may be gone already."""
        self.cast(context, 'terminate_instance', None, host,
                  instance=instance)


class ComputeAPIs:
    """The clients of a process, one for each cell's transport."""

    def __init__(self, retries_max: int | None = None) -> None:
        self._retries_max = retries_max
        self._lock = threading.Lock()
        self._clients: dict[oslo_messaging.Transport, ComputeAPI] = {}

    def get(self, transport: oslo_messaging.Transport) -> ComputeAPI:
        """Return the client on a transport."""
        with self._lock:
            if transport not in self._clients:
                self._clients[transport] = ComputeAPI(
                    transport, self._retries_max)
            return self._clients[transport]
