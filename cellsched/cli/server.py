# SPDX-License-Identifier: Apache-2.0
"""Servers: ``cellsched server create|delete``.

``server_list`` lists them, ``server_show`` shows one; ``server_change`` has
what else is done with them.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched.cli import progress
from cellsched import exception

if TYPE_CHECKING:
    from cellsched.cli import app
    from cellsched.cli import server_watch
    from cellsched.listing import server

COLUMNS = ('ID', 'Name', 'Status', 'Cell', 'Host', 'Attempts', 'Reason')

_TIMEOUT_S = 300

#: The longest that one may wait, a week.
_TIMEOUT_MAX_S = 604800

#: Exit codes.
TIMED_OUT = 1
IN_ERROR = 2
INTERRUPTED = 130


class CreateServer(base.Lister):
    """Create one or more servers.

    Shows them as they are accepted, or with ``--wait`` once each is built or
    has failed. Ends with 2 if one that was waited for is in ERROR, and with 1
    if they are not ready in time.

    Examples::

        cellsched server create web --flavor m1.small --wait
        cellsched server create worker --flavor m1.large --min 10 --max 20
        cellsched server create spare --flavor m1.small \\
            --hint different_host=4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    kinds = base.SERVERS
    sends = True

    app: 'app.Shell'
    columns = COLUMNS

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'name', metavar='NAME',
            help='its name; of several, each has its number added')
        parser.add_argument('--flavor', metavar='FLAVOR', required=True,
                            help='id or name of the flavor')
        parser.add_argument('--image', metavar='IMAGE', help='id of the image')
        parser.add_argument(
            '--min', type=int, metavar='COUNT', default=1,
            help='build none unless this many fit; by default 1')
        parser.add_argument(
            '--max', type=int, metavar='COUNT',
            help='build as many as fit, up to this; by default as --min')
        parser.add_argument('--availability-zone', metavar='ZONE',
                            help='the zone to build in')
        parser.add_argument(
            '--hint', metavar='KEY=VALUE', action='append', default=[],
            help='a scheduler hint; the same one may be given several values')
        parser.add_argument(
            '--tag', metavar='TAG', action='append', default=[],
            help='a tag of each; may be given several times')
        add_wait(parser, 'until each is built or has failed')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        args = parsed_args
        check_wait(args)
        hints = read_hints(args.hint)
        uuids = self.app.sending_api.servers.create(
            self.app.context(), args.name, args.flavor, args.image,
            args.availability_zone, hints, args.min, args.max, args.tag)
        watch = watching(self.app, uuids)
        if args.wait:
            self.exit_code = wait_until_built(self.app, watch, args.timeout)
        else:
            watch.look()
        return self.columns, rows(watch.found.values())


class DeleteServer(base.ChangeCommand):
    """Delete servers, whatever is being done with them.

    Example::

        cellsched server delete 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e --wait
    """

    kinds = base.SERVERS
    sends = True

    app: 'app.Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('servers', metavar='ID', nargs='+',
                            help='their ids')
        add_wait(parser, 'until they are gone')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        check_wait(parsed_args)
        context = self.app.context()
        deleted, code = self.change(
            parsed_args.format, 'deleting', 'server', parsed_args.servers,
            lambda uuid: self.app.api.servers.delete(context, uuid))
        if parsed_args.wait and deleted:
            code = wait_for(
                self.app, watching(self.app, deleted), parsed_args.timeout,
                'Deleting', _is_gone) or code
        return code


def add_wait(parser: argparse.ArgumentParser, until: str) -> None:
    """Add the options of waiting until something is so."""
    parser.add_argument('--wait', action='store_true', help=f'wait {until}')
    parser.add_argument(
        '--timeout', type=int, metavar='SECONDS', default=_TIMEOUT_S,
        help=f'with --wait, give up after this; by default {_TIMEOUT_S}')


def check_wait(args: argparse.Namespace) -> None:
    """Make sure that one can wait for so long."""
    from cellsched.api import validation

    validation.check_count(
        'options', '--timeout', args.timeout, _TIMEOUT_MAX_S, least=0)


def read_hints(pairs: Iterable[str]) -> dict[str, list[str]]:
    hints: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, value = pair.partition('=')
        if not equals:
            raise exception.InvalidField(
                where='options', field='--hint',
                expected=f'KEY=VALUE, not {ascii(pair)}')
        hints.setdefault(name, []).append(value)
    return hints


def watching(app: 'app.Shell', uuids: Sequence[str]) -> 'server_watch.Watch':
    """Return what looks at servers."""
    from cellsched.cli import server_watch

    return server_watch.Watch(app.api.servers, app.context(), uuids)


def wait_for(
    app: 'app.Shell', watch: 'server_watch.Watch', timeout_s: int, what: str,
    settled: Callable[['server.Server'], bool],
) -> int:
    """Wait for servers; return the exit code."""
    with progress.bar(what, len(watch.found), app.stderr) as advance:
        left = watch.wait(settled, timeout_s, app.clock, advance)
    if not left:
        return 0
    if watch.problem is not None:
        app.report(watch.problem)
    app.warn(f'{what} {len(left)} of {len(watch.found)} servers is not done '
             f'after {timeout_s} seconds')
    return TIMED_OUT


def wait_until_built(
    app: 'app.Shell', watch: 'server_watch.Watch', timeout_s: int
) -> int:
    """Wait until servers are built or have failed; return the exit code."""
    try:
        code = wait_for(app, watch, timeout_s, 'Building', _is_settled)
    except KeyboardInterrupt:
        # The servers are built all the same, so their ids are needed.
        return INTERRUPTED
    if not code and any(
            found.status == 'ERROR' for found in watch.found.values()):
        return IN_ERROR
    return code


def _is_settled(found: 'server.Server') -> bool:
    return found.status not in ('BUILD', 'UNKNOWN')


def _is_gone(found: 'server.Server') -> bool:
    return found.status == 'DELETED'


def rows(servers: Iterable['server.Server']) -> list[tuple[Any, ...]]:
    return [(found.uuid, found.name or '', found.status, found.cell or '',
             found.host or '', found.attempts, found.reason)
            for found in servers]
