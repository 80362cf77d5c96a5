# SPDX-License-Identifier: Apache-2.0
"""Hosts that are emptied: ``cellsched host set|drain|evacuate``."""

import argparse
from collections.abc import Callable
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched.cli import progress
from cellsched.cli import server
from cellsched import exception

if TYPE_CHECKING:
    from cellsched.api import host_drain
    from cellsched.cli.app import Shell

_AT_ONCE = 10
_TIMEOUT_S = 3600


class SetHost(base.ChangeCommand):
    """Have builds avoid a host, or come to it again.

    Its servers stay; ``host drain`` moves them.

    Examples::

        cellsched host set host1 --disable --disable-reason "new disks"
        cellsched host set host1 --enable
    """

    app: 'Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        enabling = parser.add_mutually_exclusive_group(required=True)
        enabling.add_argument('--enable', action='store_true',
                              help='let builds come again')
        enabling.add_argument('--disable', action='store_true',
                              help='have builds avoid it')
        parser.add_argument('--disable-reason', metavar='REASON',
                            help='with --disable, why')
        parser.add_argument('host', metavar='HOST', help='its name')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        args = parsed_args

        def set_one(host: str) -> dict[str, str]:
            self.app.api.services.set(
                self.app.context(), host, 'nova-compute', args.disable,
                args.disable_reason)
            return {'status': 'disabled' if args.disable else 'enabled'}

        _, code = self.change(args.format, 'set', 'host', [args.host], set_one)
        return code


class _Emptying(base.Lister):
    """A command that has the servers of a host go elsewhere."""

    kinds = base.SERVERS
    sends = True

    app: 'Shell'
    columns = ('ID', 'Name', 'Outcome', 'Reason')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--at-once', type=int, metavar='COUNT', default=_AT_ONCE,
            help='servers that move at the same time, up to 100; by default '
                 f'{_AT_ONCE}')
        parser.add_argument(
            '--timeout', type=int, metavar='SECONDS', default=_TIMEOUT_S,
            help=f'wait no longer than this; by default {_TIMEOUT_S}')
        parser.add_argument('host', metavar='HOST', help='its name')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        args = parsed_args
        server.check_wait(args)
        with progress.bar(
                f'Emptying {args.host}', 0, self.app.stderr) as show:
            try:
                found = self.empty(args, show)
            except KeyboardInterrupt:
                raise exception.Invalid(
                    f'Stopped. Moves that were begun go on by themselves; '
                    f'run the command again for the rest of {args.host}'
                ) from None
        outcomes = {each.outcome for each in found}
        if 'stays' in outcomes:
            self.exit_code = server.IN_ERROR
        elif 'moving' in outcomes:
            self.exit_code = server.TIMED_OUT
        return self.columns, [
            (each.uuid, each.name or '', each.outcome, each.reason)
            for each in found]

    def empty(
        self, args: argparse.Namespace, show: Callable[[int, int], None]
    ) -> 'list[host_drain.Departure]':
        """Have the servers go; return what became of each."""
        raise NotImplementedError


class DrainHost(_Emptying):
    """Disable a host, and migrate its servers within their cell.

    Ends when each was moved, or cannot be and says why: with 2 if some stay,
    and with 1 if time was up before. Run again, it goes on with what is left.
    The host stays disabled; ``host set --enable`` ends that.

    Example::

        cellsched host drain host1 --reason "new disks" --at-once 4
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--reason', metavar='REASON', default='drain',
                            help='why it is disabled; by default "drain"')
        return parser

    def empty(
        self, args: argparse.Namespace, show: Callable[[int, int], None]
    ) -> 'list[host_drain.Departure]':
        return self.app.sending_api.host_drain.drain(
            self.app.context(), args.host, args.at_once, args.timeout,
            args.reason, show)


class EvacuateHost(_Emptying):
    """Have the servers of a host that is down built on others of their cell.

    The host must not be heard for ``[DEFAULT] service_down_time`` seconds, or
    be forced down by ``service set --down``. Ends as ``host drain`` does.

    Example::

        cellsched host evacuate host1 --target-host host2
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--target-host', metavar='HOST',
            help='where all go; by default the scheduler chooses for each')
        return parser

    def empty(
        self, args: argparse.Namespace, show: Callable[[int, int], None]
    ) -> 'list[host_drain.Departure]':
        return self.app.sending_api.host_drain.evacuate(
            self.app.context(), args.host, args.target_host, args.at_once,
            args.timeout, show)
