# SPDX-License-Identifier: Apache-2.0
"""The NUMA cells and the devices of a host, as data and as a picture.

A command imports this module when it runs: it imports numpy.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import math
import string
import textwrap
from typing import Any
from typing import TYPE_CHECKING

import numpy as np

from cellsched.hardware.devices import Pool
from cellsched.hardware.host import HostCell
from cellsched.hardware.host import shown_cpus
from cellsched.hardware.host import shown_size
from cellsched.hardware import units
from cellsched.hosts import hardware
from cellsched.hosts.view import Hosts

if TYPE_CHECKING:
    from cellsched.cli.deployment import ReadDeployment

#: By consumer, its amounts by resource class.
Claims = Mapping[str, Mapping[str, int]]

#: Characters of a line of the picture, in a table of 80 columns.
_WIDTH = 64


def read(
    hosts: Hosts, place: int, deployment: 'ReadDeployment | None' = None
) -> list[dict[str, Any]]:
    """Return the cells of a host as plain data; empty if it has none.

    :param deployment: the deployment that has its claims
    """
    if not any(hosts.values_at(place, 'numa_topology', 'device_pools')):
        return []
    [host, uuid] = (hosts[name][place] for name in ('host', 'uuid'))
    return of(hosts, place, deployment.claims_on(
        host, uuid) if deployment else {})


def of(hosts: Hosts, place: int, claims: Claims) -> list[dict[str, Any]]:
    """Return the cells of a host.

    Devices near to no cell are in a last entry, whose ``cell`` is None.

    :param claims: the claims on the host, empty if they are not known
    """
    found = hardware.on_host(hosts, place)
    [kinds] = hosts.values_at(place, 'device_pools')
    topology = found.topology
    free = {pool.kind: pool.count for pool in found.pools}
    cells: dict[int | None, dict[str, Any]] = {
        cell.id: _cell(cell, found, claims)
        for cell in (topology.cells if topology else ())}
    for node in dict.fromkeys([*cells, *(pool.numa_node for pool in kinds)]):
        cells.setdefault(node, {'cell': node})['devices'] = [
            _pool(pool, free, claims if found.is_claimed else None)
            for pool in kinds if pool.numa_node == node]
    for consumer, amounts in sorted(claims.items()):
        for part in units.parts(amounts, topology, kinds):
            cell = cells.setdefault(
                part['cell'], {'cell': part['cell'], 'devices': []})
            cell.setdefault('servers', []).append({'server': consumer, **{
                name: value for name, value in part.items()
                if value and name != 'cell'}})
    return [*cells.values()]


def pictures(deployment: 'ReadDeployment') -> Iterator[str]:
    """Yield a picture of each host that has cells, sorted by their names."""
    snapshot = deployment.snapshot()
    hosts = snapshot.table.view(snapshot.now)
    for place in np.argsort(hosts['host']).tolist():
        if cells := read(hosts, place, deployment):
            yield '\n  '.join(
                [f'Host {hosts["host"][place]}:', *picture(cells)])


def _cell(
    cell: HostCell, found: hardware.HostHardware, claims: Claims
) -> dict[str, Any]:
    ratios = found.ratios
    owners = {name: consumer for consumer, amounts in claims.items()
              for name in amounts}
    dedicated = cell.pcpus - cell.cpus or cell.pcpus
    cores = [sorted(core & cell.pcpus) for core in cell.siblings] or [
        [cpu] for cpu in sorted(cell.pcpus)]
    return {
        'cell': cell.id, 'socket': cell.socket,
        'dedicated_cpus': {'total': len(dedicated),
                           'free': len(cell.free_pcpus & dedicated)},
        'cores': [[{
            'cpu': cpu, 'free': cpu in cell.free_pcpus,
            'server': owners.get(units.cpu(cpu))} for cpu in core]
            for core in cores if core],
        'shared_cpus': {
            'cpus': shown_cpus(cell.cpus),
            **_room(math.floor(len(cell.cpus) * ratios.cpu), cell.cpu_usage)},
        'memory_mb': _room(math.floor(cell.memory_mb * ratios.memory),
                           cell.memory_usage),
        'pages': [{
            'size': shown_size(each.size_kb), **_room(
                each.total - each.reserved, each.used)}
            for each in cell.sizes.values()]}


def _room(total: int, used: int) -> dict[str, int]:
    return {'total': total, 'free': total - used}


def _pool(
    pool: Pool, free: Mapping[Any, int], claims: Claims | None
) -> dict[str, Any]:
    """Return a kind of devices; the total is not known without claims."""
    count = free.get(pool.kind, 0)
    total = None if not claims else count + sum(
        amounts.get(units.device(pool), 0) for amounts in claims.values())
    return {'device': pool.title, 'free': count, 'total': total}


def picture(cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of a picture of the cells of a host."""
    marks = _marks(cells)
    for cell in cells:
        yield ('near to no NUMA cell' if cell['cell'] is None
               else f'NUMA cell {cell["cell"]}'
               + ('' if cell.get('socket') is None
                  else f', socket {cell["socket"]}'))
        yield from _rooms(cell)
        yield from _cores(cell.get('cores', ()), marks)
    for server, mark in marks.items():
        yield f'{mark}: server {server}'
        for cell in cells:
            for part in cell.get('servers', ()):
                if part['server'] == server:
                    yield from _wrapped(
                        f'cell {cell["cell"]}: ' + units.describe(part), 3)


def _rooms(cell: Mapping[str, Any]) -> Iterator[str]:
    shared = cell.get('shared_cpus', {'total': 0})
    for title, room in (
            ('dedicated CPUs', cell.get('dedicated_cpus')),
            (f'shared CPUs {shared.get("cpus")}', shared),
            ('memory MB', cell.get('memory_mb')),
            *((f'pages of {each["size"]}', each)
              for each in cell.get('pages', ())),
            *((each['device'], each) for each in cell['devices'])):
        if room and room['total'] != 0:
            total = '' if room['total'] is None else f' of {room["total"]}'
            yield f'  {title}: {room["free"]}{total} free'


def _cores(
    cores: Sequence[Sequence[Mapping[str, Any]]], marks: Mapping[str, str]
) -> Iterator[str]:
    """Yield the CPUs, those of a core in brackets, with their servers."""
    texts = [' '.join(
        f'{each["cpu"]}' + ('' if each['free'] else marks.get(
            each['server'], '*')) for each in core) for core in cores]
    yield from _wrapped(' '.join(
        f'[{text}]'.replace(' ', '\N{NO-BREAK SPACE}') if len(core) > 1
        else text for text, core in zip(texts, cores)), 4)


def _wrapped(text: str, indent: int) -> list[str]:
    return [line.replace('\N{NO-BREAK SPACE}', ' ') for line in textwrap.wrap(
        text, _WIDTH, initial_indent=' ' * indent,
        subsequent_indent=' ' * indent, break_on_hyphens=False)]


def _marks(cells: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return a letter for each server."""
    servers = dict.fromkeys(
        part['server'] for cell in cells for part in cell.get('servers', ()))
    letters = string.ascii_lowercase
    return {server: letters[number % 26] * (number // 26 + 1)
            for number, server in enumerate(servers)}
