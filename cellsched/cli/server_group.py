# SPDX-License-Identifier: Apache-2.0
"""Server groups: ``cellsched server group create|list|show|delete``."""

import argparse
from collections.abc import Iterable
from typing import Any
from typing import TYPE_CHECKING

from cliff import columns

from cellsched.cli import base
from cellsched import exception

if TYPE_CHECKING:
    from cellsched.cli.app import Shell
    from cellsched import objects

_SHOWN = ('id', 'name', 'policy', 'rules', 'members', 'project_id', 'user_id')

#: Digits of a number; to read a long one would take long.
_DIGITS_MAX = 20


class _List(columns.FormattableColumn[list[str]]):

    def human_readable(self) -> str:
        return '\n'.join(self.machine_readable())


class _Rules(columns.FormattableColumn[dict[str, Any]]):

    def human_readable(self) -> str:
        return ', '.join(
            f'{name}={value}'
            for name, value in sorted(self.machine_readable().items()))


class CreateServerGroup(base.ShowOne):
    """Create a group of servers that are placed with regard to each other.

    Servers join it when they are created with its id as the hint ``group``.
    Rules are ``max_server_per_host``, for the policy ``anti-affinity``;
    ``spread``, over ``cell``, ``az`` or ``host``; and ``max_skew``, by how
    many servers two of these may differ.

    Examples::

        cellsched server group create web --policy anti-affinity \\
            --rule max_server_per_host=2
        cellsched server group create quorum --rule spread=cell \\
            --rule max_skew=1
        cellsched server create db --flavor m1.small \\
            --hint group=4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    app: 'Shell'
    columns = _SHOWN

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('name', metavar='NAME', help='its name')
        parser.add_argument(
            '--policy', metavar='POLICY',
            help='affinity, anti-affinity, soft-affinity or '
                 'soft-anti-affinity; needed unless there is a rule spread')
        parser.add_argument(
            '--rule', metavar='KEY=VALUE', action='append', default=[],
            help='a rule; there may be several')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        args = parsed_args
        return self.columns, _values(self.app.api.server_groups.create(
            self.app.context(), args.name, args.policy, _rules(args.rule)))


class ListServerGroups(base.Lister):
    """List server groups, the newest first.

    Example::

        cellsched server group list -f json
    """

    app: 'Shell'
    columns = ('ID', 'Name', 'Policy', 'Rules')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--limit', type=int, metavar='COUNT',
            help='list no more than this; by default, and at most, what '
                 '[api] max_limit says')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        groups = self.app.api.server_groups.list_all(
            self.app.context(), parsed_args.limit)
        return self.columns, [
            (group.uuid, group.name, group.policy or '', _Rules(group.rules))
            for group in groups]


class ShowServerGroup(base.ShowOne):
    """Show a server group with its members.

    Example::

        cellsched server group show 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    app: 'Shell'
    columns = _SHOWN

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('group', metavar='ID', help='its id')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        return self.columns, _values(self.app.api.server_groups.get(
            self.app.context(), parsed_args.group))


class DeleteServerGroup(base.ChangeCommand):
    """Delete server groups; their servers stay, and stay where they are.

    Example::

        cellsched server group delete 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    app: 'Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('groups', metavar='ID', nargs='+',
                            help='their ids')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        context = self.app.context()
        _, code = self.change(
            parsed_args.format, 'deleted', 'server group', parsed_args.groups,
            lambda uuid: self.app.api.server_groups.delete(context, uuid))
        return code


def _rules(pairs: Iterable[str]) -> dict[str, Any]:
    rules: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition('=')
        if not equals or name in rules:
            raise exception.InvalidField(
                where='options', field='--rule',
                expected=f'KEY=VALUE, each key once, not {ascii(pair)}')
        short = value.isdecimal() and len(value) <= _DIGITS_MAX
        rules[name] = int(value) if short else value
    return rules


def _values(group: 'objects.InstanceGroup') -> tuple[Any, ...]:
    return (group.uuid, group.name, group.policy, _Rules(group.rules),
            _List(group.members), group.project_id, group.user_id)
