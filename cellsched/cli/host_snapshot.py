# SPDX-License-Identifier: Apache-2.0
"""Snapshots of hosts: read from a file or the deployment, shown and written.

A command imports this module when it runs: it imports numpy.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import json
import pathlib
import textwrap
from typing import Any

from cellsched.cli.app import App
from cellsched.cli.app import Shell
from cellsched.cli import base
from cellsched.cli import host_cells
from cellsched import exception
from cellsched.hardware import units
from cellsched.hosts.columns import AT
from cellsched.hosts.columns import AVAILABLE
from cellsched.hosts.columns import near
from cellsched.hosts.document import dump
from cellsched.hosts.document import HostDocument
from cellsched.hosts.document import load
from cellsched.hosts.document import parse
from cellsched.hosts import plugin_columns
from cellsched.hosts.view import Hosts

#: The largest file that is read.
_BYTES_MAX = 1024 ** 3

#: Columns whose content Providers and Cells show, besides amounts.
_SHOWN_ELSEWHERE = frozenset({
    'children', 'child_uuids', 'child_units', 'sharing', 'numa_topology',
    'device_pools', 'claims_hardware'})


#: Breaks long values for a table of 80 columns.
_WRAPPER = textwrap.TextWrapper(
    64, subsequent_indent='  ', break_on_hyphens=False)


def _cells_text(cells: Sequence[Mapping[str, Any]]) -> str:
    return '\n'.join(host_cells.picture(cells))


def _columns_text(values: Mapping[str, Any]) -> str:
    """Return values of columns, without those of providers and cells."""
    return '\n'.join(
        _WRAPPER.fill(f'{name}={value}') for name, value in values.items()
        if name not in _SHOWN_ELSEWHERE
        and not (name.startswith(AVAILABLE) and AT in name)
        and not units.named({name.removeprefix(AVAILABLE): 1}))


def read(app: App, path: pathlib.Path) -> HostDocument:
    """Return the snapshot in a file.

    :raises cellsched.exception.InvalidField: names the field
    """
    try:
        with path.open('rb') as file:
            text = file.read(_BYTES_MAX + 1)
    except OSError as exc:
        raise base.invalid(
            '--snapshot', f'{path} cannot be read: {exc.strerror}',
            'a readable file') from None
    if len(text) > _BYTES_MAX:
        raise exception.InvalidField(
            where='snapshot', field='document', problem='it is too large',
            expected=f'at most {_BYTES_MAX} bytes')
    snapshot = load(parse(text), plugin_columns.load(),
                    app.conf.scheduler.cell_failure_half_life)
    _warn(app, snapshot)
    return snapshot


def of(app: Shell, path: pathlib.Path | None) -> HostDocument:
    """Return the hosts in a file, or the hosts of the deployment now."""
    if path is not None:
        return read(app, path)
    snapshot = app.deployment.snapshot()
    _warn(app, snapshot)
    return snapshot


def rows(app: Shell, path: pathlib.Path | None) -> list[dict[str, Any]]:
    """Return the fields of all hosts, sorted by cell, host and node."""
    snapshot = of(app, path)
    return sorted(
        _rows(snapshot, range(len(snapshot.table)),
              app.conf.service_down_time),
        key=lambda row: (row['Cell'], row['Host'], row['Node']))


def row(app: Shell, path: pathlib.Path | None, name: str) -> dict[str, Any]:
    """Return all fields of a host.

    :param name: the name of the host, or of one of its nodes
    :raises cellsched.exception.NotFound: the host does not exist
    :raises cellsched.exception.Invalid: the host has several nodes
    """
    snapshot = of(app, path)
    table = snapshot.table
    found = [number for number, names in enumerate(zip(
        table['nodename'], table['host'])) if name in names]
    exact = [number for number in found if table['nodename'][number] == name]
    if not found:
        known = (*table['host'], *table['nodename'])
        raise exception.NotFound(f'There is no host {name}{near(name, known)}')
    if len(exact or found) > 1:
        raise exception.Invalid(
            f'host {name} has several nodes; expected the name of one: '
            + ', '.join(sorted(table['nodename'][number]
                               for number in found)))
    [number] = exact or found
    [fields] = _rows(snapshot, [number], app.conf.service_down_time)
    document = dump(snapshot)['columns']
    hosts = table.view(snapshot.now)
    # A file does not have the claims.
    cells = host_cells.read(
        hosts, number, app.deployment if path is None else None)
    return {
        **fields,
        **({'Cells': base.ShownValue(cells, _cells_text)} if cells else {}),
        'Providers': base.ShownValue(
            _providers(hosts, number),
            lambda providers: '\n'.join(map(_line, providers))),
        'Columns': base.ShownValue({
            column: (values['values'][values['codes'][number]]
                     if isinstance(values, dict) else values[number])
            for column, values in document.items()}, _columns_text)}


def export(app: Shell, file: str) -> None:
    """Write the hosts of the deployment to a file; ``-`` is standard output.

    :raises cellsched.exception.Invalid: the file cannot be written
    """
    document = dump(of(app, None))
    if file == '-':
        write(document, app.stdout)
    else:
        base.save(pathlib.Path(file), lambda stream: write(document, stream))


def write(document: dict[str, Any], stream: Any) -> None:
    """Write a document with one column on each line, for an editor."""
    columns = document.pop('columns')
    head = json.dumps(document, indent=1)[:-2]
    stream.write(f'{head},\n "columns": {{')
    for number, (name, values) in enumerate(columns.items()):
        stream.write(f'{"," if number else ""}\n  {json.dumps(name)}: '
                     f'{json.dumps(values)}')
    stream.write('\n }\n}\n')


def _warn(app: App, snapshot: HostDocument) -> None:
    for cell in snapshot.silent:
        app.warn(f'warning: cell {cell} did not answer; its hosts are '
                 'missing or outdated')


def _rows(
    snapshot: HostDocument, numbers: Iterable[int], down_s: float
) -> Iterator[dict[str, Any]]:
    table = snapshot.table
    hosts = table.view(snapshot.now)
    available = {name: hosts.available(name)
                 for name in ('VCPU', 'MEMORY_MB', 'DISK_GB')}
    used = {
        'VCPU': table['vcpus_used'],
        'MEMORY_MB': table['unreserved_ram_mb'] - table['free_ram_mb'],
        'DISK_GB': table['disk_mb_used'] // 1024}
    for number in numbers:
        cell = hosts.value('cell', table['cell'][number])
        down = (table['forced_down'][number]
                or snapshot.now - table['last_seen_up'][number] > down_s)
        yield {
            'Host': table['host'][number], 'Node': table['nodename'][number],
            'Cell': snapshot.cells.get(cell, cell),
            'Zone': hosts.value(
                'availability_zone', table['availability_zone'][number]),
            'State': 'down' if down else 'up',
            'Status': base.enabled_or_disabled(
                bool(table['service_disabled'][number])),
            **{name: f'{available[name][number]:.0f}/'
                     f'{available[name][number] + used[name][number]:.0f}'
               for name in available},
            'Instances': int(table['num_instances'][number])}


def _providers(hosts: Hosts, number: int) -> list[dict[str, Any]]:
    """Return the child providers of a host, and its sharing providers.

    The fields of each are ``number``, by which a column such as
    ``available:VGPU@1`` names a child, or None; ``name`` of a sharing
    provider, or None; ``uuid``; ``parent``, the uuid of the provider directly
    above a child, or None; ``room``, the available amounts by resource class,
    without zeros; and ``traits``.
    """
    return [*_children(hosts, number), *_sharing(hosts, number)]


def _children(hosts: Hosts, row: int) -> Iterator[dict[str, Any]]:
    root, children, uuids = hosts.values_at(
        row, 'uuid', 'children', 'child_uuids')
    for number, ((parent, traits), uuid) in enumerate(
            zip(children, uuids), start=1):
        end = f'{AT}{number}'
        yield {
            'number': number, 'name': None, 'uuid': uuid,
            'parent': uuids[parent - 1] if parent else root,
            'room': {
                name.removeprefix(AVAILABLE).removesuffix(end):
                    int(hosts[name][row])
                for name in sorted(hosts.names)
                if name.startswith(AVAILABLE) and name.endswith(end)
                and hosts[name][row]},
            'traits': sorted(traits)}


def _sharing(hosts: Hosts, row: int) -> Iterator[dict[str, Any]]:
    [uuids] = hosts.values_at(row, 'sharing')
    for uuid in uuids:
        provider = hosts.sharing.get(uuid)
        if provider is not None:
            amounts = {name: int(hosts.shared_available(uuid, name))
                       for name in sorted(provider.available)}
            yield {
                'number': None, 'name': provider.name, 'uuid': uuid,
                'parent': None, 'room': {
                    name: amount for name, amount in amounts.items()
                    if amount},
                'traits': sorted(provider.traits)}


def _line(provider: dict[str, Any]) -> str:
    amounts = ', '.join(f'{amount} {name}'
                        for name, amount in provider['room'].items())
    identity = (f'{provider["name"]}, shared' if provider['number'] is None
                else f'{provider["number"]}, {provider["uuid"]}')
    traits = ', '.join(provider['traits'])
    return (f'{identity}: {amounts or "nothing"} available'
            + (f'; {traits}' if traits else ''))
