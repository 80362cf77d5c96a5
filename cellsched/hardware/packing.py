# SPDX-License-Identifier: Apache-2.0
"""Pin the vCPUs of a guest cell to the CPUs of a host cell.

Source: Nova 34, ``nova/virt/hardware.py``, ``_pack_instance_onto_cores``.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import itertools

from cellsched.hardware import guest
from cellsched.hardware.host import HostCell

CPUs = frozenset[int]


@dataclasses.dataclass(frozen=True)
class Pins:
    """The CPUs of a guest cell.

    :param cpus: CPU of each dedicated vCPU, as tuples of vCPU and CPU
    :param reserved: the CPU for the emulator's threads; empty without one
    """

    cpus: tuple[tuple[int, int], ...] = ()
    reserved: CPUs = frozenset()


def pin(
    cell: HostCell, guest_cell: guest.GuestCell, emulator: bool,
    claimed: bool = False,
) -> Pins | None:
    """Return the CPUs for the dedicated vCPUs; None if they do not fit.

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
    reserved = _unused(cell, {cpu for _, cpu in cpus}, isolated)
    if reserved is None or not cpus:
        return None
    return Pins(cpus, frozenset([reserved]))


def _unused(
    cell: HostCell, taken: Iterable[int], isolated: bool
) -> int | None:
    """Return the first free CPU beside those that are taken, or None.

    :param isolated: whether the other threads of their cores are taken too
    """
    for core in cell.free_cores:
        if isolated and core.intersection(taken):
            continue
        for cpu in sorted(core):
            if cpu not in taken:
                return cpu
    return None
