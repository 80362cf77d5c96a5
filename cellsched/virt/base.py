# SPDX-License-Identifier: Apache-2.0
"""The contract of a virtualisation driver."""

import abc
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any
from typing import ClassVar

from oslo_config import cfg

from cellsched.clock import Clock
from cellsched import objects
from cellsched.objects import resources


@dataclasses.dataclass(frozen=True)
class ChildProvider:
    """A resource provider below a node, such as a GPU or a NUMA node.

    What it has is claimed of it alone: nothing of it is the node's too. Its
    uuid follows from the node's uuid and its name, so that a name must stand
    for the same thing after a restart. One that is reported no more has
    nothing left to claim; what servers hold of it, they hold.

    :param inventories: what it has, by names of resource classes; it may be
        nothing, as where only those below it have something
    :param traits: names of what it can do, of capital letters, digits and
        ``_``, at most 255 characters each; those of the node are not its own
    :param parent: name of the child of the same node that it is directly
        below; None, directly below the node
    """

    inventories: Mapping[str, resources.Inventory] = dataclasses.field(
        default_factory=dict)
    traits: frozenset[str] = frozenset()
    parent: str | None = None


@dataclasses.dataclass(frozen=True)
class NodeResources:
    """The physical resources of a node, and its capabilities.

    Filters and weighers of schedulers read it as it is said here. The cell is
    told again when some of it changed, so that figures which always move,
    such as metrics, had better be rounded.

    :param memory_mb: memory in MB
    :param local_gb: disk in GB
    :param cpu_info: what the CPUs are, in a form that JSON has, or as its text
    :param supported_instances: what the node can run: architecture,
        hypervisor type and VM mode of each kind
    :param host_ip: address of the host
    :param metrics: each a mapping of ``name`` and ``value``
    :param traits: names of what the node can do
    :param inventories: what the node has of other resource classes, by their
        names: ``VGPU``, ``CUSTOM_…``; those of CPUs, memory and disk follow
        from the figures above and from options, unless they are named here
    :param providers: the child providers of the node, on every level, at most
        1000; by their names, which are 1 to 200 printable characters, unique
        in the node and not the node's own. What is wrong with one makes the
        report of the host fail, before any of it is told
    :param stats: more figures by name, in a form that JSON has; those that
        the agent counts itself go before them
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


class ComputeDriver(abc.ABC):
    """Builds and removes servers on one host.

    Calls may block for as long as a build takes. The agent makes one call for
    an instance at a time, and calls for different instances at once.
    """

    #: Where the options of :meth:`opts` are registered.
    group: ClassVar[str] = 'DEFAULT'

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        """Return the options that this driver reads, none by default."""
        return []

    def __init__(self, conf: cfg.ConfigOpts, clock: Clock) -> None:
        self.conf = conf
        self.clock = clock

    @abc.abstractmethod
    def nodes(self) -> dict[str, NodeResources]:
        """Return the nodes of this host by name; most hosts have one."""

    @abc.abstractmethod
    def spawn(self, instance: objects.Instance, node: str) -> None:
        """Build the server and start it.

        Must leave nothing behind when it fails. To spawn what runs here
        already must succeed and change nothing.

        :raises cellsched.exception.BuildFailed: another host may do
        :raises cellsched.exception.BuildAborted: no other host would do
        """

    @abc.abstractmethod
    def destroy(self, instance: objects.Instance) -> None:
        """Stop the server and remove it; must succeed when it is not here."""

    def deallocate_networks_on_reschedule(
        self, instance: objects.Instance
    ) -> bool:
        """Return whether networks are of no use on another host.

        A build that fails here and goes on elsewhere keeps its networks by
        default. A driver of bare metal, whose networks are those of the very
        machine, returns True: they are taken back here, and the next host
        gives new ones.
        """
        return False

    @abc.abstractmethod
    def list_instances(self) -> list[str]:
        """Return the uuids of the servers on this host."""
