# SPDX-License-Identifier: Apache-2.0
"""The client of conductors, and the endpoints that answer it."""

from collections.abc import Callable
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

#: The first version with ``build_instances`` in this form, as in Nova.
BUILD_INSTANCES = '1.19'

#: The first version with the methods that move servers.
MOVES = '1.20'

#: The first version in which servers that migrate keep their disks.
TRANSFERS = '1.21'

#: The version that a server offers.
VERSION = '1.21'


class ConductorAPI(client.Client):
    """Sends tasks to conductors.

    On the API's transport, the receiver is a conductor above the cells, which
    handles ``build_and_schedule`` and moves. On a cell's transport it is the
    cell's conductor, which handles ``build_instances``.

    :param version_cap: ``[upgrade_levels] conductor``; ``build_instances``
        needs 1.19, moves need 1.20, transfers of disks 1.21
    :param version_min: lowest version that the sender requires
    :param send: sends the messages
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
        """Schedule and build these accepted instances.

        They are one request: all are placed together or none.
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
        """Retry builds on their next alternates in the cell.

        :param host_lists: for each instance, in order, the remaining hosts
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
        """Rebuild a server on its host, or evacuate it.

        :param migration_uuid: uuid of the accepted move, which has its kind
        :param image_ref: the new image; by default the current one
        :param host: destination of an evacuation; by default any host of the
            cell
        """
        self.cast(context, 'rebuild_instance', MOVES,
                  instance_uuid=instance_uuid, migration_uuid=migration_uuid,
                  image_ref=image_ref, host=host)

    def migrate_server(
        self, context: request_context.RequestContext, instance_uuid: str,
        migration_uuid: str, host: str | None = None,
        rebuild: bool = False,
    ) -> None:
        """Migrate a server to another host of its cell.

        :param migration_uuid: uuid of the accepted move
        :param host: destination; by default any host of the cell
        :param rebuild: whether the server is built anew, and loses the data
            on its local disks; older conductors always do so, see
            :meth:`check_transfers`
        """
        transfers = self.can_send(TRANSFERS)
        self.cast(context, 'migrate_server',
                  TRANSFERS if transfers else MOVES,
                  instance_uuid=instance_uuid, migration_uuid=migration_uuid,
                  host=host, **({'rebuild': rebuild} if transfers else {}))

    def check_transfers(self) -> None:
        """Check that the conductors keep the disks of servers that migrate.

        :raises cellsched.exception.VersionNotSendable: they are too old
        """
        self._check_version(TRANSFERS)

    def unshelve_instance(
        self, context: request_context.RequestContext, instance_uuid: str,
        migration_uuid: str,
    ) -> None:
        """Build a shelved server on a host of its cell.

        :param migration_uuid: uuid of the accepted move
        """
        self.cast(context, 'unshelve_instance', MOVES,
                  instance_uuid=instance_uuid, migration_uuid=migration_uuid)


class ConductorAPIs(client.Clients[ConductorAPI]):
    """The conductor clients of a process."""

    def __init__(
        self, retries_max: int | None = None, version_cap: versions.Cap = None,
        version_min: str | None = None,
    ) -> None:
        super().__init__(lambda transport: ConductorAPI(
            transport, retries_max, version_cap, version_min))


class _Endpoint:
    """An endpoint of conductors.

    :param run: runs the task with the context and the arguments of a message
    """

    target = oslo_messaging.Target(namespace=NAMESPACE, version=VERSION)

    def __init__(self, run: Callable[..., None]) -> None:
        self._run = run


class SuperConductor(_Endpoint):
    """The endpoint above the cells, on the API's transport."""

    def build_and_schedule(
        self, context: request_context.RequestContext,
        instance_uuids: Sequence[str],
    ) -> None:
        """Build the instances that were accepted under these uuids."""
        self._run(context, instance_uuids)


class MovingConductor(_Endpoint):
    """The endpoint above the cells, for existing servers."""

    def rebuild_instance(
        self, context: request_context.RequestContext, instance_uuid: str,
        migration_uuid: str, image_ref: str | None = None,
        host: str | None = None,
    ) -> None:
        """Rebuild a server on its host, or evacuate it."""
        self._run(context, instance_uuid, migration_uuid, host, image_ref)

    def migrate_server(
        self, context: request_context.RequestContext, instance_uuid: str,
        migration_uuid: str, host: str | None = None,
        rebuild: bool = False,
    ) -> None:
        """Migrate a server to another host of its cell."""
        self._run(
            context, instance_uuid, migration_uuid, host, rebuild=rebuild)

    def unshelve_instance(
        self, context: request_context.RequestContext, instance_uuid: str,
        migration_uuid: str,
    ) -> None:
        """Build a shelved server on a host of its cell."""
        self._run(context, instance_uuid, migration_uuid)


class CellConductor(_Endpoint):
    """The endpoint of a cell, on the cell's transport."""

    def build_instances(
        self, context: request_context.RequestContext,
        instances: Sequence[objects.Instance],
        filter_properties: Mapping[str, Any],
        request_spec: objects.RequestSpec,
        host_lists: Sequence[Sequence[objects.Selection]],
    ) -> None:
        """Retry failed builds on their next hosts in the cell."""
        self._run(
            context, instances, filter_properties, request_spec, host_lists)
