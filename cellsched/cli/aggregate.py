# SPDX-License-Identifier: Apache-2.0
"""Aggregates: ``cellsched aggregate create|list|show|set|delete``.

``add-host`` and ``remove-host`` change the hosts of an aggregate.
"""

import argparse
from collections.abc import Iterable
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli.app import Shell
from cellsched.cli import base

if TYPE_CHECKING:
    from cellsched.db.api.aggregates import AggregateRow

#: The metadata key that ``--zone`` sets.
_ZONE_KEY = 'availability_zone'


def _zone(aggregate: 'AggregateRow') -> str:
    return aggregate.metadata.get(_ZONE_KEY, '')


def _properties(aggregate: 'AggregateRow') -> base.ShownValue:
    return base.ShownValue({
        key: value for key, value in aggregate.metadata.items()
        if key != _ZONE_KEY}, base.pairs_text)


_COLUMNS: base.Columns = {
    'id': 'id', 'name': 'name', 'uuid': 'uuid', 'availability_zone': _zone,
    'properties': _properties,
    'hosts': lambda aggregate: base.lines(aggregate.hosts)}

_AGGREGATE = base.argument(
    'aggregate', metavar='AGGREGATE', help='id or name of the aggregate')
_HOSTS = base.argument(
    'hosts', metavar='HOST', nargs='+', help='names of the hosts')
_ZONE = base.argument(
    '--zone', metavar='ZONE', help='availability zone of the hosts')
_PROPERTY = base.several('--property', 'KEY=VALUE', 'a property to set')


def _metadata(args: argparse.Namespace) -> dict[str, Any]:
    zone = {} if args.zone is None else {_ZONE_KEY: args.zone}
    return {**base.pairs('--property', args.property), **zone}


@base.show(
    base.argument('name', metavar='NAME', help='name of the aggregate'),
    _ZONE, _PROPERTY, columns=_COLUMNS)
def create_aggregate(app: Shell, args: argparse.Namespace) -> 'AggregateRow':
    """Create an aggregate, a set of hosts with common properties.

    Example::

        cellsched aggregate create fast --zone east --property ssd=true
    """
    return app.api.aggregates.create(app.context(), args.name, _metadata(args))


@base.lister(columns={
    'ID': 'id', 'Name': 'name', 'Availability Zone': _zone,
    'Properties': _properties, 'Hosts': lambda each: len(each.hosts)})
def list_aggregates(
    app: Shell, args: argparse.Namespace
) -> 'Iterable[AggregateRow]':
    """List all aggregates, the oldest first.

    Example::

        cellsched aggregate list -f json
    """
    return app.api.aggregates.list_all(app.context())


@base.show(_AGGREGATE, columns=_COLUMNS)
def show_aggregate(app: Shell, args: argparse.Namespace) -> 'AggregateRow':
    """Show an aggregate.

    Example::

        cellsched aggregate show fast
    """
    return app.api.aggregates.get(app.context(), args.aggregate)


@base.show(
    _AGGREGATE, _ZONE, _PROPERTY,
    base.several('--no-property', 'KEY', 'a property to remove'),
    columns=_COLUMNS)
def set_aggregate(app: Shell, args: argparse.Namespace) -> 'AggregateRow':
    """Change properties of an aggregate.

    Example::

        cellsched aggregate set fast --property ssd=true --no-property gpu
    """
    return app.api.aggregates.set_metadata(
        app.context(), args.aggregate,
        {**dict.fromkeys(args.no_property), **_metadata(args)})


@base.show(_AGGREGATE, _HOSTS, columns=_COLUMNS)
def add_hosts(app: Shell, args: argparse.Namespace) -> 'AggregateRow':
    """Add hosts to an aggregate; each host must be mapped to a cell.

    Example::

        cellsched aggregate add-host fast compute1 compute2
    """
    return app.api.aggregates.add_hosts(
        app.context(), args.aggregate, args.hosts)


@base.show(_AGGREGATE, _HOSTS, columns=_COLUMNS)
def remove_hosts(app: Shell, args: argparse.Namespace) -> 'AggregateRow':
    """Remove hosts from an aggregate.

    Example::

        cellsched aggregate remove-host fast compute1
    """
    return app.api.aggregates.remove_hosts(
        app.context(), args.aggregate, args.hosts)


@base.change_each(
    'deleted', 'aggregate',
    base.argument('aggregates', metavar='AGGREGATE', nargs='+',
                  help='ids or names of the aggregates'))
def delete_aggregate(app: Shell, args: argparse.Namespace, name: str) -> None:
    """Delete aggregates; their hosts stay.

    Example::

        cellsched aggregate delete fast slow
    """
    app.api.aggregates.delete(app.context(), name)
