# SPDX-License-Identifier: Apache-2.0
"""Quotas: ``cellsched quota show|set|unset``."""

import argparse
from typing import Any
from typing import ClassVar
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched import plugins

if TYPE_CHECKING:
    from cellsched.cli.app import Shell

_COLUMNS = ('Resource', 'Limit', 'Used', 'Pending')

_BY_CELL = ('Cell', 'Answers', 'Instances', 'Cores', 'RAM', 'Unsized')

#: What can be set, and its unit.
_RESOURCES = (('instances', 'NUMBER', 'servers'),
              ('cores', 'NUMBER', 'virtual CPUs'),
              ('ram', 'MB', 'memory'))


class _Quotas(base.Lister):
    """A command that says how much a project may have in the end."""

    kinds = (plugins.QUOTA,)

    app: 'Shell'
    columns: ClassVar[tuple[str, ...]] = _COLUMNS

    def _values(
        self, project: str, user: str | None
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        return self.columns, [
            (quota.resource, quota.limit, quota.used, quota.pending)
            for quota in self.app.api.quotas.get(
                self.app.context(), project, user)]


class ShowQuota(_Quotas):
    """Show how much a project may have, and has.

    -1 is no limit. Pending is what servers are to hold that were accepted and
    are not built yet. Servers in cell0 hold nothing.

    By cell, it is also said whether the cell answers now. One that does not
    is counted all the same, by what is known above the cells. Unsized are
    servers that count for no cores and no memory, since whoever created them
    did not tell their sizes.

    Examples::

        cellsched quota show --project web
        cellsched quota show --project web --user alice -f json
        cellsched quota show --project web --by-cell
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--project', metavar='ID',
            help='the project; by default that of --os-project-id')
        what = parser.add_mutually_exclusive_group()
        what.add_argument(
            '--user', metavar='ID',
            help='show what this user may have and has in the project')
        what.add_argument(
            '--by-cell', action='store_true',
            help='show what the project has in each cell')
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        if parsed_args.by_cell:
            self.columns = _BY_CELL  # type: ignore[misc]
        return super().run(parsed_args)

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        context = self.app.context()
        project = parsed_args.project
        if project is None:
            project = context.project_id
        if parsed_args.by_cell:
            return self.columns, self._by_cell(context, project)
        return self._values(project, parsed_args.user)

    def _by_cell(self, context: Any, project: str) -> list[tuple[Any, ...]]:
        found = self.app.api.quotas.by_cell(context, project)
        for each in found:
            if not each.answers:
                self.app.warn(
                    f'warning: cell {each.cell} did not answer; its servers '
                    'are counted by what is known of them')
        return [(each.cell, each.answers, *each.usage) for each in found]


class SetQuota(_Quotas):
    """Set limits of a project, or of a user in it.

    What is not named keeps its limit. A user is held to the project's limits
    too. Servers that are there already stay.

    Examples::

        cellsched quota set --project web --instances 50 --cores -1
        cellsched quota set --project web --user alice --ram 16384
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = _add_owner(super().get_parser(prog_name))
        for name, unit, what in _RESOURCES:
            parser.add_argument(f'--{name}', type=int, metavar=unit,
                                help=f'the most {what}; -1 is no limit')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        limits = {name: getattr(parsed_args, name)
                  for name, _, _ in _RESOURCES}
        self.app.api.quotas.set(
            self.app.context(), parsed_args.project,
            {name: limit for name, limit in limits.items()
             if limit is not None},
            parsed_args.user)
        return self._values(parsed_args.project, parsed_args.user)


class UnsetQuota(_Quotas):
    """Let the default limits hold for a project, or for a user in it.

    Without a user, the limits of the project's users go too.

    Example::

        cellsched quota unset --project web
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        return _add_owner(super().get_parser(prog_name))

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        self.app.api.quotas.unset(
            self.app.context(), parsed_args.project, parsed_args.user)
        return self._values(parsed_args.project, parsed_args.user)


def _add_owner(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument('--project', metavar='ID', required=True,
                        help='the project')
    parser.add_argument('--user', metavar='ID', help='a user in the project')
    return parser
