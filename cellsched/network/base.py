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
    """Gives servers their networks and takes them back.

    The agents and the conductors of a cell call it, each in a process of its
    own. What one of them gave, another one may set up elsewhere or take back,
    so what was given must be known outside of the process.

    A build that fails on its host and goes on on another one keeps its
    networks; only what was set up on the host is taken down there. What a
    server was given goes when it is deleted, when it ends in error for good,
    and between two hosts where the virtualisation driver says
    ``deallocate_networks_on_reschedule``.

    Every call is about one instance, which its uuid tells from others. Each
    must be idempotent: whoever dies in the middle is followed by another who
    calls again, not knowing how far the first one came. Calls may block, and
    calls for different instances are made at once.

    What a plug-in cannot do now it says by
    :class:`cellsched.exception.NetworkError`, with a reason that names no
    host and no address, for users read it. Any other exception ends the build
    in error, on whatever host.
    """

    #: Where the options of :meth:`opts` are registered.
    group: ClassVar[str] = 'DEFAULT'

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        """Return the options that this plug-in reads, none by default."""
        return []

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf

    @abc.abstractmethod
    def allocate_for_instance(
        self, context: RequestContext, instance: objects.Instance,
        requested_networks: Any, host: str,
    ) -> None:
        """Give the instance its networks, set up on a host.

        What it has already it keeps, as it is and wherever it is set up.
        Must leave nothing new behind when it fails.

        :param requested_networks: what the user wishes, as the request spec
            has it; None for what every server of the project gets
        :raises cellsched.exception.NetworkError: another host may do
        """

    @abc.abstractmethod
    def setup_instance_network_on_host(
        self, context: RequestContext, instance: objects.Instance,
        host: str,
    ) -> None:
        """Make what the instance has usable on a host.

        Must change nothing where it is so already, and for an instance that
        has no networks.

        :raises cellsched.exception.NetworkError: another host may do
        """

    @abc.abstractmethod
    def cleanup_instance_network_on_host(
        self, context: RequestContext, instance: objects.Instance,
        host: str,
    ) -> None:
        """Take down what was set up for the instance on a host.

        It keeps its networks, and what is set up on other hosts. Must succeed
        where nothing is set up.

        :raises cellsched.exception.NetworkError: it may go later, with the
            networks
        """

    @abc.abstractmethod
    def deallocate_for_instance(
        self, context: RequestContext, instance: objects.Instance
    ) -> None:
        """Take back all that the instance has, on whatever host it is set up.

        Must succeed for an instance that has nothing.

        :raises cellsched.exception.NetworkError: it is called again later
        """

    # What follows is asked by schedulers, in processes of their own, before
    # they decide. A plug-in that does not override it is not asked.

    def segment_aggregates(
        self, context: RequestContext, requested_networks: Any
    ) -> Sequence[Set[str]]:
        """Return where the segments of the requested routed networks are.

        Asked where ``[scheduler]
        query_placement_for_routed_network_aggregates`` is set.

        :param requested_networks: see :meth:`allocate_for_instance`, and
            :func:`requested`
        :returns: for each network or port that is bound to hosts the uuids of
            host aggregates; a host has to be in one of each
        :raises cellsched.exception.NetworkError: the request is refused
        """
        return []

    def has_remote_managed_port(
        self, context: RequestContext, requested_networks: Any
    ) -> bool:
        """Return whether a requested port has ``vnic_type`` remote-managed.

        Its server needs a host with the trait
        ``COMPUTE_REMOTE_MANAGED_PORTS``.

        :raises cellsched.exception.NetworkError: the request is refused
        """
        return False


def requested(
    requested_networks: Any
) -> Iterator[tuple[str | None, str | None]]:
    """Yield the network and the port of each that is requested.

    :param requested_networks: Nova's ``NetworkRequestList``, as it travels
    """
    for each in _data(requested_networks).get('objects') or ():
        data = _data(each)
        yield data.get('network_id'), data.get('port_id')


def _data(said: Any) -> Mapping[str, Any]:
    data = said.get('nova_object.data') if isinstance(said, Mapping) else None
    return data if isinstance(data, Mapping) else {}
