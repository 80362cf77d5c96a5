# SPDX-License-Identifier: Apache-2.0
"""Resource providers: ``cellsched provider list|show|create|set|delete``.

Agents report compute nodes and what is below them; the others are shared by
the hosts of an aggregate, and are created here.
"""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
import re
from typing import Any
from typing import TYPE_CHECKING

from cliff import columns

from cellsched.cli import base
from cellsched import exception
from cellsched import plugins

if TYPE_CHECKING:
    from cellsched.api import provider_records
    from cellsched.cli.app import Shell

_RESOURCE = re.compile(r'([^:=]+)(?::([^:=]+))?=(.*)', re.DOTALL)

#: A number that takes no time to read, however wrong it is.
_NUMBER = re.compile(r'-?[0-9]{1,20}(\.[0-9]{1,20})?')

_RATIO = 'allocation_ratio'


class _Inventories(columns.FormattableColumn[dict[str, dict[str, Any]]]):
    """Fields by class; for people, what is taken of what may be taken."""

    def human_readable(self) -> str:
        return '\n'.join(
            f'{name} {fields["used"]}/{fields["capacity"]}'
            for name, fields in self.machine_readable().items())


class _AllFields(columns.FormattableColumn[dict[str, dict[str, Any]]]):
    """Fields by class, all of which people see too."""

    def human_readable(self) -> str:
        return '\n'.join(
            f'{name}: ' + ', '.join(
                f'{field}={value}' for field, value in fields.items())
            for name, fields in self.machine_readable().items())


class _Count(columns.FormattableColumn[list[str]]):
    """Names; for people, how many there are."""

    def human_readable(self) -> str:
        return str(len(self.machine_readable()))


class _Lines(columns.FormattableColumn[list[str]]):

    def human_readable(self) -> str:
        return '\n'.join(self.machine_readable())


class ListProviders(base.Lister):
    """List the resource providers: all that servers can take something of.

    A root is a compute node, a child is a part of one, and a sharing provider
    is shared by the hosts of an aggregate. Of each resource class it shows
    what is taken and how much may be in all, and how many traits there are;
    other formats than the table have all fields and names. Over capacity are
    classes of which more is taken than there is since their inventory shrank;
    servers keep what they have, and no more is given. A cell that does not
    answer is named, and its providers are missing.

    Examples::

        cellsched provider list
        cellsched provider list --kind sharing -f json
    """

    kinds = (plugins.CLAIMS,)

    app: 'Shell'
    columns = ('Name', 'UUID', 'Kind', 'Parent', 'Root', 'Cell', 'Aggregate',
               'Inventories', 'Over Capacity', 'Traits')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--kind', metavar='KIND',
            help='only those of this kind: root, child or sharing')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        return self.columns, [
            (each.name, each.uuid, each.kind, each.parent or '', each.root,
             each.cell or '', each.aggregate or '',
             _Inventories(_fields(each)), _Lines(each.over_capacity),
             _Count(sorted(each.traits)))
            for each in read(self.app, parsed_args.kind)]


class _One(base.ShowOne):
    """A command that says what a provider is like in the end."""

    kinds = (plugins.CLAIMS,)

    app: 'Shell'
    columns = ('name', 'uuid', 'kind', 'parent', 'root', 'host', 'cell',
               'aggregate', 'consumers', 'inventories', 'over_capacity',
               'traits')

    def _values(
        self, found: 'provider_records.ProviderRecord'
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        return self.columns, (
            found.name, found.uuid, found.kind, found.parent or '',
            found.root, found.host or '', found.cell or '',
            found.aggregate or '', found.consumers,
            _AllFields(_fields(found)), _Lines(found.over_capacity),
            _Lines(sorted(found.traits)))


class ShowProvider(_One):
    """Show a resource provider.

    Examples::

        cellsched provider show node1
        cellsched provider show pool1 -f yaml
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        return _add_provider(super().get_parser(prog_name))

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        return self._values(self.app.api.providers.get(
            self.app.context(), parsed_args.provider))


class CreateProvider(_One):
    """Create a resource provider that the hosts of an aggregate share.

    To create again what is there already, just as it is to be, changes
    nothing, and finishes what was cut short.

    Examples::

        cellsched provider create pool1 --aggregate rack1 \\
            --resource DISK_GB=100000 --resource DISK_GB:reserved=500
        cellsched provider create pool2 --aggregate rack2 \\
            --resource CUSTOM_LICENSE=20 --trait CUSTOM_LICENSED
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('name', metavar='NAME', help='its name')
        parser.add_argument(
            '--aggregate', metavar='AGGREGATE', required=True,
            help='id or name of the aggregate whose hosts share it')
        return _add_contents(parser)

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        return self._values(self.app.api.providers.create(
            self.app.context(), parsed_args.name, parsed_args.aggregate,
            _inventories(parsed_args.resource), parsed_args.trait))


class SetProvider(_One):
    """Change a resource provider that the hosts of an aggregate share.

    What is not named stays. What servers hold of it stays too, even where
    there is less from now on; nothing more is claimed then.

    Examples::

        cellsched provider set pool1 --resource DISK_GB=200000
        cellsched provider set pool1 --name pool9 --no-trait CUSTOM_SLOW
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = _add_provider(super().get_parser(prog_name))
        parser.add_argument('--name', metavar='NAME', help='its new name')
        parser.add_argument(
            '--aggregate', metavar='AGGREGATE',
            help='id or name of the aggregate whose hosts share it')
        _add_contents(parser)
        parser.add_argument(
            '--no-resource', metavar='CLASS', action='append', default=[],
            help='a resource class of which there is nothing any more; there '
                 'may be several')
        parser.add_argument(
            '--no-trait', metavar='TRAIT', action='append', default=[],
            help='a trait to remove; there may be several')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        args = parsed_args
        changes: dict[str, Mapping[str, Any] | None] = {
            **_inventories(args.resource)}
        for field, names, others in (
                ('--no-resource', args.no_resource, changes),
                ('--no-trait', args.no_trait, args.trait)):
            for name in names:
                if name in others:
                    raise exception.InvalidField(
                        where='options', field=field,
                        expected=f'none that is set too, as {ascii(name)} is')
        changes.update(dict.fromkeys(args.no_resource))
        return self._values(self.app.api.providers.update(
            self.app.context(), args.provider, args.name, args.aggregate,
            changes, args.trait, args.no_trait))


class DeleteProvider(base.ChangeCommand):
    """Delete resource providers that are shared and of which nothing is held.

    Example::

        cellsched provider delete pool1 pool2
    """

    kinds = (plugins.CLAIMS,)

    app: 'Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('providers', metavar='PROVIDER', nargs='+',
                            help='their names or uuids')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        context = self.app.context()
        _, code = self.change(
            parsed_args.format, 'deleted', 'provider', parsed_args.providers,
            lambda name: self.app.api.providers.delete(context, name))
        return code


def read(
    app: 'Shell', kind: str | None = None
) -> 'list[provider_records.ProviderRecord]':
    """Return all providers; cells that do not answer are named."""
    page = app.api.providers.list(app.context(), kind)
    for cell in page.down_cells:
        app.warn(f'warning: cell {cell} did not answer; its resource '
                 'providers are missing')
    return page.providers


def _fields(
    found: 'provider_records.ProviderRecord'
) -> dict[str, dict[str, Any]]:
    return {
        name: {**vars(has.inventory), 'capacity': has.inventory.capacity,
               'used': has.used}
        for name, has in found.inventories.items()}


def _add_provider(
    parser: argparse.ArgumentParser
) -> argparse.ArgumentParser:
    parser.add_argument('provider', metavar='PROVIDER',
                        help='its name or uuid')
    return parser


def _add_contents(
    parser: argparse.ArgumentParser
) -> argparse.ArgumentParser:
    parser.add_argument(
        '--resource', metavar='CLASS[:FIELD]=VALUE', action='append',
        default=[],
        help='how much there is of a resource class, or another field of its '
             'inventory: reserved, allocation_ratio, min_unit, max_unit or '
             'step_size; there may be several')
    parser.add_argument(
        '--trait', metavar='TRAIT', action='append', default=[],
        help='a trait that it has; there may be several')
    return parser


def _inventories(texts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return fields by class, as options say them."""
    inventories: dict[str, dict[str, Any]] = {}
    for text in texts:
        said = _RESOURCE.fullmatch(text)
        name, field, value = said.groups() if said else ('', '', '')
        fields = inventories.setdefault(name, {})
        field = field or 'total'
        if not said or field in fields:
            raise exception.InvalidField(
                where='options', field='--resource',
                expected='CLASS=TOTAL or CLASS:FIELD=VALUE, each once, not '
                         f'{text!a:.60}')
        fields[field] = _number(text, field, value)
    return inventories


def _number(text: str, field: str, value: str) -> int | float:
    said = _NUMBER.fullmatch(value)
    if not said or (said[1] and field != _RATIO):
        kind = 'number' if field == _RATIO else 'whole number'
        raise exception.InvalidField(
            where='options', field='--resource',
            expected=f'a {kind} after the =, not {text!a:.60}')
    return float(value) if field == _RATIO else int(value)
