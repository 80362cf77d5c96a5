# SPDX-License-Identifier: Apache-2.0
"""The free PCI devices of many hosts at once.

Each distinct tuple of pools is one entry. The verdicts are those of
:mod:`.devices`.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from cellsched.hardware.cell_table import CellTable
from cellsched.hardware.cell_table import Entries
from cellsched.hardware.cell_table import Mask
from cellsched.hardware.cell_table import Near
from cellsched.hardware import devices
from cellsched.hardware.devices import DeviceRequest
from cellsched.hardware.devices import Pool
from cellsched.hardware.devices import Pools

Numbers = npt.NDArray[np.int32]

#: Properties of single devices or hosts, which requests seldom name.
_OWN = frozenset({'address', 'parent_ifname', 'rp_uuid'})

#: The first capacity; it doubles when it is exceeded.
_CAPACITY = 64


class DeviceTable:
    """The numbers of free devices, by their properties and entry.

    Entries are only appended. A thread may read while another one appends the
    same entries.
    """

    def __init__(self) -> None:
        #: Pools of one device, whose own properties are left out.
        self._kinds: list[Pool] = []
        self._counts = np.zeros((0, _CAPACITY), np.int32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, entries: Sequence[Pools]) -> None:
        """Append entries, the pools of a host each."""
        kinds = {pool: None for pools in entries for pool in map(_kind, pools)
                 if pool not in self._kinds}
        self._reserve(len(self._kinds) + len(kinds),
                      self._count + len(entries))
        self._kinds.extend(kinds)
        for entry, pools in enumerate(entries, start=self._count):
            self._counts[:, entry] = 0
            for pool in pools:
                self._counts[self._kinds.index(_kind(pool)), entry] += (
                    pool.count)
        self._count += len(entries)

    def select(self, entries: npt.NDArray[Any]) -> 'DeviceTable':
        """Return a table of some entries, in this order."""
        table = DeviceTable()
        table._kinds = [*self._kinds]
        table._counts = self._counts[:, entries]
        table._count = len(entries)
        return table

    def _reserve(self, kinds: int, count: int) -> None:
        """Make room for kinds and entries."""
        had, capacity = self._counts.shape
        if count > capacity:
            capacity = max(count, 2 * capacity)
        if (kinds, capacity) != (had, self._counts.shape[1]):
            counts = np.zeros((kinds, capacity), np.int32)
            counts[:had, :self._counts.shape[1]] = self._counts
            self._counts = counts

    def is_exact(self, requests: Iterable[DeviceRequest]) -> bool:
        """Return whether the verdicts are exact.

        They are necessary only if two requests can take the same devices, or
        if a request names a single device or provider.
        """
        requests = tuple(requests)
        if any(_OWN.intersection(spec) for each in requests
               for spec in each.specs):
            return False
        kinds = [set(self._numbers(each.describes)) for each in requests]
        return not any(one & other
                       for one, other in itertools.combinations(kinds, 2))

    def _numbers(self, test: Any) -> list[int]:
        return [number for number, kind in enumerate(self._kinds)
                if test(kind)]

    def lacking(
        self, requests: Iterable[DeviceRequest], entries: Entries
    ) -> Iterator[tuple[DeviceRequest, Numbers]]:
        """Yield each request with the number of devices that entries have."""
        for request in requests:
            yield request, self._free(request, entries).all

    def enough(
        self, requests: Iterable[DeviceRequest], entries: Entries
    ) -> Mask:
        """Return whether entries have enough devices, anywhere."""
        return functools.reduce(np.logical_and, [
            free >= request.count
            for request, free in self.lacking(requests, entries)])

    def near(
        self, requests: Iterable[DeviceRequest], entries: Entries,
        cells: CellTable, hosts: Entries,
    ) -> Near:
        """Return which cells have enough devices near to them.

        :param cells: the cells of hosts
        :param hosts: the entries of ``cells``, as many as ``entries``
        """
        places = _Places(cells, hosts)
        asked = []
        for request in requests:
            usable = self._free(request, entries)
            fitting = (
                usable if all(map(request.allows, self._fitting(request)))
                else self._free(request, entries, usable=False))
            asked.append(_Asked(request, fitting.at(places),
                                usable.at(places), places))

        def near(chosen: tuple[int, ...]) -> Mask:
            return functools.reduce(
                np.logical_and, [each.holds(chosen) for each in asked])

        return near

    def _fitting(self, request: DeviceRequest) -> list[Pool]:
        return list(filter(request.describes, self._kinds))

    def _free(
        self, request: DeviceRequest, entries: Entries, usable: bool = True
    ) -> '_Free':
        """Return the free devices for a request, by node.

        :param usable: whether devices that may not be taken are left out
        """
        counts = self._counts[:, :self._count]
        free: dict[int | None, Numbers] = {}
        for number in self._numbers(request.describes):
            kind = self._kinds[number]
            if not usable or request.allows(kind):
                node = kind.numa_node
                free[node] = free.get(node, 0) + counts[number]
        return _Free({node: count[entries] for node, count in free.items()},
                     counts[:0].sum(axis=0)[entries])


def _kind(pool: Pool) -> Pool:
    return Pool(1, pool.numa_node, tuple(
        each for each in pool.properties if each[0] not in _OWN))


class _Places:
    """The cells of hosts, by place.

    :ivar count: the most cells of a host
    """

    def __init__(self, cells: CellTable, hosts: Entries) -> None:
        self._cells, self._hosts = cells, hosts
        self._ids = cells.ids(hosts)
        self.count = len(cells.cells(hosts))

    def of_nodes(
        self, nodes: Mapping[int | None, Numbers], none: Numbers
    ) -> list[Numbers]:
        """Return the numbers of nodes by the place of the cell."""
        if self._ids is None:
            return [nodes.get(place, none) for place in range(self.count)]
        return [sum((np.where(ids == node, count, 0)
                     for node, count in nodes.items() if node is not None),
                    none) for ids in self._ids]

    @functools.cached_property
    def _sockets(self) -> tuple[npt.NDArray[np.float64], Mask]:
        sockets = self._cells.sockets(self._hosts)
        known = (sockets >= 0) | ~self._cells.cells(self._hosts)
        return sockets, np.logical_and.reduce(known)

    def same_socket(self, chosen: tuple[int, ...]) -> Mask:
        """Return the cells of the same sockets, by place and host."""
        sockets, known = self._sockets
        return np.logical_or.reduce(
            [sockets == sockets[place] for place in chosen]) & known


@dataclasses.dataclass(frozen=True)
class _Free:
    """The free devices for a request, by node.

    :param none: zeros
    """

    nodes: dict[int | None, Numbers]
    none: Numbers

    @property
    def all(self) -> Numbers:
        """The devices anywhere."""
        return sum(self.nodes.values(), self.none)

    def at(self, places: _Places) -> '_Near':
        """Return the devices by the place of the cell that they are near."""
        return _Near(places.of_nodes(self.nodes, self.none),
                     self.nodes.get(None, self.none), self.all)


@dataclasses.dataclass(frozen=True)
class _Near:
    """The devices near to cells, near to none that is known, and all."""

    cells: list[Numbers]
    nowhere: Numbers
    all: Numbers

    def at(self, chosen: tuple[int, ...]) -> Numbers:
        """Return the devices near to any of the cells at places."""
        return functools.reduce(
            np.add, [self.cells[place] for place in chosen])


@dataclasses.dataclass(frozen=True)
class _Asked:
    """A request, with the devices that fit and those that may be taken."""

    request: DeviceRequest
    fitting: _Near
    usable: _Near
    places: _Places

    def holds(self, chosen: tuple[int, ...]) -> Mask:
        """Return whether enough devices are near to the cells at places."""
        count = self.request.count
        affinity = self.request.affinity or devices.LEGACY
        near, usable = self.fitting.at(chosen), self.usable.at(chosen)
        if affinity == devices.REQUIRED:
            return usable >= count
        if affinity == devices.SOCKET:
            other = np.where(self.places.same_socket(chosen),
                             self.usable.cells, 0).sum(axis=0)
        else:
            other = usable + self.usable.nowhere
            if affinity != devices.LEGACY:
                other = np.where(near + self.fitting.nowhere >= count, other,
                                 self.usable.all)
        return np.where(near >= count, usable, other) >= count
