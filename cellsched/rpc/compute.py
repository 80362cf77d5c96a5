# SPDX-License-Identifier: Apache-2.0
"""The client of the compute agents of one cell."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import threading
from typing import Any

from oslo_log import log
import oslo_messaging

from cellsched import clock
from cellsched import context as request_context
from cellsched import exception
from cellsched import objects
from cellsched.rpc import client
from cellsched.rpc import versions

TOPIC = 'compute'

#: What a server offers.
VERSION = '6.1'

#: What has the methods that move servers.
MOVES = '6.1'

#: What compute services offer, by the versions of services that changed it.
#: A service writes its version into its row. Zero is one from before that.
SERVICE_VERSIONS: Mapping[int, str] = {1: '6.0', 2: '6.1'}

#: The version of a compute service that this code is.
SERVICE_VERSION = max(SERVICE_VERSIONS)


class ComputeAPI(client.Client):
    """Tells the agent of a host what to do.

    What is sent to an agent that is not there waits for it.

    :param version_cap: ``[upgrade_levels] compute``, or for ``auto`` what
        finds the version out
    :param send: what messages are sent by
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

    def check_moves(self) -> None:
        """Make sure that the agents know what moves servers.

        :raises cellsched.exception.VersionNotSendable: some are too old
        """
        self._check_version(MOVES)

    def rebuild_instance(
        self, context: request_context.RequestContext, host: str,
        instance: objects.Instance, migration_uuid: str, node: str,
    ) -> None:
        """Have the host build a server anew that it has, or had not.

        :param migration_uuid: of the move that tells where the server was
        """
        self._move(context, 'rebuild_instance', host, instance,
                   migration_uuid, node=node)

    def migrate_in(
        self, context: request_context.RequestContext, host: str,
        instance: objects.Instance, migration_uuid: str, node: str,
    ) -> None:
        """Have the host take a server over from another one."""
        self._move(context, 'migrate_in', host, instance, migration_uuid,
                   node=node)

    def unshelve_instance(
        self, context: request_context.RequestContext, host: str,
        instance: objects.Instance, migration_uuid: str, node: str,
    ) -> None:
        """Have the host build a server that was on none."""
        self._move(context, 'unshelve_instance', host, instance,
                   migration_uuid, node=node)

    def shelve_offload_instance(
        self, context: request_context.RequestContext, host: str,
        instance: objects.Instance, migration_uuid: str,
    ) -> None:
        """Have the host let go of a server that is kept."""
        self._move(context, 'shelve_offload_instance', host, instance,
                   migration_uuid)

    def migrate_out(
        self, context: request_context.RequestContext, host: str,
        instance: objects.Instance, migration_uuid: str,
    ) -> None:
        """Have the host remove what a move left on it."""
        self._move(context, 'migrate_out', host, instance, migration_uuid)

    def _move(
        self, context: request_context.RequestContext, method: str,
        host: str, instance: objects.Instance, migration_uuid: str,
        **arguments: Any,
    ) -> None:
        self.cast(context, method, MOVES, host, instance=instance,
                  migration_uuid=migration_uuid, **arguments)


class ComputeAPIs:
    """The clients of a process, one for each cell's transport.

    They may all send the same versions, whichever cell they are for.
    """

    def __init__(
        self, retries_max: int | None = None, version_cap: versions.Cap = None,
        send: client.Send = client.directly,
    ) -> None:
        self._options = (
            retries_max, versions.cap(TOPIC, VERSION, version_cap), send)
        self._lock = threading.Lock()
        self._clients: dict[oslo_messaging.Transport, ComputeAPI] = {}

    def get(self, transport: oslo_messaging.Transport) -> ComputeAPI:
        """Return the client on a transport."""
        with self._lock:
            if transport not in self._clients:
                self._clients[transport] = ComputeAPI(
                    transport, *self._options)
            return self._clients[transport]


LOG = log.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Lowest:
    """The lowest version of the compute services that could be asked for it.

    :param version: None where no service told
    :param missing: cells that did not answer
    """

    version: int | None = None
    missing: frozenset[str] = frozenset()


class _Known:
    """The versions found since somebody asked for them."""

    lowest = Lowest()


class ComputeCap:
    """The newest version of messages that compute agents may be sent.

    To be called, by any thread. With ``auto`` it is what every agent
    understands, found out by the first call. That waits for cells only as
    long as one of them may take.

    :param pin: as it is in the configuration
    :param ask: finds the lowest version of the services
    :param history: versions of messages by those of services
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

        :raises cellsched.exception.ServiceTooOld: every agent is newer than
            what is known here
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
        """Return what a service is to do in between, and how often."""
        if not self._is_automatic():
            return []
        return [(self.ask_the_missing, max(interval_s, 1.0))]

    def ask_the_missing(self) -> None:
        """Ask again if some cells did not answer; may lower the version.

        It is not raised, as others may be missing now.
        """
        known = self._known
        if known.lowest.missing:
            with self._lock:
                self._find_out(known)

    def forget(self) -> None:
        """Have the next call find out anew.

        May be called by a signal handler, so it waits for no lock.
        """
        self._known = _Known()

    def _is_automatic(self) -> bool:
        return self._pin == versions.AUTO

    def _find_out(self, known: _Known) -> None:
        found, before = self._ask(), known.lowest.version
        lowest = min(filter(None, (found.version, before)), default=None)
        known.lowest = dataclasses.replace(found, version=lowest)
        if lowest is not None and lowest != before:
            LOG.info('The oldest compute service that answers has version %d; '
                     'the newest that is known here is %d',
                     lowest, max(self._history))

    def _message_version(self, lowest: int | None) -> str:
        newest = max(self._history)
        if lowest is None:
            return self._history[newest]
        if lowest > newest:
            raise exception.ServiceTooOld(known=newest, version=lowest)
        return self._history[max(
            version for version in self._history if version <= lowest)]
