# SPDX-License-Identifier: Apache-2.0
"""History: ``cellsched server migration list``, ``server event list``."""

import argparse
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli import base

if TYPE_CHECKING:
    from cellsched.cli.app import Shell


class ListMigrations(base.Lister):
    """List moves of servers, the newest first, with why some were given up.

    Examples::

        cellsched server migration list --host host1 --status error
        cellsched server migration list -f json \\
            --server 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    app: 'Shell'
    columns = ('UUID', 'Server UUID', 'Cell', 'Type', 'Status',
               'Source Compute', 'Dest Compute', 'Created At', 'Updated At',
               'Reason')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--server', metavar='ID',
                            help='list those of this server')
        parser.add_argument('--host', metavar='HOST',
                            help='list those to this host or away from it')
        parser.add_argument(
            '--status', metavar='STATUS',
            help='list those in this status, such as migrating, done or '
                 'error')
        parser.add_argument(
            '--type', metavar='TYPE',
            help='list those of this type: evacuation, migration, rebuild, '
                 'shelve or unshelve')
        parser.add_argument('--limit', type=int, metavar='COUNT', default=1000,
                            help='list no more than this; by default 1000')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        args = parsed_args
        page = self.app.api.history.migrations(
            self.app.context(), args.server, args.host, args.status,
            args.type, args.limit)
        for cell in page.down_cells:
            self.app.warn(f'warning: cell {cell} did not answer; its moves '
                          'are missing')
        return self.columns, [
            (each.uuid, each.server, each.cell, each.kind, each.status,
             each.source or '', each.dest or '', base.shown(each.created_at),
             base.shown(each.updated_at), each.reason)
            for each in page.migrations]


class ListEvents(base.Lister):
    """List what was done with a server, the newest first.

    Example::

        cellsched server event list 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    app: 'Shell'
    columns = ('Request ID', 'Action', 'Start Time', 'Finish Time', 'Result',
               'Reason', 'Host', 'User ID')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('server', metavar='ID', help='its id')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        found = self.app.api.history.actions(
            self.app.context(), parsed_args.server)
        return self.columns, [
            (each.request_id or '', each.action, base.shown(each.started_at),
             base.shown(each.finished_at), 'Error' if each.failed else '',
             each.reason, each.host, each.user_id or '')
            for each in found]
