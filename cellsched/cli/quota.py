# SPDX-License-Identifier: Apache-2.0
"""Quotas: ``cellsched quota show|set|unset``."""

import argparse
from collections.abc import Iterable
from typing import Any

from cellsched.cli.app import Shell
from cellsched.cli import base
from cellsched import plugins

_KINDS = (plugins.QUOTA,)

_COLUMNS: base.Columns = {
    'Resource': 'resource', 'Limit': 'limit', 'Used': 'used',
    'Pending': 'pending'}

_BY_CELL: base.Columns = {
    'Cell': 'cell', 'Answers': 'answers', 'Instances': 'usage.instances',
    'Cores': 'usage.cores', 'RAM': 'usage.ram', 'Unsized': 'usage.unsized'}

_RESOURCES = ('instances', 'cores', 'ram')

_PROJECT = base.argument(
    '--project', metavar='ID', required=True, help='id of the project')
_USER = base.argument(
    '--user', metavar='ID', help='id of a user in the project')


class ShowQuota(base.Lister):
    """Show the limits and the usage of a project.

    A limit of -1 means no limit. Pending is the usage of servers that are
    accepted and not yet built. Servers in cell0 use nothing.

    With ``--by-cell``, Answers says whether the cell answers now. The usage
    in a cell that does not answer is known to the API database. Unsized are
    servers that count for no cores and no memory, because their sizes are not
    recorded.

    Examples::

        cellsched quota show --project web
        cellsched quota show --project web --user alice -f json
        cellsched quota show --project web --by-cell
    """

    app: Shell

    kinds = _KINDS
    arguments = (
        base.argument('--project', metavar='ID',
                      help='id of the project; by default --os-project-id'),
        base.exclusive(
            base.argument('--user', metavar='ID',
                          help='show the limits and the usage of this user '
                               'in the project'),
            base.flag('--by-cell',
                      'show the usage of the project in each cell')))

    def columns_of(self, args: argparse.Namespace) -> tuple[str, ...]:
        return tuple(_BY_CELL if args.by_cell else _COLUMNS)

    def take_action(self, parsed_args: argparse.Namespace) -> base.Rows:
        context, project = self.app.context(), parsed_args.project
        if project is None:
            project = context.project_id
        if not parsed_args.by_cell:
            return tuple(_COLUMNS), [
                base.values(_COLUMNS, each) for each in
                _quotas(self.app, project, parsed_args.user)]
        found = self.app.api.quotas.by_cell(context, project)
        for each in found:
            if not each.answers:
                self.app.warn(
                    f'warning: cell {each.cell} did not answer; the usage '
                    'in it is taken from the API database')
        return tuple(_BY_CELL), [
            base.values(_BY_CELL, each) for each in found]


@base.lister(
    _PROJECT, _USER,
    base.argument('--instances', type=base.whole(), metavar='NUMBER',
                  help='limit of servers; -1 means no limit'),
    base.argument('--cores', type=base.whole(), metavar='NUMBER',
                  help='limit of virtual CPUs; -1 means no limit'),
    base.argument('--ram', type=base.whole(), metavar='MB',
                  help='limit of memory; -1 means no limit'),
    columns=_COLUMNS, kinds=_KINDS)
def set_quota(app: Shell, args: argparse.Namespace) -> Iterable[Any]:
    """Set limits of a project, or of a user in a project.

    Other limits stay as they are. The limits of the project apply to each
    user too. Existing servers stay.

    Examples::

        cellsched quota set --project web --instances 50 --cores -1
        cellsched quota set --project web --user alice --ram 16384
    """
    limits = {name: getattr(args, name) for name in _RESOURCES
              if getattr(args, name) is not None}
    app.api.quotas.set(app.context(), args.project, limits, args.user)
    return _quotas(app, args.project, args.user)


@base.lister(_PROJECT, _USER, columns=_COLUMNS, kinds=_KINDS)
def unset_quota(app: Shell, args: argparse.Namespace) -> Iterable[Any]:
    """Reset a project, or a user in a project, to the default limits.

    Without ``--user``, the limits of the users of the project are reset too.

    Example::

        cellsched quota unset --project web
    """
    app.api.quotas.unset(app.context(), args.project, args.user)
    return _quotas(app, args.project, args.user)


def _quotas(app: Shell, project: str, user: str | None) -> Iterable[Any]:
    return app.api.quotas.get(app.context(), project, user)
