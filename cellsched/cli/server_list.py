# SPDX-License-Identifier: Apache-2.0
"""Listing servers: ``cellsched server list``."""

import argparse
from collections.abc import Mapping
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched.cli import server

if TYPE_CHECKING:
    from cellsched.cli.app import Shell

#: Filters of the API, each with what it takes and shows.
_FILTERS: Mapping[str, tuple[str, str]] = {
    'name': ('TEXT', 'whose name contains this'),
    'status': ('STATUS', 'in this status, such as ACTIVE, BUILD or ERROR'),
    'host': ('HOST', 'on this host'),
    'flavor': ('FLAVOR', 'of this flavor, by its id or name'),
    'image': ('IMAGE', 'of this image, by its id'),
    'project_id': ('PROJECT', 'of this project'),
    'user_id': ('USER', 'of this user'),
    'availability_zone': ('ZONE', 'in this availability zone'),
    'tags': ('TAG,...', 'that have all these tags'),
    'tags-any': ('TAG,...', 'that have one of these tags'),
    'not-tags': ('TAG,...', 'that lack one of these tags'),
    'not-tags-any': ('TAG,...', 'that have none of these tags'),
    'changes-since': ('TIME', 'that changed since then, deleted ones too'),
    'changes-before': ('TIME', 'that changed last before then'),
}

#: What users call filters that are named otherwise.
_OPTIONS = {'project_id': 'project', 'user_id': 'user'}


class ListServers(base.Lister):
    """List servers, the newest first.

    They are shown in one order, wherever they are. A cell that does not
    answer is named; little is known of its servers then, and their status is
    UNKNOWN.

    Examples::

        cellsched server list --limit 20 -f json
        cellsched server list --status ERROR --sort project_id:asc,created_at
        cellsched server list --all --changes-since 2026-01-31T00:00:00Z
    """

    kinds = base.SERVERS

    app: 'Shell'
    columns = server.COLUMNS

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        for name, (metavar, shown) in _FILTERS.items():
            option = _OPTIONS.get(name, name).replace('_', '-')
            parser.add_argument(
                f'--{option}', dest=name, metavar=metavar,
                help=f'list servers {shown}')
        parser.add_argument('--deleted', action='store_true',
                            help='list deleted servers')
        parser.add_argument(
            '--sort', metavar='KEY[:asc|:desc],...', default='',
            help='sort by these; descending by default')
        parser.add_argument(
            '--marker', metavar='ID',
            help='list what comes after this server')
        several = parser.add_mutually_exclusive_group()
        several.add_argument(
            '--limit', type=int, metavar='COUNT',
            help='list no more than this; by default, and at most, what '
                 '[api] max_limit says')
        several.add_argument('--all', action='store_true',
                             help='list all, page by page')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        args = parsed_args
        filters: dict[str, Any] = {
            name: said for name in _FILTERS
            if (said := getattr(args, name)) is not None}
        if args.deleted:
            filters['deleted'] = True
        keys, directions = _sort(args.sort)
        context, marker = self.app.context(), args.marker
        found, down = [], dict[str, None]()
        while True:
            page = self.app.api.servers.list(
                context, filters, keys, directions, args.limit, marker)
            found += page.servers
            down.update(dict.fromkeys(page.down_cells))
            if not (args.all and page.servers):
                break
            marker = page.servers[-1].uuid
        for cell in down:
            self.app.warn(f'warning: cell {cell} did not answer; little is '
                          'known of its servers')
        return self.columns, server.rows(found)


def _sort(text: str) -> tuple[list[str], list[str]]:
    """Return sort keys and their directions."""
    keys, directions = [], []
    for part in text.split(',') if text else ():
        key, _, direction = part.partition(':')
        keys.append(key)
        directions.append(direction or 'desc')
    return keys, directions
