# SPDX-License-Identifier: Apache-2.0
"""Machines with guests, and a node that moves between them."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import datetime
from typing import Any
from uuid import UUID
from uuid import uuid5

from cellsched.clock import Clock
from cellsched.compute import places
from cellsched import exception
from cellsched.hardware.fit import Ratios
from cellsched.hardware import units
from cellsched import objects
from cellsched.virt import base
from cellsched.virt import fake

#: The name and the uuid of the node that moves, and its VCPUs.
NODE = 'movable'
NODE_ID = '11111111-1111-4111-8111-111111111111'
_NODE_VCPUS = 2

#: A node that keeps its uuid, as bare-metal nodes do: the times at which its
#: guests were spawned, by uuid.
MovableNode = dict[str, datetime.datetime]


class Machine(fake.FakeDriver):
    """The virtualisation driver of a machine, whose host name can change.

    :param destroyed: called with the uuid of each guest that is destroyed
    :param spawned: called with the machine after it has spawned a guest
    :ivar conf: the configuration of the agent that runs on it
    :ivar names: the name of the host; its former name as well, while it gets
        another one
    :ivar reported: all names under which it has reported its own node
    :ivar node: the node that it reports beside its own, if any
    """

    def __init__(
        self, conf: Any, clock: Clock, destroyed: Callable[[str], None],
        spawned: Callable[[Machine], None],
    ) -> None:
        super().__init__(conf, clock)
        self.names = {conf.host}
        self.reported: set[str] = set()
        # The file of another host does not change the machine.
        self._vcpus = conf.fake_virt.vcpus
        self.node: MovableNode | None = None
        self._destroyed = destroyed
        self._spawned = spawned

    def nodes(self) -> dict[str, base.NodeResources]:
        [[name, own]] = super().nodes().items()
        self.reported.add(name)
        nodes = {name: dataclasses.replace(own, vcpus=self._vcpus)}
        if self.node is not None:
            nodes[NODE] = dataclasses.replace(
                own, vcpus=_NODE_VCPUS, uuid=NODE_ID, topology=None,
                devices=())
        return nodes

    def providers(self, host_id: str) -> set[str]:
        """Return the uuids that its own node has had.

        An only node has the uuid of its host. In a cell to which the machine
        came with the movable node, its own node has a uuid of its own.

        :param host_id: the uuid in the state file of the machine
        """
        return {host_id, *(
            str(uuid5(UUID(host_id), f'node {name}'))
            for name in self.reported)}

    def spawn(self, instance: objects.Instance, node: str) -> None:
        if node != NODE:
            super().spawn(instance, node)
            self._spawned(self)
        elif self.node is None:
            raise exception.BuildFailed(
                uuid=instance.uuid, reason='the node is gone')
        else:
            self.node.setdefault(instance.uuid, self.clock.now())

    def destroy(self, instance: objects.Instance) -> None:
        if instance.uuid in self.list_instances():
            self._destroyed(instance.uuid)
        if self.node is not None:
            self.node.pop(instance.uuid, None)
        super().destroy(instance)

    def list_instances(self) -> list[str]:
        return sorted({*super().list_instances(), *(self.node or ())})

    def parts(self) -> dict[str, int]:
        """Return the numbers of its CPUs, pages and devices, by class."""
        return units.inventory(*self._hardware, Ratios())

    def placed(self) -> dict[str, dict[str, int]]:
        """Return the CPUs, pages and devices of servers, by their uuids.

        They are in the files that the agent keeps.
        """
        kept = places.PlaceFiles(self.conf.state_path).read()
        return {uuid: units.amounts(
            self._hardware.topology, place.cells, place.pools)
            for uuid, place in kept.items()}

    def spawned_at(self, uuid: str) -> datetime.datetime | None:
        return (self.node or {}).get(uuid) or super().spawned_at(uuid)
