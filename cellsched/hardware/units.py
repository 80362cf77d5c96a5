# SPDX-License-Identifier: Apache-2.0
"""The CPUs, memory and devices of a host as resource classes.

A host has an inventory of each dedicated CPU, of the shared CPUs and the
memory of each cell, of the pages of each size, and of each pool of devices. A
claim of a server names its CPUs and pools, so no store gives one of them
twice.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import re
from typing import Any
from typing import TypeVar

from cellsched.hardware.devices import Pool
from cellsched.hardware.devices import Pools
from cellsched.hardware.fit import Placement
from cellsched.hardware.fit import Ratios
from cellsched.hardware import guest
from cellsched.hardware.host import HostCell
from cellsched.hardware.host import HostTopology
from cellsched.hardware.host import KIB
from cellsched.hardware.host import Pages
from cellsched.hardware.host import shown_cpus
from cellsched.hardware.host import shown_size

#: Returns the unclaimed amounts of classes on a host.
Available = Callable[[tuple[str, ...]], Sequence[float]]

#: The classes of parts of a host.
_NAMED = re.compile(
    r'CUSTOM_(PCPU_(?P<cpu>\d+)'
    r'|NUMA(?P<cell>\d+)_(VCPU|(?P<memory>MEMORY_MB)|PAGES_(?P<size>\d+)KB)'
    r'|PCI_POOL_(?P<pool>[0-9A-F]{16}))')

#: The beginning of the classes of devices.
_DEVICE = 'CUSTOM_PCI_POOL_'

#: Names that are kept; they depend on the hosts alone.
NAMES_MAX = 8192

#: Cells that are kept, with their use.
_CELLS_MAX = 1024


@functools.lru_cache(NAMES_MAX)
def cpu(number: int) -> str:
    """Return the class of a dedicated CPU."""
    return f'CUSTOM_PCPU_{number}'


@functools.lru_cache(NAMES_MAX)
def shared_cpus(cell: int) -> str:
    """Return the class of the shared CPUs of a cell."""
    return f'CUSTOM_NUMA{cell}_VCPU'


@functools.lru_cache(NAMES_MAX)
def memory(cell: int) -> str:
    """Return the class of the memory of a cell, in MiB."""
    return f'CUSTOM_NUMA{cell}_MEMORY_MB'


@functools.lru_cache(NAMES_MAX)
def pages(cell: int, size_kb: int) -> str:
    """Return the class of the pages of a size of a cell."""
    return f'CUSTOM_NUMA{cell}_PAGES_{size_kb}KB'


@functools.lru_cache(NAMES_MAX)
def device(pool: Pool) -> str:
    """Return the class of the devices of a pool."""
    digest = hashlib.sha256(repr(
        (pool.numa_node, pool.properties)).encode()).hexdigest()[:16]
    return f'{_DEVICE}{digest.upper()}'


def inventory(
    host: HostTopology | None, pools: Pools, ratios: Ratios
) -> dict[str, int]:
    """Return the totals of a host without servers, by class.

    :param pools: all devices, free or not
    """
    totals: dict[str, int] = {}
    for cell in host.cells if host else ():
        totals |= dict.fromkeys(map(cpu, cell.pcpus), 1)
        totals[shared_cpus(cell.id)] = int(len(cell.cpus) * ratios.cpu)
        totals[memory(cell.id)] = int(cell.memory_mb * ratios.memory)
        for each in cell.pages:
            totals[pages(cell.id, each.size_kb)] = each.total - each.reserved
    for pool in pools:
        totals[device(pool)] = totals.get(device(pool), 0) + pool.count
    return {name: total for name, total in totals.items() if total > 0}


def amounts(
    host: HostTopology | None, placement: Placement,
    before: Iterable[Pool] = (), after: Iterable[Pool] = (),
) -> dict[str, int]:
    """Return the amounts of a server, by class.

    :param before: the free devices of the host before it takes some
    :param after: the free devices after it
    """
    taken: dict[str, int] = {}

    def add(name: str, amount: int) -> None:
        if amount:
            taken[name] = taken.get(name, 0) + amount

    for placed in placement:
        assert host is not None, 'the server has cells'
        cell, guest_cell = host.by_id[placed.host_cell], placed.guest
        pinned = placed.pinned
        if guest_cell.thread_policy == guest.ISOLATE:
            # A thread that another server has stays its own.
            pinned |= cell.cores_of(pinned) & cell.free_pcpus
        for number in pinned:
            add(cpu(number), 1)
        add(shared_cpus(cell.id), len(guest_cell.cpus))
        add(memory(cell.id), guest_cell.memory_mb)
        size = placed.page_size or (
            next(iter(cell.sizes), None) if guest_cell.is_pinned else None)
        if size is not None:
            add(pages(cell.id, size), guest_cell.memory_mb * KIB // size)
    for pool in before:
        add(device(pool), pool.count)
    for pool in after:
        add(device(pool), -pool.count)
    return {name: amount for name, amount in taken.items() if amount}


def claimed(
    host: HostTopology, available: Available, ratios: Ratios
) -> HostTopology:
    """Return a host with the usage of the claims, not of its report."""
    return HostTopology(tuple(
        _claimed_cell(cell, tuple(available(_of_cell(cell))), ratios)
        for cell in host.cells))


def limited(host: HostTopology, amounts: Mapping[str, int]) -> HostTopology:
    """Return a host on which only these amounts are free.

    They are what the claims of one server name. No allocation ratio applies
    to a single server.
    """
    return HostTopology(tuple(
        _cell(cell, [amounts.get(name, 0) for name in _of_cell(cell)],
              Ratios()) for cell in host.cells))


@functools.lru_cache(_CELLS_MAX)
def _of_cell(cell: HostCell) -> tuple[str, ...]:
    """Return the classes of a cell."""
    return (memory(cell.id), shared_cpus(cell.id),
            *(pages(cell.id, size) for size in cell.sizes),
            *map(cpu, cell.pcpus))


# A claim changes few cells of a host, and hosts of one kind have equal cells.
@functools.lru_cache(_CELLS_MAX)
def _claimed_cell(
    cell: HostCell, amounts: tuple[float, ...], ratios: Ratios
) -> HostCell:
    """Return a cell with the usage of the claims.

    A server that shares CPUs and names no page size has memory in the
    smallest pages, but claims none, because it may be overcommitted.

    :param amounts: the available amounts of its classes
    """
    found = _cell(cell, amounts, ratios)
    if not found.pages:
        return found
    first, *rest = found.pages
    unnamed_kb = found.memory_usage * KIB - sum(
        each.used * each.size_kb for each in found.pages)
    return dataclasses.replace(found, pages=(dataclasses.replace(
        first, used=first.used + max(0, unnamed_kb) // first.size_kb), *rest))


def _cell(
    cell: HostCell, amounts: Sequence[float], ratios: Ratios
) -> HostCell:
    """Return a cell with these available amounts of its classes."""
    memory_mb, vcpus, *free = amounts
    sizes = [Pages(
        each.size_kb, each.total, each.total - each.reserved - int(amount),
        each.reserved) for each, amount in zip(cell.sizes.values(), free)]
    return dataclasses.replace(
        cell, pages=tuple(sizes),
        memory_usage=int(cell.memory_mb * ratios.memory) - int(memory_mb),
        cpu_usage=int(len(cell.cpus) * ratios.cpu) - int(vcpus),
        pinned=frozenset(number for number, amount in zip(
            cell.pcpus, free[len(sizes):]) if amount < 1))


def reduced(host: HostTopology, available: Available) -> HostTopology:
    """Return a host with the usage of its report and of later selections.

    :param available: the amounts that the later selections take, below 0
    """
    return HostTopology(tuple(
        _reduced_cell(cell, tuple(available(_of_cell(cell))))
        for cell in host.cells))


@functools.lru_cache(_CELLS_MAX)
def _reduced_cell(cell: HostCell, amounts: tuple[float, ...]) -> HostCell:
    if not any(amounts):
        return cell
    memory_mb, vcpus, *taken = (max(0, -int(amount)) for amount in amounts)
    used_kb = [size * count for size, count in zip(cell.sizes, taken)]
    # See _claimed_cell.
    if used_kb:
        used_kb[0] += max(0, memory_mb * KIB - sum(used_kb))
    added = dict(zip(cell.sizes, used_kb))
    return dataclasses.replace(
        cell, memory_usage=cell.memory_usage + memory_mb,
        cpu_usage=cell.cpu_usage + vcpus, pages=tuple(
            dataclasses.replace(
                each, used=each.used + added[each.size_kb] // each.size_kb)
            for each in cell.pages),
        pinned=cell.pinned.union(number for number, amount in zip(
            cell.pcpus, taken[len(used_kb):]) if amount))


def free_devices(
    pools: Pools, available: Available, are_reported: bool = False
) -> Pools:
    """Return the pools with the devices that no claim has.

    :param are_reported: whether the pools have the free devices of a report,
        and the amounts are those of later selections, below 0
    """
    free = available(tuple(map(device, pools)))
    found = (dataclasses.replace(pool, count=(
        pool.count + min(0, int(count)) if are_reported else int(count)))
        for pool, count in zip(pools, free))
    return tuple(pool for pool in found if pool.count > 0)


def devices_in(amounts: Mapping[str, int]) -> int:
    """Return the number of devices in amounts by class."""
    return sum(amount for name, amount in amounts.items()
               if name.startswith(_DEVICE))


@functools.lru_cache(NAMES_MAX)
def is_named(name: str) -> bool:
    """Return whether a class is that of a part of a host."""
    return _NAMED.fullmatch(name) is not None


_Amount = TypeVar('_Amount')


def plain(amounts: Mapping[str, _Amount]) -> dict[str, _Amount]:
    """Return the amounts that do not name parts of a host.

    Claims of a server on different hosts have these in common.
    """
    return {name: amount for name, amount in amounts.items()
            if not is_named(name)}


def named(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the other amounts, those of parts of a host."""
    return {name: amount for name, amount in amounts.items()
            if is_named(name)}


def title(name: str) -> str:
    """Return a class in words; other classes are unchanged."""
    found = _NAMED.fullmatch(name)
    if found is None:
        return name
    if found['cpu']:
        return f'CPU {found["cpu"]}'
    if found['pool']:
        return f'devices of pool {found["pool"]}'
    kind = (f'pages of {shown_size(int(found["size"]))}' if found['size']
            else 'MB of memory' if found['memory'] else 'shared CPUs')
    return f'{kind} of NUMA cell {found["cell"]}'


def parts(
    amounts: Mapping[str, int], host: HostTopology | None, pools: Pools
) -> list[dict[str, Any]]:
    """Return the parts of a host that amounts name, as plain data.

    Each part has ``cell``, the id of a cell, or None for devices near to
    none; ``cpus``, the numbers of dedicated CPUs; ``shared_cpus``;
    ``memory_mb``; ``pages``, numbers by size; and ``devices``, numbers by
    kind. What the host no longer has is in a last part with ``unknown``.

    :param pools: kinds of devices of the host
    """
    rest, found = named(amounts), []
    for cell in host.cells if host else ():
        found.append({
            'cell': cell.id,
            'cpus': sorted(number for number in cell.pcpus
                           if rest.pop(cpu(number), 0)),
            'shared_cpus': rest.pop(shared_cpus(cell.id), 0),
            'memory_mb': rest.pop(memory(cell.id), 0),
            'pages': {shown_size(each.size_kb): amount for each in cell.pages
                      if (amount := rest.pop(
                          pages(cell.id, each.size_kb), 0))},
            'devices': _devices(rest, pools, cell.id)})
    for node in dict.fromkeys(pool.numa_node for pool in pools):
        if devices := _devices(rest, pools, node):
            found.append({
                'cell': node, 'cpus': [], 'shared_cpus': 0, 'memory_mb': 0,
                'pages': {}, 'devices': devices})
    return [each for each in found if any(
        value for name, value in each.items() if name != 'cell')] + [
            {'cell': None, 'unknown': rest}] * bool(rest)


def _devices(
    rest: dict[str, int], pools: Pools, node: int | None
) -> dict[str, int]:
    """Take the devices near to a cell out of amounts."""
    return {pool.title: amount for pool in pools if pool.numa_node == node
            and (amount := rest.pop(device(pool), 0))}


def describe(part: Mapping[str, Any]) -> str:
    """Return a part of :func:`parts` in words, without its cell.

    Empty fields may be left out.
    """
    if 'unknown' in part:
        return 'no longer on the host: ' + ', '.join(
            map(title, sorted(part['unknown'])))
    texts = []
    if cpus := part.get('cpus'):
        texts.append(f'CPUs {shown_cpus(cpus)}')
    if shared := part.get('shared_cpus'):
        texts.append(f'{shared} shared CPUs')
    texts += [f'{count} x {size} pages'
              for size, count in part.get('pages', {}).items()]
    if memory_mb := part.get('memory_mb'):
        texts.append(f'{memory_mb} MB')
    return ', '.join([*texts, *(
        f'{count} x {kind}' for kind, count
        in part.get('devices', {}).items())])
