# SPDX-License-Identifier: Apache-2.0
"""The contract of a virtualisation driver."""

import abc
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
from typing import Any
from typing import ClassVar

from oslo_config import cfg

from cellsched.clock import Clock
from cellsched.hardware.devices import Pools
from cellsched.hardware.host import HostTopology
from cellsched import objects
from cellsched.objects import resources


@dataclasses.dataclass(frozen=True)
class ChildProvider:
    """A resource provider below a node, such as a GPU or a NUMA node.

    Its inventory is claimed separately and is not part of the node's
    inventory. Without a uuid of its own, its uuid is derived from the node's
    uuid and its name, so the name must be stable across restarts. A child that
    is no longer reported has no inventory left; the claims of existing servers
    stay.

    :param inventories: inventories by resource class; may be empty, for
        example if only its children have inventories
    :param traits: traits of capital letters, digits and ``_``, at most 255
        characters each; the node's traits are not inherited
    :param parent: name of its parent, a child of the same node; None directly
        below the node
    :param uuid: uuid that the device keeps when its name or its node changes;
        None if it has none
    """

    inventories: Mapping[str, resources.Inventory] = dataclasses.field(
        default_factory=dict)
    traits: frozenset[str] = frozenset()
    parent: str | None = None
    uuid: str | None = None


@dataclasses.dataclass(frozen=True)
class NodeResources:
    """The physical resources of a node, and its capabilities.

    Filters and weighers read these values. Each change is written to the cell,
    so round values that always change, such as metrics.

    :param vcpus: physical CPUs; if the topology has dedicated CPUs, its
        shared CPUs count instead
    :param memory_mb: memory in MB
    :param local_gb: disk in GB
    :param cpu_info: description of the CPUs, JSON-compatible or as JSON text
    :param supported_instances: kinds of instances: architecture, hypervisor
        type and VM mode of each
    :param host_ip: address of the host
    :param metrics: mappings of ``name`` and ``value``
    :param traits: traits of the node
    :param inventories: inventories of further resource classes by name, such
        as ``VGPU`` or ``CUSTOM_…``; those of CPUs, memory and disk follow from
        the values above and from options, unless they are given here
    :param providers: the child providers of the node on all levels, at most
        1000, by name; a name has 1 to 200 printable characters, is unique in
        the node and differs from the node's; an invalid child fails the whole
        report of the host
    :param stats: further statistics by name, JSON-compatible; the agent's own
        statistics override them
    :param topology: the NUMA cells of the node without its servers; None if
        it reports none
    :param devices: pools of the PCI devices that servers can have, without
        regard to its servers; the agent subtracts what they use; they are not
        among the providers
    :param uuid: uuid that the node keeps when its name, its agent or its cell
        changes, such as that of a bare-metal node; None if the node is this
        host itself, which keeps its uuid in ``[DEFAULT] state_path``
    """

    vcpus: int
    memory_mb: int
    local_gb: int
    hypervisor_type: str = 'unknown'
    hypervisor_version: int = 0
    cpu_info: str | Mapping[str, Any] = ''
    supported_instances: Sequence[tuple[str, str, str]] = ()
    host_ip: str | None = None
    metrics: Sequence[Mapping[str, Any]] = ()
    traits: frozenset[str] = frozenset()
    stats: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    inventories: Mapping[str, resources.Inventory] = dataclasses.field(
        default_factory=dict)
    providers: Mapping[str, ChildProvider] = dataclasses.field(
        default_factory=dict)
    uuid: str | None = None
    topology: HostTopology | None = None
    devices: Pools = ()


class ComputeDriver(abc.ABC):
    """Builds and removes servers on one host.

    Calls may block for as long as a build takes. The agent makes one call at a
    time for an instance; calls for different instances run concurrently.
    """

    #: The option group of :meth:`opts`.
    group: ClassVar[str] = 'DEFAULT'

    #: Whether this host can transfer the disks of servers to and from other
    #: hosts that can. Without it, a server that migrates is built anew and
    #: loses its local disks. The agent reports it as a trait of its nodes.
    supports_migration: bool = False

    #: Whether the driver reads ``instance.allocations``, such as the child
    #: providers of a server. The agent then reads the claims of each server
    #: before its driver gets it.
    reads_allocations: bool = False

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        """Return the options of this driver; none by default."""
        return []

    def __init__(self, conf: cfg.ConfigOpts, clock: Clock) -> None:
        self.conf = conf
        self.clock = clock

    @abc.abstractmethod
    def nodes(self) -> dict[str, NodeResources]:
        """Return the nodes of this host by name; most hosts have one.

        A node that is left out gets no more servers. Its row and the claims
        of its servers stay until nothing is on it. Raise an error if the
        nodes cannot be listed.
        """

    @abc.abstractmethod
    def spawn(self, instance: objects.Instance, node: str) -> None:
        """Build the server and start it.

        ``instance.numa_topology`` has the NUMA cells of the server, with the
        dedicated CPU of each vCPU and the page size of each cell; None if it
        has no cells. ``instance.pci_devices`` has its PCI devices. They are
        those of its claims, and no other server has them. See
        :mod:`cellsched.hardware.instance`. ``instance.allocations`` has the
        claimed ``resources`` by the uuid of their provider, if
        :attr:`reads_allocations` is true. :meth:`transfer_disks` and
        :meth:`finish_migration` get all of this, too.

        Must leave nothing behind after a failure. Must succeed and change
        nothing if the server runs already.

        :raises cellsched.exception.BuildFailed: another host may succeed; its
            reason must not name hosts or addresses, because users read it, but
            its ``internals`` may
        :raises cellsched.exception.BuildAborted: no other host would succeed;
            likewise
        """

    @abc.abstractmethod
    def destroy(self, instance: objects.Instance) -> None:
        """Stop and remove the server; must succeed if it is not here.

        It also removes a server that :meth:`prepare_migration` has stopped,
        and what a migration to this host has transferred. The agent calls it
        on the source of a migration after the server runs on its destination.
        """

    def deallocate_networks_on_reschedule(
        self, instance: objects.Instance
    ) -> bool:
        """Return whether networks are of no use on another host.

        By default a build that is rescheduled keeps its networks. A bare-metal
        driver, whose networks belong to the machine, returns True: this host
        deallocates them, and the next host allocates new ones.
        """
        return False

    @abc.abstractmethod
    def list_instances(self) -> list[str]:
        """Return the uuids of the servers on this host.

        Servers that are prepared for a migration, and servers that are being
        transferred to this host, are on it too.
        """

    def prepare_migration(
        self, instance: objects.Instance
    ) -> Mapping[str, Any]:
        """Stop a server, and make its disks ready to leave this host.

        The disks and the definition of the server stay on this host until
        :meth:`destroy` or :meth:`revert_migration`. Until then
        :meth:`list_prepared` lists the server, and :meth:`list_instances`
        too. Blocks until the guest has stopped. Idempotent: a server that is
        prepared already stays so, and the same data is returned. After a
        failure the agent calls :meth:`revert_migration`.

        Like the other methods of a migration, it is called only if
        :attr:`supports_migration` is true.

        :returns: data for the destination, JSON-compatible, such as the
            address and the sizes of the disks; it has no credentials
        :raises cellsched.exception.BuildFailed: names the problem
        """
        raise NotImplementedError

    def transfer_disks(
        self, instance: objects.Instance, node: str, data: Mapping[str, Any],
        progress: Callable[[], None],
    ) -> None:
        """Fetch the disks of a server from its source, without starting it.

        Blocks until all disks are complete on this host. The source does not
        change. This host has no server of this uuid before. After a failure,
        or if the agent ends, the agent calls :meth:`destroy`, which must
        remove an incomplete transfer.

        :param data: the data of :meth:`prepare_migration`
        :param progress: to be called at least once a minute; it raises an
            error if the migration has ended, and the transfer must end then
        :raises cellsched.exception.BuildFailed: names the problem, for
            example data of another driver
        """
        raise NotImplementedError

    def finish_migration(self, instance: objects.Instance, node: str) -> None:
        """Start a server from its transferred disks.

        Must succeed and change nothing if the server runs already. After a
        failure the agent calls :meth:`destroy`.

        :raises cellsched.exception.BuildFailed: names the problem
        """
        raise NotImplementedError

    def revert_migration(self, instance: objects.Instance) -> None:
        """Start a server that was prepared, after its migration has failed.

        The server has the disks and the networks that it had before.
        :meth:`list_prepared` does not list it any more. Must succeed and
        change nothing if the server runs, or is not here. After a failure it
        is called again.
        """
        raise NotImplementedError

    def list_prepared(self) -> list[str]:
        """Return the uuids of the servers that are stopped to migrate.

        These are the servers that :meth:`prepare_migration` has begun to
        stop, and that were neither destroyed nor reverted. The list must
        survive a restart of the agent or of the host, which must not start
        these servers itself.
        """
        return []

    def spawned_at(self, uuid: str) -> datetime.datetime | None:
        """Return the time at which a server came to this host.

        This is when it was spawned, or when its transfer began.

        It is in UTC, without a time zone, by the clock of the host, and stays
        across restarts. The agent removes a server that left this host only
        if a move record is newer than this time. By default it is None, not
        known: then the server stays until it is deleted.
        """
        return None
