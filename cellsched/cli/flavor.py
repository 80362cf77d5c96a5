# SPDX-License-Identifier: Apache-2.0
"""Flavors: ``cellsched flavor create|list|show|set|unset|delete``."""

import argparse
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched import exception

if TYPE_CHECKING:
    from cellsched.cli.app import Shell
    from cellsched import objects

_SHOWN = ('id', 'name', 'ram', 'disk', 'ephemeral', 'swap', 'vcpus',
          'properties')


class CreateFlavor(base.ShowOne):
    """Create a flavor, a size that servers come in.

    Example::

        cellsched flavor create m1.small --ram 2048 --vcpus 1 --disk 20
    """

    app: 'Shell'
    columns = _SHOWN

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('name', metavar='NAME', help='its name')
        parser.add_argument(
            '--id', metavar='ID', default='auto',
            help='its id; by default, or with auto, one is made up')
        for name, unit, what, required in (
                ('--ram', 'MB', 'memory', True),
                ('--vcpus', 'NUMBER', 'virtual CPUs', True),
                ('--disk', 'GB', 'disk of the root file system', False),
                ('--ephemeral', 'GB', 'ephemeral disk', False),
                ('--swap', 'MB', 'swap space', False)):
            parser.add_argument(
                name, type=int, metavar=unit, required=required, default=0,
                help=what if required else f'{what}; by default 0')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        args = parsed_args
        flavor = self.app.api.flavors.create(
            self.app.context(), args.name, args.vcpus, args.ram, args.disk,
            args.ephemeral, args.swap, None if args.id == 'auto' else args.id)
        return self.columns, _values(flavor)


class ListFlavors(base.Lister):
    """List all flavors.

    Example::

        cellsched flavor list -f json
    """

    app: 'Shell'
    columns = ('ID', 'Name', 'RAM', 'Disk', 'Ephemeral', 'VCPUs')

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        return self.columns, [
            (flavor.flavorid, flavor.name, flavor.memory_mb, flavor.root_gb,
             flavor.ephemeral_gb, flavor.vcpus)
            for flavor in self.app.api.flavors.list_all(self.app.context())]


class ShowFlavor(base.ShowOne):
    """Show a flavor.

    Example::

        cellsched flavor show m1.small
    """

    app: 'Shell'
    columns = _SHOWN

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('flavor', metavar='FLAVOR', help='its id or name')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        return self.columns, _values(
            self.app.api.flavors.get(self.app.context(), parsed_args.flavor))


class SetFlavor(base.ShowOne):
    """Set properties of a flavor, which Nova calls extra specs.

    Servers that were built with it keep what it said then.

    Examples::

        cellsched flavor set m1.small --property hw:cpu_policy=shared
        cellsched flavor set m1.small --no-property --property quota:disk=1
    """

    app: 'Shell'
    columns = _SHOWN

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('flavor', metavar='FLAVOR', help='its id or name')
        parser.add_argument(
            '--property', metavar='KEY=VALUE', action='append', default=[],
            help='a property to set; may be given several times')
        parser.add_argument('--no-property', action='store_true',
                            help='remove those that it has, first')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        args, flavors = parsed_args, self.app.api.flavors
        specs: dict[str, str | None] = {}
        if args.no_property:
            specs = dict.fromkeys(
                flavors.get(self.app.context(), args.flavor).get(
                    'extra_specs') or {})
        for text in args.property:
            key, equals, value = text.partition('=')
            if not equals:
                raise exception.InvalidField(
                    where='options', field='--property',
                    expected=f'KEY=VALUE, not {text!a:.60}')
            specs[key] = value
        if not args.property and not args.no_property:
            raise exception.InvalidField(
                where='options', field='flavor set',
                expected='--property or --no-property')
        return self.columns, _values(
            flavors.set_extra_specs(self.app.context(), args.flavor, specs))


class UnsetFlavor(base.ShowOne):
    """Remove properties of a flavor.

    Example::

        cellsched flavor unset m1.small --property hw:cpu_policy
    """

    app: 'Shell'
    columns = _SHOWN

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('flavor', metavar='FLAVOR', help='its id or name')
        parser.add_argument(
            '--property', metavar='KEY', action='append', required=True,
            help='a property to remove; may be given several times')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        return self.columns, _values(self.app.api.flavors.set_extra_specs(
            self.app.context(), parsed_args.flavor,
            dict.fromkeys(parsed_args.property)))


class DeleteFlavor(base.ChangeCommand):
    """Delete flavors; servers that were built with them stay.

    Example::

        cellsched flavor delete m1.small m1.large
    """

    app: 'Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('flavors', metavar='FLAVOR', nargs='+',
                            help='their ids or names')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        context = self.app.context()
        _, code = self.change(
            parsed_args.format, 'deleted', 'flavor', parsed_args.flavors,
            lambda name: self.app.api.flavors.delete(context, name))
        return code


def _values(flavor: 'objects.Flavor') -> tuple[Any, ...]:
    properties = ', '.join(
        f'{name}={value!r}'
        for name, value in sorted((flavor.get('extra_specs') or {}).items()))
    return (flavor.flavorid, flavor.name, flavor.memory_mb, flavor.root_gb,
            flavor.ephemeral_gb, flavor.swap, flavor.vcpus, properties)
