# SPDX-License-Identifier: Apache-2.0
"""Aggregates: ``cellsched aggregate create|list|show|set|delete``.

Hosts come and go by ``add-host`` and ``remove-host``.
"""

import argparse
from collections.abc import Iterable
from typing import Any
from typing import TYPE_CHECKING

from cliff import columns

from cellsched.cli import base
from cellsched import exception

if TYPE_CHECKING:
    from cellsched.cli.app import Shell
    from cellsched.db.api import aggregates

#: The key that ``--zone`` stands for.
_ZONE_KEY = 'availability_zone'


class _Hosts(columns.FormattableColumn[list[str]]):

    def human_readable(self) -> str:
        return '\n'.join(self.machine_readable())


class _Properties(columns.FormattableColumn[dict[str, str]]):

    def human_readable(self) -> str:
        return ', '.join(
            f'{key}={value!r}'
            for key, value in sorted(self.machine_readable().items()))


class _One(base.ShowOne):
    """A command that says what an aggregate is like in the end."""

    columns = ('id', 'name', 'uuid', 'availability_zone', 'properties',
               'hosts')

    def _values(
        self, aggregate: 'aggregates.AggregateRow'
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        return self.columns, (
            aggregate.id, aggregate.name, aggregate.uuid,
            aggregate.metadata.get(_ZONE_KEY, ''),
            _Properties(_properties_of(aggregate)), _Hosts(aggregate.hosts))


class CreateAggregate(_One):
    """Create an aggregate, hosts that have properties in common.

    Example::

        cellsched aggregate create fast --zone east --property ssd=true
    """

    app: 'Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('name', metavar='NAME', help='its name')
        _add_metadata(parser)
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        return self._values(self.app.api.aggregates.create(
            self.app.context(), parsed_args.name, _metadata(parsed_args)))


class ListAggregates(base.Lister):
    """List all aggregates, the oldest first.

    Example::

        cellsched aggregate list -f json
    """

    app: 'Shell'
    columns = ('ID', 'Name', 'Availability Zone', 'Properties', 'Hosts')

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        return self.columns, [
            (each.id, each.name, each.metadata.get(_ZONE_KEY, ''),
             _Properties(_properties_of(each)), len(each.hosts))
            for each in self.app.api.aggregates.list_all(self.app.context())]


class ShowAggregate(_One):
    """Show an aggregate.

    Example::

        cellsched aggregate show fast
    """

    app: 'Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_name(parser)
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        return self._values(self.app.api.aggregates.get(
            self.app.context(), parsed_args.aggregate))


class SetAggregate(_One):
    """Change properties of an aggregate.

    Example::

        cellsched aggregate set fast --property ssd=true --no-property gpu
    """

    app: 'Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_name(parser)
        _add_metadata(parser)
        parser.add_argument(
            '--no-property', metavar='KEY', action='append', default=[],
            help='a property to remove; there may be several')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        removed = dict.fromkeys(parsed_args.no_property)
        return self._values(self.app.api.aggregates.set_metadata(
            self.app.context(), parsed_args.aggregate,
            {**removed, **_metadata(parsed_args)}))


class AddHosts(_One):
    """Add hosts to an aggregate; cells have to have them.

    Example::

        cellsched aggregate add-host fast compute1 compute2
    """

    app: 'Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_name(parser)
        _add_hosts(parser)
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        return self._values(self.app.api.aggregates.add_hosts(
            self.app.context(), parsed_args.aggregate, parsed_args.hosts))


class RemoveHosts(_One):
    """Take hosts out of an aggregate.

    Example::

        cellsched aggregate remove-host fast compute1
    """

    app: 'Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_name(parser)
        _add_hosts(parser)
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        return self._values(self.app.api.aggregates.remove_hosts(
            self.app.context(), parsed_args.aggregate, parsed_args.hosts))


class DeleteAggregate(base.ChangeCommand):
    """Delete aggregates; their hosts stay.

    Example::

        cellsched aggregate delete fast slow
    """

    app: 'Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('aggregates', metavar='AGGREGATE', nargs='+',
                            help='their ids or names')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        context = self.app.context()
        _, code = self.change(
            parsed_args.format, 'deleted', 'aggregate',
            parsed_args.aggregates,
            lambda name: self.app.api.aggregates.delete(context, name))
        return code


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('aggregate', metavar='AGGREGATE',
                        help='its id or name')


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('hosts', metavar='HOST', nargs='+', help='the hosts')


def _add_metadata(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--zone', metavar='ZONE',
                        help='the availability zone of its hosts')
    parser.add_argument(
        '--property', metavar='KEY=VALUE', action='append', default=[],
        help='a property; there may be several')


def _metadata(args: argparse.Namespace) -> dict[str, str]:
    zone = {} if args.zone is None else {_ZONE_KEY: args.zone}
    return {**_pairs(args.property), **zone}


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition('=')
        if not equals or key in pairs:
            raise exception.InvalidField(
                where='options', field='--property',
                expected=f'KEY=VALUE, each key once, not {ascii(text)}')
        pairs[key] = value
    return pairs


def _properties_of(aggregate: 'aggregates.AggregateRow') -> dict[str, str]:
    return {key: value for key, value in aggregate.metadata.items()
            if key != _ZONE_KEY}
