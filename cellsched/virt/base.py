# SPDX-License-Identifier: Apache-2.0
"""The contract of a virtualisation driver."""

import abc
import dataclasses
from typing import Any
from typing import ClassVar

from oslo_config import cfg

from cellsched import objects


@dataclasses.dataclass(frozen=True)
class NodeResources:
    """What a node physically has; memory in MB, disk in GB."""

    vcpus: int
    memory_mb: int
    local_gb: int
    hypervisor_type: str = 'unknown'
    hypervisor_version: int = 0


class Driver(abc.ABC):
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

    def __init__(self, conf: cfg.ConfigOpts, clock: Any) -> None:
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

    @abc.abstractmethod
    def list_instances(self) -> list[str]:
        """Return the uuids of the servers on this host."""
