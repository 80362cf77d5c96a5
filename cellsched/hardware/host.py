# SPDX-License-Identifier: Apache-2.0
"""The NUMA cells of a host, and what servers use of them."""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import functools

CPUs = frozenset[int]

#: KiB in a MiB: pages are counted in KiB, memory in MiB.
KIB = 1024


def shown_size(size_kb: int) -> str:
    """Return the size of a page with its unit."""
    for unit, factor in ('GB', KIB * KIB), ('MB', KIB):
        if not size_kb % factor:
            return f'{size_kb // factor} {unit}'
    return f'{size_kb} KB'


def shown_cpus(cpus: Iterable[int]) -> str:
    """Return numbers of CPUs as a text such as ``0-3,8``."""
    runs: list[list[int]] = []
    for each in sorted(cpus):
        if runs and each == runs[-1][-1] + 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return ','.join(str(run[0]) if len(run) == 1 else f'{run[0]}-{run[-1]}'
                    for run in runs)


@dataclasses.dataclass(frozen=True)
class Pages:
    """The memory pages of one size in a cell.

    :param size_kb: size of a page, in KiB
    :param total: number of pages
    :param used: pages of servers
    :param reserved: pages that the host keeps for itself
    """

    size_kb: int
    total: int
    used: int = 0
    reserved: int = 0

    @property
    def free(self) -> int:
        """Number of pages for servers; negative if the host has too few."""
        return self.total - self.used - self.reserved

    def holds(self, memory_mb: int, whole: bool = False) -> bool:
        """Return whether an amount of memory fits, in full pages.

        :param whole: whether used and reserved pages count too
        """
        needed_kb = memory_mb * KIB
        pages = self.total if whole else self.free
        return (needed_kb <= pages * self.size_kb
                and needed_kb % self.size_kb == 0)


@dataclasses.dataclass(frozen=True)
class HostCell:
    """A NUMA cell: CPUs, the memory next to them, and their use.

    :param cpus: numbers of the CPUs that servers share
    :param pcpus: numbers of the CPUs for dedicated use; equal to ``cpus`` on
        hosts that are configured in the old way
    :param memory_mb: memory, in MiB
    :param cpu_usage: shared vCPUs of servers
    :param memory_usage: memory of servers, in MiB
    :param pinned: dedicated CPUs in use
    :param siblings: the threads of each core, in the order of the host
    :param pages: the memory pages by size; empty if the host reports none
    :param socket: number of the socket; None if the host does not report it
    :param physnets: physical networks of the cell; None if no network of the
        host is assigned to cells
    :param tunneled: whether tunneled networks are of this cell
    """

    id: int
    cpus: CPUs
    pcpus: CPUs
    memory_mb: int
    cpu_usage: int = 0
    memory_usage: int = 0
    pinned: CPUs = frozenset()
    siblings: tuple[CPUs, ...] = ()
    pages: tuple[Pages, ...] = ()
    socket: int | None = None
    physnets: frozenset[str] | None = None
    tunneled: bool = False

    @functools.cached_property
    def free_pcpus(self) -> CPUs:
        """The dedicated CPUs that no server uses."""
        return self.pcpus - self.pinned

    @property
    def free_memory_mb(self) -> int:
        """Memory that no server uses, in MiB."""
        return self.memory_mb - self.memory_usage

    @functools.cached_property
    def threads(self) -> int:
        """The most threads of a core; 0 if the host reports no cores."""
        return max(map(len, self.siblings), default=0)

    @functools.cached_property
    def free_cores(self) -> tuple[CPUs, ...]:
        """The free threads of each core, in the order of the host."""
        return tuple(core & self.free_pcpus for core in self.siblings)

    @functools.cached_property
    def sizes(self) -> Mapping[int, Pages]:
        """The pages by their size in KiB, from small to large."""
        return {each.size_kb: each for each in sorted(
            self.pages, key=lambda pages: pages.size_kb)}

    def cores_of(self, cpus: CPUs) -> CPUs:
        """Return CPUs with all other threads of their cores."""
        return cpus.union(*(core for core in self.siblings if core & cpus))

    def taken(
        self, memory_mb: int, cpus: int, pinned: CPUs, page_kb: int | None
    ) -> 'HostCell':
        """Return the cell after a server took its part.

        :param cpus: number of shared vCPUs
        :param pinned: the dedicated CPUs, with those that are kept idle
        :param page_kb: size of its pages, in KiB; None for the smallest ones
        """
        size = next(iter(self.sizes), 0) if page_kb is None else page_kb
        pages = tuple(
            dataclasses.replace(
                each, used=each.used + memory_mb * KIB // size)
            if each.size_kb == size else each for each in self.pages)
        return dataclasses.replace(
            self, pages=pages, cpu_usage=self.cpu_usage + cpus,
            memory_usage=self.memory_usage + memory_mb,
            pinned=self.pinned | pinned)


@dataclasses.dataclass(frozen=True)
class HostTopology:
    """The NUMA cells of a host.

    :param cells: the cells, in the order of the host
    """

    cells: tuple[HostCell, ...]

    @functools.cached_property
    def by_id(self) -> Mapping[int, HostCell]:
        """The cells by their ids."""
        return {each.id: each for each in self.cells}

    @functools.cached_property
    def unused(self) -> 'HostTopology':
        """The same cells without servers."""
        return HostTopology(tuple(dataclasses.replace(
            cell, cpu_usage=0, memory_usage=0, pinned=frozenset(),
            pages=tuple(dataclasses.replace(each, used=0)
                        for each in cell.pages)) for cell in self.cells))

    @property
    def has_threads(self) -> bool:
        """True if any core has several threads."""
        return any(each.threads > 1 for each in self.cells)

    def neighbours(self, cells: Iterable[int]) -> frozenset[int]:
        """Return the cells of the same sockets as some cells.

        It is empty if any cell of the host has no socket.
        """
        if any(each.socket is None for each in self.cells):
            return frozenset()
        sockets = {self.by_id[each].socket for each in cells
                   if each in self.by_id}
        return frozenset(
            each.id for each in self.cells if each.socket in sockets)

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash(self.cells)
