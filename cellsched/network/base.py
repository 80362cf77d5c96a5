# SPDX-License-Identifier: Apache-2.0
"""The contract of a network plug-in."""

import abc
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
from typing import Any
from typing import ClassVar

from oslo_config import cfg

from cellsched.context import RequestContext
from cellsched import objects


class NetworkAPI(abc.ABC):
    """Allocates and deallocates the networks of servers.

    Agents and conductors of a cell call it, each in its own process. One
    process may set up or deallocate networks that another one allocated, so
    the state must be stored outside of the process.

    A build that is rescheduled keeps its networks; only the setup on the old
    host is removed. Networks are deallocated when the server is deleted, when
    it ends in ERROR for good, and on a reschedule if the virtualisation driver
    returns True from ``deallocate_networks_on_reschedule``.

    Each call is about one instance and must be idempotent: after a crash,
    another process repeats it without knowing its result. Calls may block.
    Calls for different instances run concurrently.

    A plug-in raises :class:`cellsched.exception.NetworkError` for a failure.
    Its reason must not name hosts or addresses, because users read it; its
    ``internals`` may. Any other exception ends the build in ERROR without a
    retry on another host.
    """

    #: Group of the options of :meth:`opts`.
    group: ClassVar[str] = 'DEFAULT'

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        """Return the options of this plug-in; none by default."""
        return []

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf

    @abc.abstractmethod
    def allocate_for_instance(
        self, context: RequestContext, instance: objects.Instance,
        requested_networks: Any, host: str,
    ) -> None:
        """Allocate networks and set them up on a host.

        Existing networks of the instance stay as they are, on any host. Must
        leave nothing new behind after a failure.

        :param requested_networks: of the request spec; None for the default
            networks of the project
        :raises cellsched.exception.NetworkError: another host may succeed
        """

    @abc.abstractmethod
    def setup_instance_network_on_host(
        self, context: RequestContext, instance: objects.Instance,
        host: str,
    ) -> None:
        """Set up the networks of the instance on a host.

        Must change nothing if they are set up already, or if the instance has
        none.

        :raises cellsched.exception.NetworkError: another host may succeed
        """

    @abc.abstractmethod
    def cleanup_instance_network_on_host(
        self, context: RequestContext, instance: objects.Instance,
        host: str,
    ) -> None:
        """Remove the setup of the instance's networks from a host.

        The networks and their setup on other hosts stay. Must succeed if there
        is no setup.

        :raises cellsched.exception.NetworkError: deallocation removes it later
        """

    @abc.abstractmethod
    def deallocate_for_instance(
        self, context: RequestContext, instance: objects.Instance
    ) -> None:
        """Deallocate all networks of the instance, on all hosts.

        Must succeed if the instance has none.

        :raises cellsched.exception.NetworkError: the call is repeated later
        """

    # Schedulers call the following methods before a decision, in their own
    # processes, if a plug-in overrides them.

    def segment_aggregates(
        self, context: RequestContext, requested_networks: Any
    ) -> Sequence[Set[str]]:
        """Return the aggregates of the segments of routed networks.

        Called if ``[scheduler] query_placement_for_routed_network_aggregates``
        is set.

        :param requested_networks: see :meth:`allocate_for_instance`, and
            :func:`requested`
        :returns: for each network or port that is bound to hosts the uuids of
            host aggregates; a host must be in one of each
        :raises cellsched.exception.NetworkError: the request is rejected
        """
        return []

    def has_remote_managed_port(
        self, context: RequestContext, requested_networks: Any
    ) -> bool:
        """Return whether a requested port has ``vnic_type`` remote-managed.

        The server then needs a host with the trait
        ``COMPUTE_REMOTE_MANAGED_PORTS``.

        :raises cellsched.exception.NetworkError: the request is rejected
        """
        return False


def requested(
    requested_networks: Any
) -> Iterator[tuple[str | None, str | None]]:
    """Yield the network and the port of each requested network.

    :param requested_networks: Nova's ``NetworkRequestList`` in its wire form
    """
    for each in _data(requested_networks).get('objects') or ():
        data = _data(each)
        yield data.get('network_id'), data.get('port_id')


def _data(value: Any) -> Mapping[str, Any]:
    data = (value.get('nova_object.data') if isinstance(value, Mapping)
            else None)
    return data if isinstance(data, Mapping) else {}
