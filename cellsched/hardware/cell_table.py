# SPDX-License-Identifier: Apache-2.0
"""The fit of a server on the cells of many hosts at once.

The verdicts are those of :mod:`.fit`, which also decides on the cells and CPUs
of the selected host.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import functools
import itertools
from typing import Any
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cellsched.hardware.fit import Networks
from cellsched.hardware import guest
from cellsched.hardware.guest import GuestTopology
from cellsched.hardware.host import HostCell
from cellsched.hardware.host import HostTopology
from cellsched.hardware.host import KIB
from cellsched.hardware.host import Pages
from cellsched.hardware.host import shown_size
from cellsched.hardware import units

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

#: The unit of memory in reasons.
_MEMORY_NOUN = 'MB of memory'

#: Sets of host cells that are tried for a server with devices or networks, on
#: all hosts together. Their number grows with the factorial of the cells.
SETS_MAX = 1000

#: The number of an absent cell, which is less than any demand.
_ABSENT = -1

#: Rows: all, or some by their indices.
Rows = slice | npt.NDArray[Any]
_ALL = slice(None)

#: Returns the rows whose cells at these places are near enough.
Near = Callable[[tuple[int, ...]], Mask]

#: Allocation ratios: one for all rows, or one for each.
Ratio = float | npt.NDArray[np.float64]

#: Returns the unclaimed amount of a class, for the rows that are set.
Amounts = Callable[[str], Numbers]


class _Kind(NamedTuple):
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
        """True if any vCPU may have a dedicated CPU."""
        return self.policy in (guest.DEDICATED, guest.MIXED)


class _Criterion(NamedTuple):
    """An amount that a host cell must offer to a guest cell.

    :ivar noun: the unit, with the place of its plural ending
    :ivar free: what cells offer, in this unit, by place and row; below 0 if
        they cannot offer any
    """

    amount: int
    noun: str
    free: Numbers

    @property
    def holds(self) -> Mask:
        """The cells that offer the amount."""
        return self.free >= self.amount

    def text(self, number: int = 1) -> str:
        """Return the amount for a number of guest cells, in words."""
        amount = self.amount * number
        return f'{amount} {self.noun.format(s="" if amount == 1 else "s")}'


class Lack(NamedTuple):
    """Rows that lack the same.

    :ivar text: completes "This host …"
    :ivar rows: mask of these rows
    :ivar missing: what each of them lacks in the cells that lack least, with
        the unit; None if that is no amount
    """

    text: str
    rows: Mask
    missing: tuple[Numbers, str] | None = None


def _kinds(topology: GuestTopology) -> dict[_Kind, int]:
    """Return the number of guest cells of each kind."""
    return collections.Counter(_Kind(
        len(cell.cpus), len(cell.pcpus), cell.memory_mb,
        cell.page_size or None, cell.policy, cell.thread_policy,
        int(topology.isolates_emulator and not number))
        for number, cell in enumerate(topology.cells))


class CellTable:
    """The cells of hosts as numbers, by row.

    :param length: the number of rows
    """

    def __init__(self, length: int) -> None:
        self._sizes: tuple[int, ...] = ()
        #: By number, place of the cell, and row.
        self._numbers = np.full((_FIXED, 1, length), float(_ABSENT))
        self._threads = np.zeros(length, bool)
        self._networks: list[frozenset[str] | None] = [None]
        #: Whether the id of each cell is its place.
        self._in_order = True

    def __len__(self) -> int:
        return len(self._threads)

    def put(
        self, rows: npt.NDArray[Any], topology: HostTopology | None,
        amounts: Amounts | None = None, cpu_ratio: Ratio = 1.0,
        ram_ratio: Ratio = 1.0,
    ) -> None:
        """Set the cells of hosts of one topology.

        :param topology: the topology; None if the hosts report none
        :param amounts: the unclaimed amounts; None if the topology has the
            usage
        :param cpu_ratio: allocation ratio of shared CPUs
        :param ram_ratio: allocation ratio of memory
        """
        self._numbers[:, :, rows] = _ABSENT
        self._threads[rows] = False
        if topology is None:
            return
        # Make room for more page sizes and cells.
        sizes = tuple(sorted({
            size for cell in topology.cells for size in cell.sizes
        }.union(self._sizes)))
        _, had, length = self._numbers.shape
        if sizes != self._sizes or len(topology.cells) > had:
            numbers = np.full(
                (_FIXED + len(sizes), max(len(topology.cells), had), length),
                float(_ABSENT))
            numbers[[*range(_FIXED), *(_FIXED + sizes.index(each)
                                       for each in self._sizes)],
                    :had] = self._numbers
            self._sizes, self._numbers = sizes, numbers
        self._threads[rows] = topology.has_threads
        for place, cell in enumerate(topology.cells):
            self._in_order &= cell.id == place
            if amounts is None:
                values = [*self._values(cell, _ReportedUsage(cell))]
                self._numbers[:, place, rows] = np.array(values)[:, None]
                continue
            usage = _ClaimedUsage(cell, amounts, cpu_ratio, ram_ratio)
            for number, value in enumerate(self._values(cell, usage)):
                self._numbers[number, place, rows] = value

    def _values(
        self, cell: HostCell, usage: '_ReportedUsage | _ClaimedUsage'
    ) -> Iterator[Any]:
        """Yield the numbers of a cell, in order."""
        yield len(cell.cpus)
        yield usage.cpus
        yield cell.memory_mb
        yield usage.memory_mb
        threads, counts = cell.threads, usage.cores
        yield sum(counts) if threads else _ABSENT
        smallest = next(iter(cell.sizes.values()), None)
        if smallest is None:
            yield cell.memory_mb * KIB
            yield (cell.memory_mb - usage.memory_mb) * KIB
            yield 1
        else:
            yield smallest.total * smallest.size_kb
            yield usage.free_kb(smallest)
            yield smallest.size_kb
        yield counts[-1] if threads else _ABSENT
        yield counts[0] if threads else _ABSENT
        together: Any = _ABSENT
        for number, count in enumerate(counts, start=1):
            if number > 1:
                together = np.maximum(together, np.where(
                    count > 0, number * count, _ABSENT))
        yield together
        yield threads == 1 or cell.cpus == cell.pcpus
        yield cell.id
        yield _ABSENT if cell.socket is None else cell.socket
        networks = None if cell.physnets is None else (
            cell.physnets | ({''} if cell.tunneled else set()))
        if networks not in self._networks:
            self._networks.append(networks)
        yield self._networks.index(networks)
        for size in self._sizes:
            yield (usage.free_kb(cell.sizes[size]) if size in cell.sizes
                   else _ABSENT)

    def threads(self, rows: Rows) -> Mask:
        """Return whether rows have cores with several threads."""
        return self._threads[rows]

    def ids(self, rows: Rows) -> Numbers | None:
        """Return the ids of cells, by place and row; -1 without a cell.

        :returns: None if the id of each cell is its place
        """
        return None if self._in_order else self._at(_ID, rows)

    def sockets(self, rows: Rows) -> Numbers:
        """Return the sockets of cells, by place and row; -1 if unknown."""
        return self._at(_SOCKET, rows)

    def cells(self, rows: Rows) -> Mask:
        """Return whether rows have a cell at each place."""
        return self._at(_ID, rows) != _ABSENT

    def _at(self, number: int, rows: Rows) -> Numbers:
        """Return one number of the cells, by place and row."""
        return self._numbers[number][:, rows]

    def fits(
        self, topology: GuestTopology, rows: Rows = _ALL,
        cpu_ratio: Ratio = 1.0, ram_ratio: Ratio = 1.0,
        near: Near | None = None,
    ) -> Mask:
        """Return whether a server fits, for each row.

        :param rows: the rows; by default all
        :param cpu_ratio: allocation ratio of shared CPUs
        :param ram_ratio: allocation ratio of memory
        :param near: which cells may serve together; by default any
        """
        kinds = _kinds(topology)
        masks = [_all_of(self._criteria(rows, kind, cpu_ratio, ram_ratio))
                 for kind in kinds]
        counts = list(kinds.values())
        if near is None:
            return _assignable(masks, counts)
        found = np.zeros(masks[0].shape[1], bool)
        possible = _assignable(masks, counts)
        for places in itertools.islice(itertools.combinations(
                range(len(masks[0])), len(topology.cells)), SETS_MAX):
            some = (np.logical_and.reduce([*map(masks[0].__getitem__, places)])
                    if len(masks) == 1 else _assignable(
                        [mask[list(places)] for mask in masks], counts))
            if some.any():
                found |= some & near(places)
                if np.array_equal(found, possible):
                    break
        return found

    def _criteria(
        self, rows: Rows, kind: _Kind, cpu_ratio: Ratio,
        ram_ratio: Ratio,
    ) -> Iterator[_Criterion]:
        """Yield what a cell must offer."""
        def at(number: int) -> Numbers:
            return self._at(number, rows)

        yield self._memory(at, kind)
        if kind.policy != guest.DEDICATED:
            yield _Criterion(kind.cpus, 'shared CPU{s}', np.minimum(
                at(_CPUS), at(_CPUS) * cpu_ratio - at(_CPU_USAGE)))
            yield _Criterion(kind.memory_mb, _MEMORY_NOUN,
                             at(_MEMORY) * ram_ratio - at(_MEMORY_USAGE))
        if not kind.is_pinned:
            return
        needed = kind.pcpus + kind.emulator
        yield _Criterion(needed, 'free dedicated CPU{s}', at(_FREE))
        if kind.thread_policy == guest.REQUIRE:
            yield _Criterion(
                kind.pcpus, 'free thread{s} of whole cores', at(_TOGETHER))
        elif kind.thread_policy == guest.ISOLATE:
            yield _Criterion(kind.pcpus, 'free core{s}', np.where(
                (at(_USABLE) >= needed) & (at(_ISOLABLE) > 0), at(_CORES),
                _ABSENT))
        if (kind.emulator or kind.thread_policy == guest.ISOLATE) and (
                not kind.pcpus):
            yield _Criterion(1, 'dedicated vCPU{s}',
                             np.full(at(_ID).shape, float(_ABSENT)))

    def _memory(
        self, at: Callable[[int], Numbers], kind: _Kind
    ) -> _Criterion:
        """Return the memory that a cell must offer."""
        amount, size = kind.memory_mb, kind.page_size
        smallest = at(_SMALL_SIZE)
        # The amount fills pages of these sizes. The smallest size is 1 if the
        # host reports no pages.
        divided = [each for each in self._sizes if not amount * KIB % each]
        # 1. The smallest pages. All of them count for a server without
        #    dedicated CPUs and without a page size: it may be overcommitted.
        if size is None or size == guest.SMALL:
            free = at(_SMALL if not (size or kind.is_pinned) else _SMALL_FREE)
            for each in self._sizes:
                if each not in divided:
                    free = np.where(smallest == each, _ABSENT, free)
            if size:
                free = np.where(smallest > 1, free, _ABSENT)
            return _Criterion(
                amount, _MEMORY_NOUN + ' in the smallest pages' * bool(size),
                free / KIB)
        # 2. Pages of one size: a guest cell does not mix them, so the size of
        #    which most is free counts.
        columns = {
            each: at(_FIXED + self._sizes.index(each)) for each in divided
            if size in (guest.LARGE, guest.ANY, each)}
        if size == guest.LARGE:
            columns = {each: np.where(smallest == each, _ABSENT, column)
                       for each, column in columns.items()}
        free = functools.reduce(np.maximum, columns.values()) if (
            columns) else np.full(smallest.shape, float(_ABSENT))
        if size in (guest.LARGE, guest.ANY):
            kinds = 'large' if size == guest.LARGE else 'free'
            return _Criterion(
                amount, f'{_MEMORY_NOUN} in {kinds} pages', free / KIB)
        if amount * KIB % size:
            return _Criterion(
                amount, f'{_MEMORY_NOUN} in full pages of {shown_size(size)}',
                free)
        return _Criterion(
            amount * KIB // size, f'free page{{s}} of {shown_size(size)}',
            free / size)

    def lacks(
        self, topology: GuestTopology, rows: Rows = _ALL,
        cpu_ratio: Ratio = 1.0, ram_ratio: Ratio = 1.0,
        conditions: Iterable[tuple[str, Mask]] = (),
    ) -> list[Lack]:
        """Return what rows lack; each row counts once, for the first lack.

        :param rows: rows on which the server does not fit
        :param conditions: what the cells that offer enough do not meet, in
            words, and the rows that do not meet it
        """
        present = self.cells(rows)
        found = _Lacks(present.shape[1])
        count = np.count_nonzero(present, axis=0)
        # 1. The number of cells.
        found.add('has no NUMA cells', count == 0)
        found.add(f'has fewer than {len(topology.cells)} NUMA cells',
                  count < len(topology.cells))
        # 2. Each amount by itself.
        kinds = {kind: (number, [*self._criteria(
            rows, kind, cpu_ratio, ram_ratio)])
            for kind, number in _kinds(topology).items()}
        if len(present) >= len(topology.cells):
            for number, criteria in kinds.values():
                for each in criteria:
                    found.add_amount(each, number, present)
        # 3. All amounts together, and those of unequal guest cells.
        for number, criteria in kinds.values():
            cells = 'a NUMA cell' if number == 1 else f'{number} NUMA cells'
            texts = dict.fromkeys(each.text() for each in criteria)
            found.add(f'lacks {cells} with {" and ".join(texts)}',
                      np.count_nonzero(
                          _all_of(criteria), axis=0) < number)
        if len(kinds) > 1:
            found.add('lacks NUMA cells for all cells of the server together',
                      ~self.fits(topology, rows, cpu_ratio, ram_ratio))
        # 4. What must be near.
        for text, missed in conditions:
            found.add(text, missed)
        found.add('lacks room for everything together',
                  np.ones(present.shape[1], bool))
        return found.lacks()

    def near_networks(
        self, networks: Networks, rows: Rows = _ALL
    ) -> Near | None:
        """Return which cells are near to networks; None if any are."""
        numbers = self._at(_NETWORKS, rows)
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


class _ReportedUsage:
    """The usage of a cell as its host reported it."""

    def __init__(self, cell: HostCell) -> None:
        self.cpus: Any = cell.cpu_usage
        self.memory_mb: Any = cell.memory_usage
        #: The cores with at least 1, 2, … free threads.
        self.cores: list[Any] = [
            sum(len(core) >= number for core in cell.free_cores)
            for number in range(1, cell.threads + 1)]

    def free_kb(self, pages: Pages) -> Any:
        """Return the free memory in pages of a size, in KiB."""
        return pages.free * pages.size_kb


class _ClaimedUsage:
    """The usage of a cell by the claims, for several hosts."""

    def __init__(
        self, cell: HostCell, amounts: Amounts, cpu_ratio: Ratio,
        ram_ratio: Ratio,
    ) -> None:
        self.cpus: Any = np.floor(len(cell.cpus) * cpu_ratio) - amounts(
            units.shared_cpus(cell.id))
        self.memory_mb: Any = np.floor(cell.memory_mb * ram_ratio) - amounts(
            units.memory(cell.id))
        cores: Any = np.array([
            sum(amounts(units.cpu(cpu)) >= 1 for cpu in core & cell.pcpus)
            + 0 * self.cpus for core in cell.siblings])
        #: The cores with at least 1, 2, … free threads.
        self.cores: list[Any] = [(cores >= number).sum(axis=0)
                                 for number in range(1, cell.threads + 1)]
        self._free = {
            size: amounts(units.pages(cell.id, size)) * size
            for size in cell.sizes}
        # Memory without claimed pages is in the smallest ones.
        named = sum((each.total - each.reserved) * each.size_kb
                    - self._free[each.size_kb] for each in cell.pages)
        for size in itertools.islice(cell.sizes, 1):
            self._free[size] = self._free[size] - np.maximum(
                0, self.memory_mb * KIB - named) // size * size

    def free_kb(self, pages: Pages) -> Any:
        """Return the free memory in pages of a size, in KiB."""
        return self._free[pages.size_kb]


class _Lacks:
    """The lacks of some rows, each of which counts once."""

    def __init__(self, length: int) -> None:
        self._unexplained = np.ones(length, bool)
        #: Mask of the rows, and the missing amounts with their noun.
        self._found: dict[str, tuple[Mask, Numbers, str | None]] = {}

    def add(
        self, text: str, lacking: Mask, missing: Numbers | None = None,
        noun: str | None = None,
    ) -> None:
        """Count the rows that lack something and count for nothing else."""
        lacking = lacking & self._unexplained
        if not lacking.any():
            return
        self._unexplained &= ~lacking
        rows, amounts, _ = self._found.get(
            text, (lacking, np.zeros(len(lacking)), noun))
        if missing is not None:
            amounts = np.where(lacking, missing, amounts)
        self._found[text] = rows | lacking, amounts, noun

    def add_amount(
        self, criterion: _Criterion, number: int, present: Mask
    ) -> None:
        """Count the rows with too few cells that offer an amount.

        A row whose cells have the amount together is another case.

        :param number: number of guest cells that need it
        :param present: whether rows have a cell at each place
        """
        amount, noun = criterion.amount, criterion.noun
        lacking = np.count_nonzero(criterion.holds, axis=0) < number
        every = '' if number == 1 else f' in each of {number} NUMA cells'
        text = f'lacks {criterion.text()}{every or " in a NUMA cell"}'
        if (criterion.free < 0).all() or not lacking.any():
            self.add(text, lacking)
            return
        # 1. Take the cells with the most first: the amount that the last one
        #    of the needed cells lacks is missing.
        free = -np.sort(-np.where(
            present, np.maximum(np.floor(criterion.free), 0), 0), axis=0)
        missing, unit = amount - free[number - 1], noun.removeprefix('free ')
        # 2. Rows that have the amount, but on more cells than are needed, are
        #    counted for that. The others lack the amount.
        total = np.cumsum(free, axis=0)
        spread = lacking & (missing > 0) & (total[-1] >= amount * number)
        if number == 1:
            cells = np.count_nonzero(total < amount, axis=0) + 1
            for some in np.unique(cells[spread]).tolist():
                self.add(f'has {criterion.text()}, but on {some} NUMA cells',
                         spread & (cells == some), missing, unit)
        else:
            self.add(f'has {criterion.text(number)}, but not {amount}{every}',
                     spread, missing, unit)
        self.add(text, lacking, missing, unit)

    def lacks(self) -> list[Lack]:
        """Return the lacks; those of most rows first."""
        found = []
        for text, (rows, amounts, noun) in self._found.items():
            missing = amounts[rows]
            least = missing[missing > 0].min(initial=2)
            found.append(Lack(text, rows, None if noun is None else (
                missing, noun.format(s='' if least == 1 else 's'))))
        return sorted(found, key=lambda each: -np.count_nonzero(each.rows))


def _all_of(criteria: Iterable[_Criterion]) -> Mask:
    """Return the cells that meet all criteria."""
    return functools.reduce(
        np.logical_and, [each.holds for each in criteria])


def together(conditions: Iterable[Near | None]) -> Near | None:
    """Return the conditions together; None if there is none."""
    found = [each for each in conditions if each is not None]
    if len(found) < 2:
        return found[0] if found else None
    return lambda places: functools.reduce(
        np.logical_and, [near(places) for near in found])


def _assignable(masks: Sequence[Mask], counts: Sequence[int]) -> Mask:
    """Return whether guest cells can have a host cell each, by row.

    By Hall's theorem they can if each set of guest cells has as many host
    cells that hold any of them.

    :param masks: the host cells that hold a guest cell, for each kind
    :param counts: number of guest cells of each kind
    """
    if len(masks) == 1 and counts[0] == len(masks[0]):
        every: Mask = np.logical_and.reduce(masks[0])
        return every
    if sum(counts) > len(masks[0]):
        # No host has as many cells, and the loop doubles with each kind.
        return np.zeros(masks[0].shape[1], bool)
    found = np.ones(masks[0].shape[1], bool)
    for number in range(1, len(masks) + 1):
        for some in itertools.combinations(range(len(masks)), number):
            holding = functools.reduce(
                np.logical_or, [masks[each] for each in some])
            needed = sum(counts[each] for each in some)
            # A sum of bytes is faster than a count of booleans.
            found &= holding.view(np.uint8).sum(
                axis=0, dtype=np.uint8) >= needed
    return found
