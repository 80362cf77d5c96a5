# SPDX-License-Identifier: Apache-2.0
"""Flavors: ``cellsched flavor create|list|show|set|unset|delete``."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cellsched.cli.app import Shell
from cellsched.cli import base

if TYPE_CHECKING:
    from cellsched import objects

_COLUMNS: base.Columns = {
    'id': 'flavorid', 'name': 'name', 'ram': 'memory_mb', 'disk': 'root_gb',
    'ephemeral': 'ephemeral_gb', 'swap': 'swap', 'vcpus': 'vcpus',
    'properties': lambda flavor: base.pairs_text(
        flavor.get('extra_specs') or {})}

_FLAVOR = base.argument(
    'flavor', metavar='FLAVOR', help='id or name of the flavor')


@base.show(
    base.argument('name', metavar='NAME', help='name of the flavor'),
    base.argument('--id', metavar='ID', default='auto',
                  help='id of the flavor; by default a new uuid'),
    base.argument('--ram', metavar='MB', type=base.whole(), required=True,
                  help='memory of a server'),
    base.argument('--vcpus', metavar='NUMBER', type=base.whole(),
                  required=True, help='virtual CPUs of a server'),
    base.argument('--disk', metavar='GB', type=base.whole(), default=0,
                  help='root disk of a server; by default 0'),
    base.argument('--ephemeral', metavar='GB', type=base.whole(), default=0,
                  help='ephemeral disk of a server; by default 0'),
    base.argument('--swap', metavar='MB', type=base.whole(), default=0,
                  help='swap space of a server; by default 0'),
    columns=_COLUMNS)
def create_flavor(app: Shell, args: argparse.Namespace) -> 'objects.Flavor':
    """Create a flavor, which defines the size of servers.

    Example::

        cellsched flavor create m1.small --ram 2048 --vcpus 1 --disk 20
    """
    return app.api.flavors.create(
        app.context(), args.name, args.vcpus, args.ram, args.disk,
        args.ephemeral, args.swap, None if args.id == 'auto' else args.id)


@base.lister(columns={
    'ID': 'flavorid', 'Name': 'name', 'RAM': 'memory_mb', 'Disk': 'root_gb',
    'Ephemeral': 'ephemeral_gb', 'VCPUs': 'vcpus'})
def list_flavors(
    app: Shell, args: argparse.Namespace
) -> 'Iterable[objects.Flavor]':
    """List all flavors.

    Example::

        cellsched flavor list -f json
    """
    return app.api.flavors.list_all(app.context())


@base.show(_FLAVOR, columns=_COLUMNS)
def show_flavor(app: Shell, args: argparse.Namespace) -> 'objects.Flavor':
    """Show a flavor.

    Example::

        cellsched flavor show m1.small
    """
    return app.api.flavors.get(app.context(), args.flavor)


@base.show(
    _FLAVOR,
    base.several('--property', 'KEY=VALUE', 'a property to set'),
    base.flag('--no-property',
              'remove all properties of the flavor before others are set'),
    columns=_COLUMNS)
def set_flavor(app: Shell, args: argparse.Namespace) -> 'objects.Flavor':
    """Set properties of a flavor; in Nova they are the extra specs.

    Servers keep the properties that the flavor had when they were built.

    Examples::

        cellsched flavor set m1.small --property hw:cpu_policy=shared
        cellsched flavor set m1.small --no-property --property quota:disk=1
    """
    flavors, specs = app.api.flavors, dict[str, str | None]()
    if not args.property and not args.no_property:
        raise base.invalid('flavor set', 'nothing to set',
                           '--property or --no-property')
    if args.no_property:
        found = flavors.get(app.context(), args.flavor)
        specs = dict.fromkeys(found.get('extra_specs') or {})
    specs.update(base.pairs('--property', args.property))
    return flavors.set_extra_specs(app.context(), args.flavor, specs)


@base.show(
    _FLAVOR,
    base.argument('--property', metavar='KEY', action='append', required=True,
                  help='a property to remove; may be repeated'),
    columns=_COLUMNS)
def unset_flavor(app: Shell, args: argparse.Namespace) -> 'objects.Flavor':
    """Remove properties of a flavor.

    Example::

        cellsched flavor unset m1.small --property hw:cpu_policy
    """
    return app.api.flavors.set_extra_specs(
        app.context(), args.flavor, dict.fromkeys(args.property))


@base.change_each(
    'deleted', 'flavor',
    base.argument('flavors', metavar='FLAVOR', nargs='+',
                  help='ids or names of the flavors'))
def delete_flavor(app: Shell, args: argparse.Namespace, name: str) -> None:
    """Delete flavors; their servers stay.

    Example::

        cellsched flavor delete m1.small m1.large
    """
    app.api.flavors.delete(app.context(), name)
