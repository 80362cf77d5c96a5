# SPDX-License-Identifier: Apache-2.0
"""The client of the compute agents of a cell, and its version cap."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import threading
from typing import Any
from typing import NamedTuple

from oslo_log import log
import oslo_messaging

from cellsched import clock
from cellsched import context as request_context
from cellsched import exception
from cellsched import objects
from cellsched.rpc import client
from cellsched.rpc import versions

TOPIC = 'compute'

#: The version that a server offers.
VERSION = '6.3'

#: The first version with the methods that move servers.
MOVES = '6.1'

#: The first version in which servers that migrate keep their disks.
TRANSFERS = '6.2'

#: The first version in which builds name their node by its uuid.
NODE_UUIDS = '6.3'

#: RPC versions of the compute agent, by the service version that introduced
#: them. A service writes its version into its row; older services have 0.
SERVICE_VERSIONS: Mapping[int, str] = {
    1: '6.0', 2: '6.1', 3: '6.2', 4: '6.3'}

#: The service version of this code.
SERVICE_VERSION = max(SERVICE_VERSIONS)


class ComputeAPI(client.Client):
    """Sends tasks to the agent of a host.

    Messages to an agent that is down wait in its queue.

    :param version_cap: ``[upgrade_levels] compute``, or for ``auto`` a
        function that returns the version
    :param send: sends the messages
    """

    def __init__(
        self, transport: oslo_messaging.Transport,
        retries_max: int | None = None, version_cap: versions.Cap = None,
        send: client.Send = client.directly,
    ) -> None:
        super().__init__(
            transport, TOPIC, '6.0', retries_max=retries_max,
            version_cap=versions.cap(TOPIC, VERSION, version_cap), send=send)

    def build_and_run_instance(
        self, context: request_context.RequestContext, host: str,
        instance: objects.Instance,
        request_spec: objects.RequestSpec | None,
        filter_properties: Mapping[str, Any], node: str,
        limits: Mapping[str, Any],
        host_list: Sequence[objects.Selection],
        node_uuid: str | None = None,
    ) -> None:
        """Build an instance on a node of the host.

        :param limits: limits that filters set beyond the host's totals
        :param host_list: remaining hosts to try if this one fails
        :param node_uuid: the uuid of the node, which has the claim; older
            agents go by the name alone
        """
        identity = {} if node_uuid is None or not self.can_send(
            NODE_UUIDS) else {'node_uuid': node_uuid}
        self.cast(context, 'build_and_run_instance',
                  NODE_UUIDS if identity else None, host,
                  instance=instance, request_spec=request_spec,
                  filter_properties=dict(filter_properties), node=node,
                  limits=dict(limits), host_list=list(host_list), **identity)

    def terminate_instance(
        self, context: request_context.RequestContext, host: str,
        instance: objects.Instance,
    ) -> None:
        """Remove an instance from the host; idempotent."""
        self.cast(context, 'terminate_instance', None, host, instance=instance)

    def check_moves(self) -> None:
        """Check that the agents support moves.

        :raises cellsched.exception.VersionNotSendable: some agents are too
            old
        """
        self._check_version(MOVES)

    def check_transfers(self) -> None:
        """Check that the agents can transfer disks.

        :raises cellsched.exception.VersionNotSendable: some agents are too
            old
        """
        self._check_version(TRANSFERS)

    def rebuild_instance(
        self, context: request_context.RequestContext, host: str,
        instance: objects.Instance, migration_uuid: str, node: str,
    ) -> None:
        """Rebuild a server on this host, for a rebuild or an evacuation.

        :param migration_uuid: uuid of the move, which has the source host
        """
        self._move(context, 'rebuild_instance', host, instance,
                   migration_uuid, node=node)

    def prepare_migration(
        self, context: request_context.RequestContext, host: str,
        instance: objects.Instance, migration_uuid: str, node: str,
    ) -> None:
        """Stop a server of this host, and have its destination fetch it.

        :param node: the node of the destination
        """
        self._move(context, 'prepare_migration', host, instance,
                   migration_uuid, TRANSFERS, node=node)

    def migrate_in(
        self, context: request_context.RequestContext, host: str,
        instance: objects.Instance, migration_uuid: str, node: str,
        disks: Mapping[str, Any] | None = None,
    ) -> None:
        """Start a server that migrates to this host.

        :param disks: the source driver's data, to fetch the disks; without it
            the server is built anew
        """
        if disks is None:
            self._move(context, 'migrate_in', host, instance, migration_uuid,
                       node=node)
        else:
            self._move(context, 'migrate_in', host, instance, migration_uuid,
                       TRANSFERS, node=node, disks=dict(disks))

    def unshelve_instance(
        self, context: request_context.RequestContext, host: str,
        instance: objects.Instance, migration_uuid: str, node: str,
    ) -> None:
        """Build a shelved server on this host."""
        self._move(context, 'unshelve_instance', host, instance,
                   migration_uuid, node=node)

    def shelve_offload_instance(
        self, context: request_context.RequestContext, host: str,
        instance: objects.Instance, migration_uuid: str,
    ) -> None:
        """Remove a shelved server from this host."""
        self._move(context, 'shelve_offload_instance', host, instance,
                   migration_uuid)

    def migrate_out(
        self, context: request_context.RequestContext, host: str,
        instance: objects.Instance, migration_uuid: str,
    ) -> None:
        """End a move on a host that the server has left, or tried to.

        The host removes a server that is elsewhere, and starts a server that
        stays.
        """
        self._move(context, 'migrate_out', host, instance, migration_uuid)

    def _move(
        self, context: request_context.RequestContext, method: str,
        host: str, instance: objects.Instance, migration_uuid: str,
        version: str = MOVES, /, **arguments: Any,
    ) -> None:
        self.cast(context, method, version, host, instance=instance,
                  migration_uuid=migration_uuid, **arguments)


class ComputeAPIs(client.Clients[ComputeAPI]):
    """The compute clients of a process, which have the same version cap."""

    def __init__(
        self, retries_max: int | None = None, version_cap: versions.Cap = None,
        send: client.Send = client.directly,
    ) -> None:
        cap = versions.cap(TOPIC, VERSION, version_cap)
        super().__init__(lambda transport: ComputeAPI(
            transport, retries_max, cap, send))


LOG = log.getLogger(__name__)


class Lowest(NamedTuple):
    """The lowest version of the compute services of the cells.

    :param version: None if no service is known
    :param missing: cells that did not answer
    """

    version: int | None = None
    missing: frozenset[str] = frozenset()


class _Known:
    """The versions found since the last reset."""

    lowest = Lowest()


class ComputeCap:
    """The newest message version that all compute agents support.

    Callable from any thread. With ``auto``, the first call queries the cells,
    and waits for one cell's timeout at most.

    :param pin: the value in the configuration
    :param ask: finds the lowest version of the services
    :param history: message versions by service versions
    :param make_lock: see :meth:`cellsched.clock.Clock.lock`
    """

    def __init__(
        self, pin: str | None, ask: Callable[[], Lowest],
        history: Mapping[int, str] = SERVICE_VERSIONS,
        make_lock: Callable[[], clock.Lock] = threading.Lock,
    ) -> None:
        self._pin = pin if pin in (None, versions.AUTO) else versions.read_pin(
            TOPIC, VERSION, pin, [versions.AUTO])
        self._ask = ask
        self._history = history
        self._lock = make_lock()
        self._known = _Known()

    def __call__(self) -> str | None:
        """Return the version; the newest one while no service is known.

        :raises cellsched.exception.ServiceTooOld: all agents are newer than
            this service
        """
        if not self._is_automatic():
            return self._pin
        known = self._known
        if known.lowest.version is None:
            with self._lock:
                if known.lowest.version is None:
                    self._find_out(known)
        return self._message_version(known.lowest.version)

    def periodic(
        self, interval_s: float
    ) -> list[tuple[Callable[[], None], float]]:
        """Return the periodic tasks of a service, with their intervals."""
        if not self._is_automatic():
            return []
        return [(self.ask_the_missing, max(interval_s, 1.0))]

    def ask_the_missing(self) -> None:
        """Query again if some cells did not answer; may lower the version.

        The version is never raised, because other cells may be missing now.
        """
        known = self._known
        if known.lowest.missing:
            with self._lock:
                self._find_out(known)

    def forget(self) -> None:
        """Reset the version; the next call queries the cells.

        Safe in a signal handler: acquires no lock.
        """
        self._known = _Known()

    def _is_automatic(self) -> bool:
        return self._pin == versions.AUTO

    def _find_out(self, known: _Known) -> None:
        found, before = self._ask(), known.lowest.version
        lowest = min(filter(None, (found.version, before)), default=None)
        known.lowest = found._replace(version=lowest)
        if lowest is not None and lowest != before:
            LOG.info('The oldest compute service that answered has version '
                     '%d; the newest known version is %d',
                     lowest, max(self._history))

    def _message_version(self, lowest: int | None) -> str:
        newest = max(self._history)
        if lowest is None:
            return self._history[newest]
        if lowest > newest:
            raise exception.ServiceTooOld(known=newest, version=lowest)
        return self._history[max(
            version for version in self._history if version <= lowest)]
