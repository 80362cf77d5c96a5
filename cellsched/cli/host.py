# SPDX-License-Identifier: Apache-2.0
"""Hosts: ``cellsched host list|show|export|set|drain|evacuate``."""

import argparse
from collections.abc import Callable
import pathlib
from typing import Any
from typing import ClassVar
from typing import TYPE_CHECKING

from cellsched.cli.app import Shell
from cellsched.cli import base
from cellsched.cli import terminal
from cellsched import exception

if TYPE_CHECKING:
    from cellsched.api.host_drain import Departure

_COLUMNS = ('Host', 'Node', 'Cell', 'Zone', 'State', 'Status', 'VCPU',
            'MEMORY_MB', 'DISK_GB', 'Instances')

_AT_ONCE = 10
_AT_ONCE_MAX = 100
_TIMEOUT_S = 3600

_SNAPSHOT = base.argument(
    '--snapshot', metavar='FILE', type=pathlib.Path,
    help='show the hosts of this file, written by cellsched host export')


class ListHosts(base.Lister):
    """List the hosts that a scheduler knows.

    Each resource is shown as available/total. If a cell does not answer, a
    warning names it and its hosts are missing.

    Examples::

        cellsched host list
        cellsched host list --snapshot hosts.json -f csv
    """

    app: Shell

    kinds = base.DECISIONS
    arguments = (_SNAPSHOT,)
    columns = _COLUMNS

    def take_action(self, parsed_args: argparse.Namespace) -> base.Rows:
        return self.columns, [
            tuple(row.values()) for row in _snapshots().rows(
                self.app, parsed_args.snapshot)]


class ShowHost(base.ShowOne):
    """Show a host, or a node of a host, with all columns that filters read.

    Providers lists the child providers, for example devices, and the sharing
    providers of the host, with the available amounts. Child providers are
    shown without the names that agents give them; ``provider show`` has the
    names.

    Cells shows the NUMA cells, with the free and the total CPUs, memory, pages
    and devices. The CPUs of a core are in brackets. A letter after a CPU
    stands for the server that claims it, and a star for use by others. A file
    does not have the claims. A host without cells and devices has no Cells.

    Examples::

        cellsched host show n1
        cellsched host show n1 -c Cells -f json
    """

    app: Shell

    kinds = base.DECISIONS
    arguments = (
        base.argument('name', metavar='NAME',
                      help='name of the host or of the node'),
        _SNAPSHOT)
    columns = (*_COLUMNS, 'Cells', 'Providers', 'Columns')

    def take_action(self, parsed_args: argparse.Namespace) -> base.Row:
        row = _snapshots().row(
            self.app, parsed_args.snapshot, parsed_args.name)
        # Selected columns are shown even if they are empty.
        names = [name for name in self.columns
                 if name in row or parsed_args.columns]
        return tuple(names), tuple(row.get(name, '') for name in names)


class ExportHosts(base.Command):
    """Write the hosts that a scheduler knows to a file.

    ``cellsched plan --snapshot`` makes decisions on the file, on another
    machine or at another time. The file is JSON, has no credentials, and may
    be edited. If a cell does not answer, a warning names it and its hosts are
    missing.

    Examples::

        cellsched host export hosts.json
        cellsched host export - | gzip > hosts.json.gz
    """

    app: Shell

    kinds = base.DECISIONS
    arguments = (base.argument(
        'file', metavar='FILE', nargs='?', default='-',
        help='the file to write; by default -, which is standard output'),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        _snapshots().export(self.app, parsed_args.file)


@base.change_each(
    'set', 'host',
    base.argument('host', metavar='HOST', help='name of the host'),
    base.exclusive(
        base.flag('--enable', 'schedule new servers to the host again'),
        base.flag('--disable', 'schedule no new servers to the host'),
        required=True),
    base.argument('--disable-reason', metavar='REASON',
                  help='with --disable, the reason that is recorded'))
def set_host(
    app: Shell, args: argparse.Namespace, host: str
) -> dict[str, str]:
    """Disable a host for new servers, or enable it again.

    The servers of the host stay; ``host drain`` migrates them.

    Examples::

        cellsched host set host1 --disable --disable-reason "new disks"
        cellsched host set host1 --enable
    """
    app.api.services.set(app.context(), host, 'nova-compute', args.disable,
                         args.disable_reason)
    return {'status': base.enabled_or_disabled(args.disable)}


class _MoveAll(base.Lister):
    """A command that moves all servers of a host."""

    app: Shell

    kinds = base.SERVERS
    sends = True
    columns = ('ID', 'Name', 'Outcome', 'Reason')
    server_ids = ('ID',)
    arguments: ClassVar[base.Arguments] = (
        base.argument(
            '--at-once', type=base.whole(1, _AT_ONCE_MAX), metavar='COUNT',
            default=_AT_ONCE,
            help=f'the number of servers to move at the same time, 1 to '
                 f'{_AT_ONCE_MAX}; by default {_AT_ONCE}'),
        base.argument(
            '--timeout', type=base.whole(0, base.TIMEOUT_MAX_S),
            metavar='SECONDS', default=_TIMEOUT_S,
            help=f'the longest time to wait; by default {_TIMEOUT_S}'),
        base.argument('host', metavar='HOST', help='name of the host'))

    def take_action(self, parsed_args: argparse.Namespace) -> base.Rows:
        args = parsed_args
        with terminal.progress(
                f'Emptying {args.host}', 0, self.app.stderr) as show:
            try:
                found = self.move(args, show)
            except KeyboardInterrupt:
                raise exception.Invalid(
                    'Interrupted. Moves in progress continue; run the command '
                    f'again to move the other servers of {args.host}'
                ) from None
        outcomes = {each.outcome for each in found}
        if 'stays' in outcomes:
            self.exit_code = base.IN_ERROR
        elif 'moving' in outcomes:
            self.exit_code = base.TIMED_OUT
        return self.columns, [
            (each.uuid, each.name or '', each.outcome, each.reason)
            for each in found]

    def move(
        self, args: argparse.Namespace, show: Callable[[int, int], None]
    ) -> 'list[Departure]':
        """Move the servers; return the outcome for each."""
        raise NotImplementedError


class DrainHost(_MoveAll):
    """Disable a host, and migrate its servers within their cell.

    Servers keep the data on their disks. A server with a local disk stays if
    its host, or all other hosts, cannot transfer disks; the reason says what
    would be lost. With ``--rebuild`` the servers are built anew, and the data
    on their local disks is lost. Volumes keep their data in any case.

    Ends when every server has moved or cannot move: with 2 if a server stays
    on the host, and with 1 if the timeout has passed. If the command is run
    again, it continues with the servers that are still on the host. The host
    stays disabled until ``host set --enable``.

    Example::

        cellsched host drain host1 --reason "new disks" --at-once 4
    """

    arguments = (
        base.argument('--reason', metavar='REASON', default='drain',
                      help='the reason that is recorded; by default "drain"'),
        base.flag('--rebuild', 'build each server anew from its image on its '
                  'new host; the data on its local disks (root, ephemeral, '
                  'swap) is lost'),
        *_MoveAll.arguments)

    def move(
        self, args: argparse.Namespace, show: Callable[[int, int], None]
    ) -> 'list[Departure]':
        return self.app.sending_api.host_drain.drain(
            self.app.context(), args.host, args.at_once, args.timeout,
            args.reason, show, args.rebuild)


class EvacuateHost(_MoveAll):
    """Evacuate all servers of a failed host to other hosts of their cell.

    The servers are built anew, and the data on their local disks is lost.
    Volumes keep their data.

    The host must be down: its service has not reported for ``[DEFAULT]
    service_down_time`` seconds, or ``service set --down`` has forced it down.
    The command ends as ``host drain`` does.

    Example::

        cellsched host evacuate host1 --target-host host2
    """

    arguments = (
        base.argument('--target-host', metavar='HOST',
                      help='the host to move all servers to; by default the '
                           'scheduler selects a host for each server'),
        *_MoveAll.arguments)

    def move(
        self, args: argparse.Namespace, show: Callable[[int, int], None]
    ) -> 'list[Departure]':
        return self.app.sending_api.host_drain.evacuate(
            self.app.context(), args.host, args.target_host, args.at_once,
            args.timeout, show)


def _snapshots() -> Any:
    # The help of all commands imports this module, and would import numpy.
    from cellsched.cli import host_snapshot

    return host_snapshot
