# SPDX-License-Identifier: Apache-2.0
"""The client of the conductor's tasks."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import oslo_messaging

from cellsched import context as request_context
from cellsched import objects
from cellsched.rpc import client
from cellsched.rpc import versions

TOPIC = 'conductor'
NAMESPACE = 'compute_task'

#: What a server offers: the version of Nova's that has ``build_instances`` as
#: it is here.
VERSION = '1.19'


class ConductorAPI(client.Client):
    """Has a conductor build servers.

    On the API's transport that is a super conductor, which does
    ``build_and_schedule``; on a cell's it is the cell's own, which does
    ``build_instances``.

    :param version_cap: ``[upgrade_levels] conductor``; ``build_instances`` is
        sent as of 1.19 only
    :param version_min: the version that who sends cannot do without
    """

    def __init__(
        self, transport: oslo_messaging.Transport,
        retries_max: int | None = None, version_cap: versions.Cap = None,
        version_min: str | None = None,
    ) -> None:
        super().__init__(
            transport, TOPIC, '1.0', NAMESPACE, retries_max=retries_max,
            version_cap=versions.cap(TOPIC, VERSION, version_cap),
            version_min=version_min)

    def build_and_schedule(
        self, context: request_context.RequestContext,
        instance_uuids: Sequence[str],
    ) -> None:
        """Have the accepted builds of these instances decided and started.

        They are one request: placed together or not at all.
        """
        self.cast(context, 'build_and_schedule',
                  instance_uuids=list(instance_uuids))

    def build_instances(
        self, context: request_context.RequestContext,
        instances: Sequence[objects.Instance],
        filter_properties: Mapping[str, Any],
        request_spec: objects.RequestSpec,
        host_lists: Sequence[Sequence[objects.Selection]],
    ) -> None:
        """Have builds tried on their next alternates, within the cell.

        :param host_lists: for each of the instances, in their order, the
            places that are left to try
        """
        self.cast(context, 'build_instances', VERSION,
                  instances=list(instances),
                  filter_properties=dict(filter_properties),
                  request_spec=request_spec,
                  host_lists=[list(hosts) for hosts in host_lists])
