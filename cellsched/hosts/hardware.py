# SPDX-License-Identifier: Apache-2.0
"""The NUMA cells and PCI devices of all hosts, as tables of numbers.

The tables are kept with the columns. They are repaired in the rows that
changed since the last request for cells or devices.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import functools
from typing import NamedTuple

import numpy as np

from cellsched.hardware.cell_table import CellTable
from cellsched.hardware.cell_table import Lack
from cellsched.hardware.device_table import DeviceTable
from cellsched.hardware import devices
from cellsched.hardware import fit
from cellsched.hardware.host import HostTopology
from cellsched.hardware import units
from cellsched.hosts.columns import AVAILABLE
from cellsched.hosts import view


#: Up to this number of changed hosts are set one by one.
_FEW = 64

#: Stands for all classes of a host that is read again.
_ALL = ''

#: Hosts that are kept with the use of their cells.
_HOSTS_MAX = 256


class HostHardware(NamedTuple):
    """The cells and the free devices of one host.

    :param topology: its cells with their usage; None if it reports none
    :param is_claimed: whether claims name its CPUs, pages and devices
    """

    topology: HostTopology | None
    pools: devices.Pools
    ratios: fit.Ratios
    is_claimed: bool


class _Tables:
    """The tables of one set of columns, and the hosts that were read last.

    A host's amounts follow the decisions, because to read them takes longer.
    """

    def __init__(self, columns: view.MergedColumns) -> None:
        self.cells = CellTable(len(columns))
        self.devices = DeviceTable(len(columns))
        self._hosts: dict[int, HostHardware] = {}
        #: The available amounts of classes, by row.
        self._amounts: dict[int, dict[str, float]] = {}
        #: By row, what changed since the last repair, by class.
        self._changed: dict[int, dict[str, int]] = {}
        self._fill(columns, np.arange(len(columns)))

    def add(self, row: int, changed: view.Changes, times: int) -> None:
        """Follow a change of a row's usage."""
        known = self._amounts.get(row, {})
        for column, amount in changed:
            name = _part(column)
            if name is not None:
                net = self._changed.setdefault(row, {})
                net[name] = net.get(name, 0) + times * amount
                if name in known:
                    known[name] += times * amount

    def forget(self, rows: view.Column) -> None:
        """Read these rows again."""
        for row in rows.tolist():
            self._changed[row] = {_ALL: 1}
            self._amounts.pop(row, None)

    def repair(self, columns: view.MergedColumns) -> None:
        """Update the changed rows."""
        # A decision takes its amounts, gives them back, and reserves them.
        rows = [row for row, net in self._changed.items()
                if any(net.values())]
        self._changed = {}
        unread = [row for row in rows if row not in self._amounts]
        if len(unread) > _FEW:
            for row in unread:
                self._hosts.pop(row, None)
            self._fill(columns, np.array(unread))
            rows = [row for row in rows if row in self._amounts]
        for row in rows:
            before = self._hosts.pop(row, None)
            host = self.host(columns, row)
            if host != before:
                self.cells.put(np.array([row]), host.topology)
                self.devices.put(np.array([row]), host.pools)

    def host(self, columns: view.MergedColumns, row: int) -> HostHardware:
        """Return the hardware of one host, which may be known."""
        found = self._hosts.get(row)
        if found is None:
            if len(self._hosts) >= _HOSTS_MAX:
                self._hosts.clear()
                self._amounts.clear()
            found = self._hosts[row] = _host(
                columns, row, self._amounts.setdefault(row, {}))
        return found

    def _fill(
        self, columns: view.MergedColumns, rows: view.Column
    ) -> None:
        """Set rows; many hosts with equal hardware together."""
        # 1. Set hosts with selections that their reports do not show.
        single = _are_reduced(columns, rows)
        for row in rows[single].tolist():
            host, at = self.host(columns, row), np.array([row])
            self.cells.put(at, host.topology)
            self.devices.put(at, host.pools)
        # 2. Set the others.
        rows = rows[~single]
        claims = columns['claims_hardware'][rows]
        for name, fill in (('numa_topology', self._fill_cells),
                           ('device_pools', self._fill_devices)):
            values = columns.snapshot.encoding(name).values
            keys = 2 * columns[name][rows].astype('int64') + claims
            for key in np.unique(keys).tolist():
                fill(columns, rows[keys == key], values[key // 2],
                     bool(key % 2))

    def _fill_cells(
        self, columns: view.MergedColumns, rows: view.Column,
        topology: HostTopology | None, claims: bool,
    ) -> None:
        if topology is None or not claims:
            self.cells.put(rows, topology)
        else:
            self.cells.put(
                rows, topology, _amounts(columns, rows),
                columns['cpu_allocation_ratio'][rows],
                columns['ram_allocation_ratio'][rows])

    def _fill_devices(
        self, columns: view.MergedColumns, rows: view.Column,
        pools: devices.Pools, claims: bool,
    ) -> None:
        self.devices.put(
            rows, pools, _amounts(columns, rows) if claims else None)


def _are_reduced(
    columns: view.MergedColumns, rows: view.Column
) -> view.Mask:
    """Return which of some hosts may have selections beside their reports."""
    reported: view.Mask = ~columns['claims_hardware'][rows]
    found: view.Mask = np.zeros(len(rows), bool)
    if reported.any():
        for name in columns.names:
            if _part(name) is not None:
                found |= columns[name][rows] < 0
    return found & reported


def _amounts(
    columns: view.MergedColumns, rows: view.Column
) -> Callable[[str], view.Column]:
    """Return the unclaimed amounts of a class on these rows."""
    none = np.zeros(len(rows))

    def amounts(name: str) -> view.Column:
        column = AVAILABLE + name
        return columns[column][rows] if column in columns else none

    return amounts


@functools.lru_cache(units.NAMES_MAX)
def _part(column: str) -> str | None:
    """Return the class of a part of hosts whose amounts a column has."""
    name = column.removeprefix(AVAILABLE)
    return name if name != column and units.is_named(name) else None


def _host(
    columns: view.MergedColumns, row: int, amounts: dict[str, float]
) -> HostHardware:
    """Return the hardware of one host.

    :param amounts: known amounts of classes; those that are read are added
    """
    encodings = columns.snapshot.encodings
    topology, pools = (
        encodings[name].values[columns[name][row]]
        for name in ('numa_topology', 'device_pools'))
    ratios = fit.Ratios(*(float(columns[name][row]) for name in (
        'cpu_allocation_ratio', 'ram_allocation_ratio')))

    def available(classes: tuple[str, ...]) -> list[float]:
        # All classes of a cell are read together.
        if not amounts.keys() >= {*classes[:1]}:
            amounts.update(zip(classes, columns.amounts(row, classes)))
        return [*map(amounts.__getitem__, classes)]

    if not columns['claims_hardware'][row]:
        return HostHardware(
            topology and units.reduced(topology, available),
            units.free_devices(pools, available, True), ratios, False)
    return HostHardware(
        topology and units.claimed(topology, available, ratios),
        units.free_devices(pools, available), ratios, True)


def _tables(columns: view.MergedColumns) -> _Tables:
    found: _Tables | None = columns.tables.get(_Tables)
    if found is None:
        found = columns.tables[_Tables] = _Tables(columns)
    found.repair(columns)
    return found


def tables(hosts: view.Hosts) -> tuple[CellTable, DeviceTable]:
    """Return the cells and the devices of all hosts of the table."""
    found = _tables(hosts.columns)
    return found.cells, found.devices


def on_host(hosts: view.Hosts, place: int) -> HostHardware:
    """Return the cells and the free devices of one host.

    :param place: index of the host
    """
    columns, row = hosts.columns, int(hosts.table_rows(place))
    if _Tables not in columns.tables:
        # A decision that goes on without its columns asks about few hosts.
        return _host(columns, row, {})
    return _tables(columns).host(columns, row)


def rows(hosts: view.Hosts) -> slice | view.Column:
    """Return the rows of hosts in the tables."""
    return slice(None) if hosts.is_whole else hosts.rows


def ratios(
    hosts: view.Hosts
) -> tuple[float | view.Column, float | view.Column]:
    """Return the ratios of CPUs and memory, as one number if all agree."""
    def ratio(name: str) -> float | view.Column:
        least = hosts.least(name)
        return least if least == hosts.most(name) else hosts[name]

    return ratio('cpu_allocation_ratio'), ratio('ram_allocation_ratio')


def exact(
    hosts: view.Hosts, demand: fit.Demand, mask: view.Mask
) -> view.Mask:
    """Return the hosts of a mask on which a server fits, one by one."""
    kept = mask.copy()
    for place in np.flatnonzero(mask).tolist():
        topology, pools, ratios, _ = on_host(hosts, place)
        kept[place] = fit.fit(topology, demand, ratios, pools) is not None
    return kept


_THREADS = 'has no CPUs with several threads'


def lacks(
    hosts: view.Hosts, demand: fit.Demand | None, needs_threads: bool
) -> list[Lack]:
    """Return what hosts lack of the NUMA cells of a server.

    :param hosts: hosts that were rejected
    :param demand: the server; None if it asks for threads alone
    """
    some = rows(hosts)
    cells, pools = tables(hosts)
    if demand is None or demand.topology is None:
        return [Lack(_THREADS, np.ones(len(hosts), bool))]
    conditions: list[tuple[str, view.Mask]] = []
    found = ratios(hosts)
    if needs_threads:
        conditions.append((_THREADS, ~cells.threads(some)))
    for asked, free in pools.lacking(demand.devices, some):
        conditions.append((
            f'lacks {devices.describe([asked])}', free < asked.count))
    for place, near in (
            ('its networks', cells.near_networks(demand.networks, some)),
            (devices.describe(demand.devices), pools.near(
                demand.devices, some, cells) if demand.devices else None)):
        if near is not None:
            conditions.append((
                f'lacks room in NUMA cells near {place}',
                ~cells.fits(demand.topology, some, *found, near)))
    return cells.lacks(demand.topology, some, *found, conditions)


def used(
    hosts: view.Hosts, demand: fit.Demand, most: view.Column
) -> list[list[Mapping[str, int]]]:
    """Return the parts of each host that equal servers take, one by one.

    They are those of repeated decisions. Hosts in equal states are computed
    once.

    :param most: the most servers to place, for each host
    :returns: for each host the amounts of each server that fits
    """
    after: dict[HostHardware, _Step | None] = {}

    def fill(state: HostHardware, most: int) -> Iterator[Mapping[str, int]]:
        for _ in range(most):
            if state not in after:
                after[state] = _step(state, demand)
            step = after[state]
            if step is None:
                return
            yield step.taken
            state = step.after

    return [[*fill(on_host(hosts, place), int(number))]
            for place, number in enumerate(most)]


class _Step(NamedTuple):
    """The parts that a server takes of a host, and the host after it."""

    taken: Mapping[str, int]
    after: HostHardware


def _step(host: HostHardware, demand: fit.Demand) -> _Step | None:
    topology, pools = host.topology, host.pools
    placement = fit.fit(topology, demand, host.ratios, pools)
    if placement is None:
        return None
    remaining = devices.take(
        pools, demand.devices, None,
        [each.host_cell for each in placement] or None, topology) or ()
    return _Step(
        units.amounts(topology, placement, pools, remaining),
        host._replace(topology=topology and fit.used(topology, placement),
                      pools=remaining))
