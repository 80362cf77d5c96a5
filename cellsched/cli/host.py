# SPDX-License-Identifier: Apache-2.0
"""Hosts: ``cellsched host list|show|export``."""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
import json
import os
import pathlib
import tempfile
from typing import Any
from typing import TYPE_CHECKING

from cliff import columns

from cellsched.cli import base
from cellsched.cli import host_providers
from cellsched import exception

if TYPE_CHECKING:
    from cellsched.cli.app import App
    from cellsched.cli.app import Shell
    from cellsched.hosts.document import HostDocument

#: The largest snapshot that is read.
_BYTES_MAX = 1024 ** 3

_COLUMNS = ('Host', 'Node', 'Cell', 'Zone', 'State', 'Status', 'VCPU',
            'MEMORY_MB', 'DISK_GB', 'Instances')


class ListHosts(base.Lister):
    """List the hosts that a scheduler knows.

    Of each resource it shows what can still be claimed, and of how much in
    all. A cell that does not answer is named, and its hosts are missing.

    Examples::

        cellsched host list
        cellsched host list --snapshot hosts.json -f csv
    """

    kinds = base.DECISIONS

    app: 'Shell'
    columns = _COLUMNS

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        return _add_snapshot(super().get_parser(prog_name))

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        snapshot = snapshot_of(self.app, parsed_args.snapshot)
        return self.columns, [
            tuple(row.values()) for row in sorted(
                _rows(snapshot, range(len(snapshot.table)),
                      self.app.conf.service_down_time),
                key=lambda row: (row['Cell'], row['Host'], row['Node']))]


class ShowHost(base.ShowOne):
    """Show a host, or a node of it, with all that filters can read.

    Its providers are what is below it, such as its devices, and what it
    shares with others, with what is left of each. Agents' names of what is
    below a host are not here; ``provider show`` has them.

    Example::

        cellsched host show n1
    """

    kinds = base.DECISIONS

    app: 'Shell'
    columns = (*_COLUMNS, 'Providers', 'Columns')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('name', metavar='NAME',
                            help='name of the host or of the node')
        return _add_snapshot(parser)

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        snapshot = snapshot_of(self.app, parsed_args.snapshot)
        table, name = snapshot.table, parsed_args.name
        rows = [row for row, names in enumerate(zip(
            table['nodename'], table['host'])) if name in names]
        exact = [row for row in rows if table['nodename'][row] == name]
        if not rows:
            raise exception.NotFound(f'There is no host {name}.')
        if len(exact or rows) > 1:
            raise exception.Invalid(
                f'Host {name} has several nodes; name one of: ' + ', '.join(
                    sorted(table['nodename'][row] for row in rows)))
        [row] = exact or rows
        [shown] = _rows(snapshot, [row], self.app.conf.service_down_time)
        providers = host_providers.of(table.view(snapshot.now), row)
        return self.columns, (
            *shown.values(), host_providers.HostProviders(providers),
            _Values(_values(snapshot, row)))


class ExportHosts(base.Command):
    """Write all that a scheduler knows of hosts to a file.

    ``cellsched plan --snapshot`` decides on it, elsewhere and later. It is
    JSON, has no credentials, and may be edited. A cell that does not answer
    is named, and its hosts are missing.

    Examples::

        cellsched host export hosts.json
        cellsched host export - | gzip > hosts.json.gz
    """

    kinds = base.DECISIONS

    app: 'Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'file', metavar='FILE', nargs='?', default='-',
            help='the file; - is standard output, as is none')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        snapshot = snapshot_of(self.app, None)
        from cellsched.hosts.document import dump

        document = dump(snapshot)
        if parsed_args.file == '-':
            _write(document, self.app.stdout)
        else:
            _save(document, pathlib.Path(parsed_args.file))


class _Values(columns.FormattableColumn[dict[str, Any]]):
    """Columns; for people without those that tell of other providers."""

    def human_readable(self) -> str:
        return '\n'.join(
            f'{name}={value}'
            for name, value in self.machine_readable().items()
            if not host_providers.is_told(name))


def read(app: 'App', path: pathlib.Path) -> 'HostDocument':
    """Return the snapshot in a file.

    :raises cellsched.exception.InvalidField: names the field
    """
    from cellsched.hosts import column_providers
    from cellsched.hosts.document import load
    from cellsched.hosts.document import parse

    try:
        with path.open('rb') as file:
            text = file.read(_BYTES_MAX + 1)
    except OSError as exc:
        raise exception.InvalidField(
            where='options', field='--snapshot',
            expected=f'a file that can be read: {exc.strerror}') from None
    if len(text) > _BYTES_MAX:
        raise exception.InvalidField(
            where='snapshot', field='document',
            expected=f'at most {_BYTES_MAX} bytes')
    snapshot = load(
        parse(text),
        column_providers.load(),
        app.conf.scheduler.cell_failure_half_life)
    _warn(app, snapshot)
    return snapshot


def snapshot_of(
    app: 'Shell', path: pathlib.Path | None
) -> 'HostDocument':
    """Return the hosts of a file, or of the deployment as it is now."""
    if path is not None:
        return read(app, path)
    snapshot = app.deployment.snapshot()
    _warn(app, snapshot)
    return snapshot


def _warn(app: 'App', snapshot: 'HostDocument') -> None:
    for cell in snapshot.silent:
        app.warn(f'warning: cell {cell} did not answer; its hosts are '
                 'missing or old')


def _rows(
    snapshot: 'HostDocument', rows: Iterable[int], down_s: float
) -> Iterator[dict[str, Any]]:
    """Yield what is shown of hosts."""
    table = snapshot.table
    hosts = table.view(snapshot.now)
    room = {name: hosts.room(name)
            for name in ('VCPU', 'MEMORY_MB', 'DISK_GB')}
    used = {
        'VCPU': table['vcpus_used'],
        'MEMORY_MB': table['unreserved_ram_mb'] - table['free_ram_mb'],
        'DISK_GB': table['disk_mb_used'] // 1024}
    for row in rows:
        cell = hosts.value('cell', table['cell'][row])
        down = (table['forced_down'][row]
                or snapshot.now - table['last_seen_up'][row] > down_s)
        yield {
            'Host': table['host'][row], 'Node': table['nodename'][row],
            'Cell': snapshot.cells.get(cell, cell),
            'Zone': hosts.value(
                'availability_zone', table['availability_zone'][row]),
            'State': 'down' if down else 'up',
            'Status': ('disabled' if table['service_disabled'][row]
                       else 'enabled'),
            **{name: f'{room[name][row]:.0f}/'
                     f'{room[name][row] + used[name][row]:.0f}'
               for name in room},
            'Instances': int(table['num_instances'][row])}


def _values(snapshot: 'HostDocument', row: int) -> dict[str, Any]:
    """Return what a host's columns hold, as a snapshot has it."""
    from cellsched.hosts import document as document_

    columns = document_.dump(snapshot)['columns']
    return {name: (said['values'][said['codes'][row]]
                   if isinstance(said, dict) else said[row])
            for name, said in columns.items()}


def _save(document: dict[str, Any], path: pathlib.Path) -> None:
    """Write a file whole or not at all.

    A device or a pipe is written to as it is; a link goes on pointing there.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open('w', encoding='utf-8') as stream:
                _write(document, stream)
            return
        path = path.resolve()
        with tempfile.NamedTemporaryFile(
                'w', encoding='utf-8', dir=path.parent, prefix=path.name,
                delete=False) as file:
            try:
                _write(document, file)
                file.flush()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as exc:
        raise exception.Invalid(
            f'{path} cannot be written: {exc.strerror}') from None


def _write(document: dict[str, Any], stream: Any) -> None:
    """Write a column on each line, so that it can be edited."""
    columns = document.pop('columns')
    head = json.dumps(document, indent=1)[:-2]
    stream.write(f'{head},\n "columns": {{')
    for number, (name, values) in enumerate(columns.items()):
        stream.write(f'{"," if number else ""}\n  {json.dumps(name)}: '
                     f'{json.dumps(values)}')
    stream.write('\n }\n}\n')


def _add_snapshot(
    parser: argparse.ArgumentParser
) -> argparse.ArgumentParser:
    parser.add_argument(
        '--snapshot', metavar='FILE', type=pathlib.Path,
        help='show the hosts of this file, from cellsched host export')
    return parser
