# SPDX-License-Identifier: Apache-2.0
"""The client of the conductor's tasks."""

from collections.abc import Mapping
from collections.abc import Sequence
import threading
from typing import Any

import oslo_messaging

from cellsched import context as request_context
from cellsched import objects
from cellsched.rpc import client
from cellsched.rpc import versions

TOPIC = 'conductor'
NAMESPACE = 'compute_task'

#: What has ``build_instances`` as it is here, in Nova too.
BUILD_INSTANCES = '1.19'

#: What a server offers; those that move servers are new in it.
VERSION = '1.20'


class ConductorAPI(client.Client):
    """Has a conductor build servers.

    On the API's transport that is a super conductor, which does
    ``build_and_schedule`` and moves servers; on a cell's it is the cell's
    own, which does ``build_instances``.

    :param version_cap: ``[upgrade_levels] conductor``; ``build_instances`` is
        sent as of 1.19 only, and what moves servers as of 1.20
    :param version_min: the version that who sends cannot do without
    :param send: what messages are sent by
    """

    def __init__(
        self, transport: oslo_messaging.Transport,
        retries_max: int | None = None, version_cap: versions.Cap = None,
        version_min: str | None = None,
        send: client.Send = client.directly,
    ) -> None:
        super().__init__(
            transport, TOPIC, '1.0', NAMESPACE, retries_max=retries_max,
            version_cap=versions.cap(TOPIC, VERSION, version_cap),
            version_min=version_min, send=send)

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
        request_spec: objects.RequestSpec | None,
        host_lists: Sequence[Sequence[objects.Selection]],
    ) -> None:
        """Have builds tried on their next alternates, within the cell.

        :param host_lists: for each of the instances, in their order, the
            places that are left to try
        """
        self.cast(context, 'build_instances', BUILD_INSTANCES,
                  instances=list(instances),
                  filter_properties=dict(filter_properties),
                  request_spec=request_spec,
                  host_lists=[list(hosts) for hosts in host_lists])

    def rebuild_instance(
        self, context: request_context.RequestContext, instance_uuid: str,
        migration_uuid: str, image_ref: str | None = None,
        host: str | None = None,
    ) -> None:
        """Have a server built anew where it is, or evacuated.

        :param migration_uuid: of the accepted move, which says which
        :param image_ref: the image to build it of; by default its own
        :param host: where it is to be evacuated to; by default anywhere in
            its cell
        """
        self.cast(context, 'rebuild_instance', VERSION,
                  instance_uuid=instance_uuid, migration_uuid=migration_uuid,
                  image_ref=image_ref, host=host)

    def migrate_server(
        self, context: request_context.RequestContext, instance_uuid: str,
        migration_uuid: str, host: str | None = None,
    ) -> None:
        """Have a server go to another host of its cell.

        :param migration_uuid: of the accepted move
        :param host: where it is to go; by default anywhere in its cell
        """
        self.cast(context, 'migrate_server', VERSION,
                  instance_uuid=instance_uuid, migration_uuid=migration_uuid,
                  host=host)

    def unshelve_instance(
        self, context: request_context.RequestContext, instance_uuid: str,
        migration_uuid: str,
    ) -> None:
        """Have a server that was shelved come back to some host of its cell.

        :param migration_uuid: of the accepted move
        """
        self.cast(context, 'unshelve_instance', VERSION,
                  instance_uuid=instance_uuid, migration_uuid=migration_uuid)


class ConductorAPIs:
    """The clients of a process, one for each cell's transport."""

    def __init__(
        self, retries_max: int | None = None, version_cap: versions.Cap = None,
        version_min: str | None = None,
    ) -> None:
        self._options = retries_max, version_cap, version_min
        self._lock = threading.Lock()
        self._clients: dict[oslo_messaging.Transport, ConductorAPI] = {}

    def get(self, transport: oslo_messaging.Transport) -> ConductorAPI:
        """Return the client on a transport."""
        with self._lock:
            if transport not in self._clients:
                self._clients[transport] = ConductorAPI(
                    transport, *self._options)
            return self._clients[transport]
