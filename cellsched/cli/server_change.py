# SPDX-License-Identifier: Apache-2.0
"""Changing servers: ``cellsched server set|retry``."""

import argparse
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched.cli import server
from cellsched.cli import server_show
from cellsched import exception

if TYPE_CHECKING:
    from cellsched.cli.app import Shell


class SetServer(server_show.ShowServer):
    """Rename or tag a server, whatever is being done with it.

    Examples::

        cellsched server set 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e --name web
        cellsched server set 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e \\
            --no-tag --tag blue --tag canary
    """

    kinds = base.SERVERS

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--name', metavar='NAME', help='its new name')
        parser.add_argument(
            '--tag', metavar='TAG', action='append', default=[],
            help='add a tag; may be given several times')
        parser.add_argument(
            '--no-tag', action='store_true',
            help='remove the tags that it has; with --tag those are the only '
                 'ones then')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        args, servers = parsed_args, self.app.api.servers
        if args.name is None and not args.tag and not args.no_tag:
            raise exception.Invalid(
                'nothing to set: --name, --tag or --no-tag is needed')
        context = self.app.context()
        if args.tag or args.no_tag:
            kept = [] if args.no_tag else servers.get(
                context, args.server).tags
            servers.set_tags(context, args.server, list(
                dict.fromkeys([*kept, *args.tag])))
        if args.name is not None:
            servers.update(context, args.server, name=args.name)
        return super().take_action(args)


class RetryServer(base.ChangeCommand):
    """Build servers after all that are in cell0, with their ids.

    Ends as ``server create`` does when it waits.

    Example::

        cellsched server retry 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e --wait
    """

    kinds = base.SERVERS
    sends = True

    app: 'Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('servers', metavar='ID', nargs='+',
                            help='their ids')
        server.add_wait(parser, 'until each is built or has failed')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        server.check_wait(parsed_args)
        context = self.app.context()
        servers = self.app.sending_api.servers
        retried, code = self.change(
            parsed_args.format, 'retrying', 'server', parsed_args.servers,
            lambda uuid: servers.retry(context, uuid))
        if parsed_args.wait and retried:
            watch = server.watching(self.app, retried)
            code = server.wait_until_built(
                self.app, watch, parsed_args.timeout) or code
        return code
