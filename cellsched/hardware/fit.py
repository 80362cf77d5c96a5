# SPDX-License-Identifier: Apache-2.0
"""Place the cells of a server on the cells of a host.

Source: Nova 34, ``nova/virt/hardware.py``, ``numa_fit_instance_to_host``. A
verdict on a pair of cells depends on this pair only. Nova confuses the
verdicts of several guest cells in some cases, and refuses hosts that fit.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import functools
import itertools
from typing import NamedTuple

from cellsched.hardware import devices
from cellsched.hardware.devices import DeviceRequest
from cellsched.hardware.devices import Mappings
from cellsched.hardware.devices import Pools
from cellsched.hardware import guest
from cellsched.hardware.guest import GuestCell
from cellsched.hardware.guest import GuestTopology
from cellsched.hardware.host import HostCell
from cellsched.hardware.host import HostTopology


class Networks(NamedTuple):
    """The networks of a server's ports.

    :param physnets: names of physical networks
    :param tunneled: whether any network is tunneled
    """

    physnets: frozenset[str] = frozenset()
    tunneled: bool = False


class Ratios(NamedTuple):
    """The allocation ratios of a host, for shared CPUs and memory."""

    cpu: float = 1.0
    memory: float = 1.0


CPUs = frozenset[int]


class Pins(NamedTuple):
    """The CPUs of a guest cell.

    :param cpus: CPU of each dedicated vCPU, as tuples of vCPU and CPU
    :param reserved: the CPU for the emulator's threads; empty without one
    """

    cpus: tuple[tuple[int, int], ...] = ()
    reserved: CPUs = frozenset()


class PlacedCell(NamedTuple):
    """A guest cell on a host cell.

    :param host_cell: id of the host cell
    :param page_size: size of its memory pages in KiB; None if it does not
        matter
    """

    guest: GuestCell
    host_cell: int
    page_size: int | None = None
    pins: Pins = Pins()

    @property
    def pinned(self) -> frozenset[int]:
        """The dedicated CPUs, with that of the emulator."""
        return self.pins.reserved.union(cpu for _, cpu in self.pins.cpus)


Placement = tuple[PlacedCell, ...]


class Demand(NamedTuple):
    """Everything about a server that decides on which cells it fits.

    :param topology: its cells; None if any cells serve
    :param packs: whether cells with less free capacity are tried first
    :param is_claimed: whether only CPUs that the server has claimed are free
    """

    topology: GuestTopology | None
    devices: tuple[DeviceRequest, ...] = ()
    networks: Networks = Networks()
    packs: bool = False
    is_claimed: bool = False


def fit(
    host: HostTopology | None, demand: Demand, ratios: Ratios = Ratios(),
    pools: Pools | None = None, mappings: Mappings | None = None,
) -> Placement | None:
    """Return the cells of a host for a server; None if it does not fit.

    :param host: the host; None if it reports no cells
    :param pools: the free devices of the host; None if it reports none
    :param mappings: providers by request group, of an allocation candidate;
        None if the requests name their providers
    """
    topology = demand.topology
    if topology is None:
        found = has_devices(host, demand, pools, mappings, cells=None)
        return () if found else None
    cells = topology.cells
    if host is None or len(cells) > len(host.cells):
        return None

    @functools.cache
    def placed(place: int, number: int) -> PlacedCell | None:
        return place_cell(
            ordered[place], cells[number], ratios,
            emulator=topology.isolates_emulator and number == 0,
            claimed=demand.is_claimed)

    # Sets of host cells that no placement begins with. Their order does not
    # matter: the remaining cells, devices and networks are the same.
    futile = set[frozenset[int]]()

    def search(taken: tuple[int, ...]) -> Placement | None:
        """Return the first placement that begins with these host cells."""
        if frozenset(taken) in futile:
            return None
        if len(taken) == len(cells):
            ids = frozenset(ordered[each].id for each in taken)
            if (has_devices(host, demand, pools, mappings, ids)
                    and has_networks(host, demand.networks, ids)):
                return tuple(
                    found for number, place in enumerate(taken)
                    if (found := placed(place, number)) is not None)
        else:
            for place in range(len(ordered)):
                if place not in taken and placed(place, len(taken)):
                    placement = search((*taken, place))
                    if placement is not None:
                        return placement
        futile.add(frozenset(taken))
        return None

    ordered = order(host, topology, demand, pools)
    return search(())


def order(
    host: HostTopology, topology: GuestTopology, demand: Demand,
    pools: Pools | None,
) -> Sequence[HostCell]:
    """Return the host cells in the order in which they are tried."""
    cells = list(host.cells)
    if len(cells) == len(topology.cells):
        return cells
    # reverse keeps the order of equal cells.
    cells.sort(key=lambda cell: cell.free_memory_mb,
               reverse=not demand.packs)
    if topology.cells[0].is_pinned:
        cells.sort(key=lambda cell: len(cell.free_pcpus),
                   reverse=not demand.packs)
    else:
        cells.sort(key=lambda cell: cell.cpu_usage, reverse=demand.packs)
    if pools:
        free = dict.fromkeys((each.id for each in cells), 0)
        for pool in pools:
            if pool.numa_node in free:
                free[pool.numa_node] += pool.count
        cells.sort(key=lambda cell: free[cell.id],
                   reverse=bool(demand.devices))
    return cells


def place_cell(
    cell: HostCell, guest_cell: GuestCell, ratios: Ratios,
    emulator: bool = False, claimed: bool = False,
) -> PlacedCell | None:
    """Return a guest cell on a host cell; None if it does not fit.

    :param emulator: whether one more CPU is for the emulator's threads
    :param claimed: whether only CPUs that the server has claimed are free
    """
    # 1. Memory, in pages if the host reports any.
    pages = next(_page_sizes(cell, guest_cell), None)
    if pages is None:
        return None
    # 2. Shared CPUs; one server does not share a CPU with itself.
    if guest_cell.is_shared and (
            len(guest_cell.cpus) > len(cell.cpus)
            or cell.cpu_usage + len(guest_cell.cpus)
            > len(cell.cpus) * ratios.cpu
            or cell.memory_usage + guest_cell.memory_mb
            > cell.memory_mb * ratios.memory):
        return None
    # 3. Dedicated CPUs.
    pins: Pins | None = Pins()
    if guest_cell.is_pinned:
        if len(guest_cell.pcpus) + emulator > len(cell.free_pcpus):
            return None
        pins = pin(cell, guest_cell, emulator, claimed)
    if pins is None:
        return None
    return PlacedCell(guest_cell, cell.id, pages or None, pins)


def _page_sizes(cell: HostCell, guest_cell: GuestCell) -> Iterator[int]:
    """Yield the page sizes that a guest cell can have, the best first.

    A size of 0 stands for any pages.
    """
    size, memory_mb = guest_cell.page_size, guest_cell.memory_mb
    if not size:
        if not cell.sizes:
            free = (cell.free_memory_mb if guest_cell.is_pinned
                    else cell.memory_mb)
            if memory_mb <= free:
                yield 0
            return
        smallest = next(iter(cell.sizes.values()))
        if smallest.holds(memory_mb, whole=not guest_cell.is_pinned):
            yield 0
        return
    sizes = list(cell.sizes)
    tried = {guest.SMALL: sizes[:1], guest.LARGE: sizes[:0:-1],
             guest.ANY: sizes[::-1]}.get(size, [size])
    for each in tried:
        if each in cell.sizes and cell.sizes[each].holds(memory_mb):
            yield each


def has_devices(
    host: HostTopology | None, demand: Demand, pools: Pools | None,
    mappings: Mappings | None, cells: frozenset[int] | None,
) -> bool:
    """Return whether a host has the devices, near to these cells.

    :param cells: ids of the host cells; None if any devices serve
    """
    if not demand.devices or pools is None:
        return True
    return devices.take(
        pools, demand.devices, mappings, cells, host) is not None


def has_networks(
    host: HostTopology, networks: Networks, cells: Iterable[int]
) -> bool:
    """Return whether cells are near to the networks of a server.

    A network that is near to no cell of the host does not matter.
    """
    chosen = [host.by_id[each] for each in cells]

    def missed(near: Callable[[HostCell], bool]) -> bool:
        return any(map(near, host.cells)) and not any(map(near, chosen))

    return not any(
        missed(lambda cell: name in (cell.physnets or ()))
        for name in networks.physnets) and not (
            networks.tunneled and missed(lambda cell: cell.tunneled))


def used(host: HostTopology, placement: Placement) -> HostTopology:
    """Return the host after a server took its cells."""
    cells = dict(host.by_id)
    for placed in placement:
        cell, pinned = cells[placed.host_cell], placed.pinned
        if placed.guest.thread_policy == guest.ISOLATE:
            pinned = cell.cores_of(pinned)
        cells[cell.id] = cell.taken(
            placed.guest.memory_mb, len(placed.guest.cpus), pinned,
            placed.page_size)
    return HostTopology(tuple(cells[each.id] for each in host.cells))


def pin(
    cell: HostCell, guest_cell: GuestCell, emulator: bool,
    claimed: bool = False,
) -> Pins | None:
    """Return the CPUs for the dedicated vCPUs; None if they do not fit.

    Source: ``_pack_instance_onto_cores`` of the same module.

    :param emulator: whether one more CPU is for the emulator's threads
    :param claimed: whether only CPUs that the server has claimed are free
    """
    threads = cell.threads
    if not threads:
        # A host that reports no cores cannot say what is free.
        return None
    vcpus = sorted(guest_cell.pcpus)
    if guest_cell.thread_policy == guest.ISOLATE:
        if threads > 1 and cell.cpus != cell.pcpus:
            # Nova's compute host refuses this, too.
            return None
        cores = [each for each in cell.free_cores if len(each) >= threads]
        if not cores or not vcpus:
            return None
        return _pins(cell, vcpus, cores, 1, emulator, isolated=True)
    least = 1
    if guest_cell.thread_policy == guest.REQUIRE:
        if threads <= 1:
            return None
        if claimed:
            # The decision has left other threads of the last core free.
            every = sorted(cell.free_cores, key=len, reverse=True)
            return _pins(cell, vcpus, _threads(every), 1, emulator)
        least = 2
    # Take the same number of threads of each core, as many as possible.
    for number in range(max(map(len, cell.free_cores)), least - 1, -1):
        cores = [each for each in cell.free_cores if len(each) >= number]
        found = _pins(cell, vcpus, cores, number, emulator)
        if found is not None:
            return found
    if guest_cell.thread_policy == guest.REQUIRE:
        return None
    # Otherwise any free threads, one by one.
    return _pins(cell, vcpus, _threads(cell.free_cores), 1, emulator)


def _threads(cores: Iterable[CPUs]) -> list[CPUs]:
    """Return the threads of cores, each by itself."""
    return [frozenset([cpu]) for core in cores for cpu in sorted(core)]


def _pins(
    cell: HostCell, vcpus: Sequence[int], cores: Sequence[CPUs], number: int,
    emulator: bool, isolated: bool = False,
) -> Pins | None:
    """Return the CPUs if they are a number of threads of each core.

    :param isolated: whether the other threads of a used core stay idle
    """
    if number * len(cores) < len(vcpus):
        return None
    usable = itertools.chain.from_iterable(
        sorted(core)[:number] for core in cores)
    cpus = tuple(zip(vcpus, usable))
    if not emulator:
        return Pins(cpus)
    # The first free CPU beside the taken ones is for the emulator's threads.
    taken = {cpu for _, cpu in cpus}
    reserved = next((
        cpu for core in cell.free_cores
        if not (isolated and core.intersection(taken))
        for cpu in sorted(core) if cpu not in taken), None)
    if reserved is None or not cpus:
        return None
    return Pins(cpus, frozenset([reserved]))
