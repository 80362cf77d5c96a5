# SPDX-License-Identifier: Apache-2.0
"""The NUMA cells and devices of a server, as its driver reads them.

The names of attributes are those of Nova's objects.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
from typing import Any
from typing import NamedTuple

from cellsched.hardware.devices import Pool
from cellsched.hardware.fit import Placement

CPUs = frozenset[int]


@dataclasses.dataclass(frozen=True)
class InstanceNUMACell:
    """A NUMA cell of a server on a cell of its host.

    :param id: the id of the host's cell
    :param cpuset: the vCPUs that share the shared CPUs of the host's cell
    :param pcpuset: the vCPUs with a dedicated CPU each
    :param cpu_pinning: the dedicated CPU of each of these, by vCPU
    :param cpuset_reserved: the dedicated CPU of the emulator's threads; empty
        without one
    :param memory: memory, in MiB
    :param pagesize: size of its memory pages, in KiB; None for any pages
    :param cpu_policy: ``shared``, ``dedicated`` or ``mixed``; None is as
        shared
    :param cpu_thread_policy: ``prefer``, ``isolate`` or ``require``; None is
        as prefer
    """

    id: int
    cpuset: CPUs
    pcpuset: CPUs
    cpu_pinning: Mapping[int, int]
    cpuset_reserved: CPUs
    memory: int
    pagesize: int | None
    cpu_policy: str | None
    cpu_thread_policy: str | None


@dataclasses.dataclass(frozen=True)
class InstanceNUMATopology:
    """The NUMA cells of a server.

    :param cells: the cells, in the order of the server
    :param emulator_threads_policy: ``share`` or ``isolate``; None for no
        policy
    """

    cells: tuple[InstanceNUMACell, ...]
    emulator_threads_policy: str | None = None


@dataclasses.dataclass(frozen=True)
class PciDevice:
    """A PCI device of a server.

    If its pool has several devices, the driver selects one of them.

    :param numa_node: the id of the host's cell that it is near to; None if
        the host does not report it
    :param address: the tag ``address`` of its pool; None without the tag
    :param request_id: the id of the request, such as that of a port; None if
        the request has none
    :param extra_info: the other tags of the device, such as ``managed``
    """

    vendor_id: str | None
    product_id: str | None
    dev_type: str | None
    numa_node: int | None
    address: str | None
    request_id: str | None
    extra_info: Mapping[str, Any]


class TakenDevices(NamedTuple):
    """The devices of a pool that a server has for one request."""

    request_id: str | None
    pool: Pool


def numa_topology(
    cells: Placement, emulator_policy: str | None
) -> InstanceNUMATopology | None:
    """Return the cells of a server; None if it has none."""
    if not cells:
        return None
    return InstanceNUMATopology(tuple(InstanceNUMACell(
        each.host_cell, each.guest.cpus, each.guest.pcpus,
        dict(each.pins.cpus), each.pins.reserved, each.guest.memory_mb,
        each.page_size, each.guest.policy, each.guest.thread_policy)
        for each in cells), emulator_policy)


def pci_devices(taken: Iterable[TakenDevices]) -> tuple[PciDevice, ...]:
    """Return the devices of a server, one by one."""
    found: list[PciDevice] = []
    for request_id, pool in taken:
        tags = dict(pool.properties)
        vendor_id, product_id, dev_type, address = (
            tags.pop(name, None)
            for name in ('vendor_id', 'product_id', 'dev_type', 'address'))
        found += [PciDevice(
            vendor_id, product_id, dev_type, pool.numa_node, address,
            request_id, tags)] * pool.count
    return tuple(found)
