# SPDX-License-Identifier: Apache-2.0
"""The free PCI devices of many hosts at once.

The verdicts are those of :mod:`.devices`.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import itertools
from typing import Any
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cellsched.hardware.cell_table import Amounts
from cellsched.hardware.cell_table import CellTable
from cellsched.hardware.cell_table import Mask
from cellsched.hardware.cell_table import Near
from cellsched.hardware.cell_table import Rows
from cellsched.hardware import devices
from cellsched.hardware.devices import DeviceRequest
from cellsched.hardware.devices import Pool
from cellsched.hardware.devices import Pools
from cellsched.hardware import units

Numbers = npt.NDArray[np.int32]

#: Properties of single devices or hosts, which requests seldom name.
_OWN = frozenset({'address', 'parent_ifname', 'rp_uuid'})


class _RequestMatch(NamedTuple):
    """A request with the numbers of the kinds of devices that fit.

    :param usable: the kinds that fit and may be taken
    """

    request: DeviceRequest
    fitting: tuple[int, ...]
    usable: tuple[int, ...]


class DeviceTable:
    """The numbers of free devices, by their properties and row.

    :param length: the number of rows
    """

    def __init__(self, length: int) -> None:
        #: Numbers of pools of one device, whose own properties are left out.
        self._kinds: dict[Pool, int] = {}
        self._counts: list[Numbers] = []
        #: The latest requests with the number of kinds, and the result.
        self._latest: tuple[Any, int, list[_RequestMatch]] = (), 0, []
        self._none = np.zeros(length, np.int32)

    def __len__(self) -> int:
        return len(self._none)

    def put(
        self, rows: npt.NDArray[Any], pools: Pools,
        amounts: Amounts | None = None,
    ) -> None:
        """Set the devices of hosts with the same pools.

        :param amounts: the unclaimed amounts; None if the pools have the
            numbers of free devices
        """
        for counts in self._counts:
            counts[rows] = 0
        for pool in pools:
            kind = Pool(1, pool.numa_node, tuple(
                each for each in pool.properties if each[0] not in _OWN))
            number = self._kinds.setdefault(kind, len(self._counts))
            if number == len(self._counts):
                self._counts.append(self._none.copy())
            self._counts[number][rows] += (
                pool.count if amounts is None
                # Fewer devices than their claims are no free devices.
                else np.maximum(0, amounts(units.device(pool))).astype(
                    np.int32))

    def is_exact(self, requests: Sequence[DeviceRequest]) -> bool:
        """Return whether the verdicts are exact.

        They are necessary only if two requests can take the same devices, or
        if a request names a single device or provider.
        """
        found = self._matching(requests)
        return not any(
            _OWN.intersection(spec) for each in found
            for spec in each.request.specs) and all(
            set(one.fitting).isdisjoint(other.fitting)
            for one, other in itertools.combinations(found, 2))

    def _matching(
        self, requests: Sequence[DeviceRequest]
    ) -> list[_RequestMatch]:
        """Return requests; equal ones, such as those of ports, are one.

        They take as many devices as one request, if all devices that fit may
        be taken.
        """
        given, kinds, found = self._latest
        if given is requests and kinds == len(self._kinds):
            return found
        found = []
        for request in requests:
            for place, each in enumerate(found):
                if (each.request.specs == request.specs
                        and each.request.affinity == request.affinity
                        and each.fitting == each.usable):
                    count = each.request.count + request.count
                    found[place] = each._replace(
                        request=dataclasses.replace(
                            each.request, count=count))
                    break
            else:
                fitting = {number: kind for kind, number
                           in self._kinds.items() if request.describes(kind)}
                found.append(_RequestMatch(request, tuple(fitting), tuple(
                    number for number, kind in fitting.items()
                    if request.allows(kind))))
        # A decision asks several times about its requests.
        self._latest = requests, len(self._kinds), found
        return found

    def lacking(
        self, requests: Sequence[DeviceRequest], rows: Rows
    ) -> Iterator[tuple[DeviceRequest, Numbers]]:
        """Yield each request with the number of devices that rows have."""
        for each in self._matching(requests):
            yield each.request, self._free(each.usable, rows).all

    def enough(
        self, requests: Sequence[DeviceRequest], rows: Rows
    ) -> Mask:
        """Return whether rows have enough devices, anywhere."""
        return functools.reduce(np.logical_and, [
            free >= request.count
            for request, free in self.lacking(requests, rows)])

    def near(
        self, requests: Sequence[DeviceRequest], rows: Rows, cells: CellTable,
    ) -> Near:
        """Return which cells have enough devices near to them.

        :param cells: the cells of the same hosts
        """
        places = _Places(cells, rows)
        asked = []
        for each in self._matching(requests):
            usable = self._free(each.usable, rows).at(places)
            fitting = (usable if each.fitting == each.usable
                       else self._free(each.fitting, rows).at(places))
            asked.append(
                _RequestVerdict(each.request, fitting, usable, places))

        def near(chosen: tuple[int, ...]) -> Mask:
            return functools.reduce(
                np.logical_and, [each.holds(chosen) for each in asked])

        return near

    def _free(self, numbers: Iterable[int], rows: Rows) -> '_Free':
        """Return the free devices of some kinds, by node."""
        kinds = [*self._kinds]
        free: dict[int | None, Numbers] = {}
        for number in numbers:
            node = kinds[number].numa_node
            free[node] = free.get(node, 0) + self._counts[number][rows]
        return _Free(free, self._none[rows])


class _Places:
    """The cells of hosts, by place.

    :ivar count: the most cells of a host
    """

    def __init__(self, cells: CellTable, rows: Rows) -> None:
        self._cells, self._rows = cells, rows
        self._ids = cells.ids(rows)
        self.count = len(cells.cells(rows))

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
        sockets = self._cells.sockets(self._rows)
        known = (sockets >= 0) | ~self._cells.cells(self._rows)
        return sockets, np.logical_and.reduce(known)

    def same_socket(self, chosen: tuple[int, ...]) -> Mask:
        """Return the cells of the same sockets, by place and host."""
        sockets, known = self._sockets
        return np.logical_or.reduce(
            [sockets == sockets[place] for place in chosen]) & known


class _Free(NamedTuple):
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


class _Near(NamedTuple):
    """The devices near to cells, near to none that is known, and all."""

    cells: list[Numbers]
    nowhere: Numbers
    all: Numbers

    def at(self, chosen: tuple[int, ...]) -> Numbers:
        """Return the devices near to any of the cells at places."""
        return functools.reduce(
            np.add, [self.cells[place] for place in chosen])


class _RequestVerdict(NamedTuple):
    """A request, with the devices that fit and those that may be taken."""

    request: DeviceRequest
    fitting: _Near
    usable: _Near
    places: _Places

    def holds(self, chosen: tuple[int, ...]) -> Mask:
        """Return whether enough devices are near to the cells at places."""
        count = self.request.count
        affinity = self.request.affinity or devices.LEGACY
        usable = self.usable.at(chosen)
        enough: Mask = usable >= count
        if affinity == devices.REQUIRED or (
                affinity == devices.LEGACY and self.fitting is self.usable
                and not self.usable.nowhere.any()):
            # Most hosts report the node of each device.
            return enough
        # If too few devices near to the cells have the properties, the policy
        # says which others serve: those of the same sockets; those of no known
        # node (legacy); or these, and all if even these are too few.
        near = self.fitting.at(chosen)
        if affinity == devices.SOCKET:
            other = np.where(self.places.same_socket(chosen),
                             self.usable.cells, 0).sum(axis=0)
        else:
            other = usable + self.usable.nowhere
            if affinity != devices.LEGACY:
                other = np.where(near + self.fitting.nowhere >= count, other,
                                 self.usable.all)
        return np.where(near >= count, enough, other >= count)
