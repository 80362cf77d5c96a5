# SPDX-License-Identifier: Apache-2.0
"""Server groups: ``cellsched server group create|list|show|delete``."""

import argparse
from collections.abc import Iterable
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli.app import Shell
from cellsched.cli import base

if TYPE_CHECKING:
    from cellsched import objects

#: Digits of a number; to convert a very long one takes long.
_DIGITS_MAX = 20


def _rules(group: 'objects.InstanceGroup') -> base.ShownValue:
    return base.ShownValue(group.rules, lambda rules: ', '.join(
        f'{name}={value}' for name, value in sorted(rules.items())))


_COLUMNS: base.Columns = {
    'id': 'uuid', 'name': 'name', 'policy': 'policy',
    'rules': _rules,
    'members': lambda group: base.lines(group.members),
    'project_id': 'project_id', 'user_id': 'user_id'}


@base.show(
    base.argument('name', metavar='NAME', help='name of the group'),
    base.argument(
        '--policy', metavar='POLICY',
        help='affinity, anti-affinity, soft-affinity or soft-anti-affinity; '
             'required unless there is a rule spread'),
    base.several('--rule', 'KEY=VALUE', 'a rule of the policy'),
    columns=_COLUMNS)
def create_server_group(
    app: Shell, args: argparse.Namespace
) -> 'objects.InstanceGroup':
    """Create a server group, which places servers together or apart.

    A server joins the group if it is created with the hint ``group`` and the
    id of the group. The rules are ``max_server_per_host``, only for the
    policy ``anti-affinity``; ``spread``, over ``cell``, ``az`` or ``host``;
    and ``max_skew``, the largest difference between the numbers of servers in
    two of these.

    Examples::

        cellsched server group create web --policy anti-affinity \\
            --rule max_server_per_host=2
        cellsched server group create quorum --rule spread=cell \\
            --rule max_skew=1
        cellsched server create db --flavor m1.small \\
            --hint group=4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """
    rules = {
        name: int(value) if (
            value.isdecimal() and len(value) <= _DIGITS_MAX) else value
        for name, value in base.pairs('--rule', args.rule).items()}
    return app.api.server_groups.create(
        app.context(), args.name, args.policy, rules)


@base.lister(
    base.argument(
        '--limit', type=base.whole(), metavar='COUNT',
        help='list at most this many groups; the default, and the largest '
             'value, is [api] max_limit'),
    columns={
        'ID': 'uuid', 'Name': 'name', 'Policy': base.or_empty('policy'),
        'Rules': _rules})
def list_server_groups(
    app: Shell, args: argparse.Namespace
) -> 'Iterable[objects.InstanceGroup]':
    """List server groups, the newest first.

    Example::

        cellsched server group list -f json
    """
    return app.api.server_groups.list_all(app.context(), args.limit)


@base.show(
    base.argument('group', metavar='ID', help='id of the group'),
    columns=_COLUMNS)
def show_server_group(
    app: Shell, args: argparse.Namespace
) -> 'objects.InstanceGroup':
    """Show a server group with its members.

    Example::

        cellsched server group show 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """
    return app.api.server_groups.get(app.context(), args.group)


@base.change_each(
    'deleted', 'server group',
    base.argument('groups', metavar='ID', nargs='+',
                  help='ids of the groups'))
def delete_server_group(
    app: Shell, args: argparse.Namespace, uuid: str
) -> Any:
    """Delete server groups; their servers stay on their hosts.

    Example::

        cellsched server group delete 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """
    app.api.server_groups.delete(app.context(), uuid)
