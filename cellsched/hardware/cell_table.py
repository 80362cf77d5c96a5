# SPDX-License-Identifier: Apache-2.0
"""The fit of a server on the cells of many hosts at once.

Each distinct topology, with its usage, is one entry. The verdicts are those
of :mod:`.fit`, which also decides on the cells and CPUs of the selected host.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from cellsched.hardware.fit import Networks
from cellsched.hardware import guest
from cellsched.hardware.guest import GuestTopology
from cellsched.hardware.host import HostCell
from cellsched.hardware.host import HostTopology
from cellsched.hardware.host import KIB

Numbers = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: The numbers of a cell, besides the free memory in pages of each size:
#: shared CPUs, shared vCPUs of servers, memory and its use in MiB; free
#: dedicated CPUs; memory in the smallest pages in KiB, the free part of it,
#: and their size.
_CPUS, _CPU_USAGE, _MEMORY, _MEMORY_USAGE = range(4)
_FREE, _SMALL, _SMALL_FREE, _SMALL_SIZE = range(4, 8)
#: Cores that are free; cores with a free thread; the most threads of cores
#: that are free together; whether cores can be isolated; the id of the cell;
#: its socket; the number of its networks.
_CORES, _USABLE, _TOGETHER, _ISOLABLE, _ID, _SOCKET, _NETWORKS = range(8, 15)
_FIXED = 15

#: The number of an absent cell, which is less than any demand.
_ABSENT = -1

#: Entries: all, or some by their indices.
Entries = slice | npt.NDArray[Any]
_ALL = slice(None)

#: The first capacity; it doubles when it is exceeded.
_CAPACITY = 64


#: If there are more hosts for each entry, one verdict serves several.
_SHARED = 0.5

#: Returns the entries whose cells at these places are near enough.
Near = Callable[[tuple[int, ...]], Mask]

#: Allocation ratios: one for all entries, or one for each.
Ratio = float | npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class _Kind:
    """The demand of equal guest cells.

    :param emulator: CPUs for the emulator's threads
    """

    cpus: int
    pcpus: int
    memory_mb: int
    page_size: int | None
    policy: str | None
    thread_policy: str | None
    emulator: int

    @property
    def is_pinned(self) -> bool:
        """Whether any vCPU may have a dedicated CPU."""
        return self.policy in (guest.DEDICATED, guest.MIXED)


def _kinds(topology: GuestTopology) -> dict[_Kind, int]:
    """Return the number of guest cells of each kind."""
    return collections.Counter(_Kind(
        len(cell.cpus), len(cell.pcpus), cell.memory_mb, cell.page_size,
        cell.policy, cell.thread_policy,
        int(topology.isolates_emulator and not number))
        for number, cell in enumerate(topology.cells))


class CellTable:
    """The cells of topologies as numbers, by entry.

    Entries are only appended. A thread may read while another one appends the
    same entries.
    """

    def __init__(self) -> None:
        self._sizes: tuple[int, ...] = ()
        #: By number, place of the cell, and entry.
        self._numbers = np.full((_FIXED, 1, _CAPACITY), float(_ABSENT))
        self._threads = np.zeros(_CAPACITY, bool)
        self._networks: list[frozenset[str] | None] = [None]
        #: Whether the id of each cell is its place.
        self._in_order = True
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, topologies: Sequence[HostTopology | None]) -> None:
        """Append entries; None is a host without a topology."""
        cells = [cell for each in topologies if each for cell in each.cells]
        sizes = {size for cell in cells for size in cell.sizes}
        most = max((len(each.cells) for each in topologies if each),
                   default=0)
        self._reserve(tuple(sorted(sizes.union(self._sizes))), most,
                      self._count + len(topologies))
        for entry, topology in enumerate(topologies, start=self._count):
            if topology is not None:
                for place, cell in enumerate(topology.cells):
                    self._numbers[:, place, entry] = self._row(cell)
                    self._in_order &= cell.id == place
                self._threads[entry] = topology.has_threads
        self._count += len(topologies)

    def select(self, entries: npt.NDArray[Any]) -> 'CellTable':
        """Return a table of some entries, in this order."""
        table = CellTable()
        table._sizes, table._networks = self._sizes, [*self._networks]
        table._numbers = self._numbers[:, :, entries]
        table._threads = self._threads[entries]
        table._in_order, table._count = self._in_order, len(entries)
        return table

    def _reserve(
        self, sizes: tuple[int, ...], cells: int, count: int
    ) -> None:
        """Make room for page sizes, cells and entries."""
        _, had, capacity = kept = self._numbers.shape
        if count > capacity:
            capacity = max(count, 2 * capacity)
        wanted = (_FIXED + len(sizes), max(cells, had), capacity)
        if sizes == self._sizes and wanted == kept:
            return
        numbers = np.full(wanted, float(_ABSENT))
        places = [*range(_FIXED), *(
            _FIXED + sizes.index(each) for each in self._sizes)]
        numbers[places, :had, :kept[2]] = self._numbers
        threads = np.zeros(capacity, bool)
        threads[:kept[2]] = self._threads
        self._sizes, self._numbers, self._threads = sizes, numbers, threads

    def _row(self, cell: HostCell) -> list[int]:
        """Return the numbers of a cell."""
        smallest = next(iter(cell.sizes.values()), None)
        if smallest is None:
            memory, free, size = (cell.memory_mb * KIB,
                                  cell.free_memory_mb * KIB, 1)
        else:
            size = smallest.size_kb
            memory, free = smallest.total * size, smallest.free * size
        cores, threads = cell.free_cores, cell.threads
        # The number of cores with at least 1, 2, … free threads.
        counts = [sum(len(core) >= number for core in cores)
                  for number in range(1, threads + 1)]
        pages = [cell.sizes[each].free * each if each in cell.sizes
                 else _ABSENT for each in self._sizes]
        return [
            len(cell.cpus), cell.cpu_usage, cell.memory_mb, cell.memory_usage,
            min(len(cell.free_pcpus), sum(counts)) if counts else _ABSENT,
            memory, free, size, counts[-1] if counts else _ABSENT,
            counts[0] if counts else _ABSENT,
            max((number * count for number, count in enumerate(
                counts, start=1) if number > 1 and count), default=_ABSENT),
            int(threads == 1 or cell.cpus == cell.pcpus), cell.id,
            _ABSENT if cell.socket is None else cell.socket,
            self._number(cell), *pages]

    def _number(self, cell: HostCell) -> int:
        """Return the number of a cell's networks."""
        networks = None if cell.physnets is None else (
            cell.physnets | ({''} if cell.tunneled else set()))
        if networks not in self._networks:
            self._networks.append(networks)
        return self._networks.index(networks)

    def threads(self, entries: Entries) -> Mask:
        """Return whether entries have cores with several threads."""
        return self._threads[:self._count][entries]

    def present(self, entries: Entries) -> Mask:
        """Return whether entries have a topology."""
        return self._at(_ID, entries)[0] != _ABSENT

    def ids(self, entries: Entries) -> Numbers | None:
        """Return the ids of cells, by place and entry; -1 without a cell.

        :returns: None if the id of each cell is its place
        """
        return None if self._in_order else self._at(_ID, entries)

    def sockets(self, entries: Entries) -> Numbers:
        """Return the sockets of cells, by place and entry; -1 if unknown."""
        return self._at(_SOCKET, entries)

    def cells(self, entries: Entries) -> Mask:
        """Return whether entries have a cell at each place."""
        return self._at(_ID, entries) != _ABSENT

    def _at(self, number: int, entries: Entries) -> Numbers:
        """Return one number of the cells, by place and entry."""
        return self._numbers[number, :, :self._count][:, entries]

    def fits(
        self, topology: GuestTopology, entries: Entries = _ALL,
        cpu_ratio: Ratio = 1.0, ram_ratio: Ratio = 1.0,
        near: Near | None = None,
    ) -> Mask:
        """Return whether a server fits, for each entry.

        :param entries: the entries; by default all
        :param cpu_ratio: allocation ratio of shared CPUs
        :param ram_ratio: allocation ratio of memory
        :param near: which cells may serve together; by default any
        """
        kinds = _kinds(topology)
        # With equal ratios, and with more hosts than entries, each entry is
        # judged once.
        is_shared = isinstance(cpu_ratio, float) and isinstance(
            ram_ratio, float) and (isinstance(entries, slice)
                                   or len(entries) > _SHARED * len(self))
        judged = _ALL if is_shared else entries
        masks = [functools.reduce(np.logical_and, (
            mask for _, mask in self._criteria(
                judged, kind, cpu_ratio, ram_ratio))) for kind in kinds]
        counts = list(kinds.values())
        if near is None:
            found = _assignable(masks, counts)
            return found[entries] if is_shared else found
        if is_shared:
            masks = [mask[:, entries] for mask in masks]
        found = np.zeros(masks[0].shape[1], bool)
        for places in itertools.combinations(
                range(len(masks[0])), len(topology.cells)):
            some = _assignable([mask[list(places)] for mask in masks], counts)
            if some.any():
                found |= some & near(places)
        return found

    def _criteria(
        self, entries: Entries, kind: _Kind, cpu_ratio: Ratio,
        ram_ratio: Ratio,
    ) -> Iterator[tuple[str, Mask]]:
        """Yield what a cell must offer, and the cells that offer it."""
        def at(number: int) -> Numbers:
            return self._at(number, entries)

        yield self._memory(at, kind)
        if kind.policy != guest.DEDICATED:
            yield (f'{kind.cpus} shared CPUs',
                   (at(_CPUS) >= kind.cpus)
                   & (at(_CPU_USAGE) + kind.cpus
                      <= at(_CPUS) * cpu_ratio))
            yield (f'{kind.memory_mb} MB of memory',
                   at(_MEMORY_USAGE) + kind.memory_mb
                   <= at(_MEMORY) * ram_ratio)
        if not kind.is_pinned:
            return
        needed = kind.pcpus + kind.emulator
        yield f'{needed} free dedicated CPUs', at(_FREE) >= needed
        if kind.thread_policy == guest.REQUIRE:
            yield (f'{kind.pcpus} free threads of whole cores',
                   at(_TOGETHER) >= kind.pcpus)
        elif kind.thread_policy == guest.ISOLATE:
            yield (f'{kind.pcpus} free cores',
                   (at(_CORES) >= kind.pcpus)
                   & (at(_USABLE) >= needed)
                   & (at(_ISOLABLE) > 0))
        if (kind.emulator or kind.thread_policy == guest.ISOLATE) and (
                not kind.pcpus):
            yield 'a dedicated vCPU', np.zeros(at(_ID).shape, bool)

    def _memory(
        self, at: Callable[[int], Numbers], kind: _Kind
    ) -> tuple[str, Mask]:
        """Return the memory that a cell must offer, and the cells."""
        needed_kb, size = kind.memory_mb * KIB, kind.page_size
        smallest = at(_SMALL_SIZE)

        def small(column: int) -> Mask:
            found: Mask = at(column) >= needed_kb
            for each in self._sizes:
                if needed_kb % each:
                    found &= smallest != each
            return found

        def free(sizes: Iterable[int], beside_smallest: bool) -> Mask:
            found = np.zeros(smallest.shape, bool)
            for each in sizes:
                if each in self._sizes and not needed_kb % each:
                    holds = (at(_FIXED + self._sizes.index(each))
                             >= needed_kb)
                    found |= (holds & (smallest != each) if beside_smallest
                              else holds)
            return found

        text = f'{kind.memory_mb} MB of memory'
        if size is None:
            return text, small(_SMALL_FREE if kind.is_pinned else _SMALL)
        if size == guest.SMALL:
            return (f'{text} in the smallest pages',
                    small(_SMALL_FREE) & (smallest > 1))
        if size in (guest.LARGE, guest.ANY):
            return (f'{text} in {"large" if size == guest.LARGE else "free"} '
                    'pages', free(self._sizes, size == guest.LARGE))
        return (f'{-(-needed_kb // size)} free pages of {_shown(size)}',
                free([size], False))

    def lacks(
        self, topology: GuestTopology, entries: Entries = _ALL,
        cpu_ratio: Ratio = 1.0, ram_ratio: Ratio = 1.0,
    ) -> dict[str, int]:
        """Return how many of some entries lack which part first.

        :param entries: entries on which the server does not fit
        """
        present = self.cells(entries)
        left = np.ones(present.shape[1], bool)
        found: dict[str, int] = {}

        def count(text: str, lacking: Any) -> None:
            nonlocal left
            lacking = lacking & left
            if lacking.any():
                found[text] = found.get(text, 0) + int(lacking.sum())
                left = left & ~lacking

        cells = np.count_nonzero(present, axis=0)
        count('has no NUMA cells', cells == 0)
        count(f'has fewer than {len(topology.cells)} NUMA cells',
              cells < len(topology.cells))
        for kind in _kinds(topology):
            for text, mask in self._criteria(
                    entries, kind, cpu_ratio, ram_ratio):
                count(f'lacks {text} in a NUMA cell', ~mask.any(axis=0))
        count('lacks NUMA cells with everything together', left.copy())
        return found

    def near_networks(
        self, networks: Networks, entries: Entries = _ALL
    ) -> Near | None:
        """Return which cells are near to networks; None if any are."""
        numbers = self._at(_NETWORKS, entries)
        masks = []
        for name in (*networks.physnets, *([''] if networks.tunneled else ())):
            mask = np.isin(numbers, [
                number for number, each in enumerate(self._networks)
                if each and name in each])
            if mask.any():
                masks.append((mask, ~mask.any(axis=0)))
        if not masks:
            return None
        return lambda places: np.logical_and.reduce([
            mask[list(places)].any(axis=0) | nowhere
            for mask, nowhere in masks])


def together(conditions: Iterable[Near | None]) -> Near | None:
    """Return the conditions together; None if there is none."""
    found = [each for each in conditions if each is not None]
    if len(found) < 2:
        return found[0] if found else None
    return lambda places: functools.reduce(
        np.logical_and, [near(places) for near in found])


def _assignable(masks: Sequence[Mask], counts: Sequence[int]) -> Mask:
    """Return whether guest cells can have a host cell each, by entry.

    By Hall's theorem they can if each set of guest cells has as many host
    cells that hold any of them.

    :param masks: the host cells that hold a guest cell, for each kind
    :param counts: number of guest cells of each kind
    """
    if len(masks) == 1 and counts[0] == len(masks[0]):
        every: Mask = np.logical_and.reduce(masks[0])
        return every
    found = np.ones(masks[0].shape[1], bool)
    for number in range(1, len(masks) + 1):
        for some in itertools.combinations(range(len(masks)), number):
            holding = functools.reduce(
                np.logical_or, [masks[each] for each in some])
            needed = sum(counts[each] for each in some)
            # A sum of bytes is faster than a count of booleans.
            found &= holding.view(np.int8).sum(
                axis=0, dtype=np.int8) >= needed
    return found


def _shown(size_kb: int) -> str:
    """Return a page size with its unit."""
    for unit, factor in ('GB', KIB * KIB), ('MB', KIB):
        if not size_kb % factor:
            return f'{size_kb // factor} {unit}'
    return f'{size_kb} KB'
