# SPDX-License-Identifier: Apache-2.0
"""Resource providers, resource classes and traits.

``cellsched provider list|show|create|set|delete``, ``cellsched resource class
list`` and ``cellsched trait list``. Agents report compute nodes and the
providers below them. An operator creates the providers that the hosts of an
aggregate share.
"""

import argparse
import collections
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import re
from typing import Any
from typing import TYPE_CHECKING

import os_resource_classes

from cellsched.cli.app import Shell
from cellsched.cli import base
from cellsched.hardware import units
from cellsched import plugins

if TYPE_CHECKING:
    from cellsched.api.providers import ProviderRecord

_KINDS = (plugins.CLAIMS,)

_RESOURCE = re.compile(r'([^:=]+)(?::([^:=]+))?=(.*)', re.DOTALL)

#: A number of bounded length, as the conversion of a long one takes long.
_NUMBER = re.compile(r'-?[0-9]{1,20}(\.[0-9]{1,20})?')

_RATIO = 'allocation_ratio'


# ``host show`` shows NUMA cells, with their CPUs, pages and devices.

def _usage_text(inventories: Mapping[str, Mapping[str, Any]]) -> str:
    return '\n'.join(
        f'{name} {fields["used"]}/{fields["capacity"]}'
        for name, fields in units.plain(inventories).items())


def _inventories_text(inventories: Mapping[str, Mapping[str, Any]]) -> str:
    return '\n'.join(
        f'{name}: ' + ', '.join(
            f'{field}={value}' for field, value in fields.items())
        for name, fields in units.plain(inventories).items())


def _fields(provider: 'ProviderRecord') -> dict[str, dict[str, Any]]:
    return {
        name: {**vars(usage.inventory), 'capacity': usage.inventory.capacity,
               'used': usage.used}
        for name, usage in provider.inventories.items()}


_COLUMNS: base.Columns = {
    'name': 'name', 'uuid': 'uuid', 'kind': 'kind',
    'parent': base.or_empty('parent'), 'root': 'root',
    'host': base.or_empty('host'), 'cell': base.or_empty('cell'),
    'aggregate': base.or_empty('aggregate'), 'consumers': 'consumers',
    'inventories': lambda each: base.ShownValue(
        _fields(each), _inventories_text),
    'over_capacity': lambda each: base.lines(each.over_capacity),
    'traits': lambda each: base.lines(sorted(each.traits))}

_PROVIDER = base.argument(
    'provider', metavar='PROVIDER', help='name or uuid of the provider')

_CONTENTS = (
    base.several(
        '--resource', 'CLASS[:FIELD]=VALUE',
        'the total of a resource class, or another field of its inventory: '
        'reserved, allocation_ratio, min_unit, max_unit or step_size'),
    base.several('--trait', 'TRAIT', 'a trait of the provider'))


@base.lister(
    base.argument('--kind', metavar='KIND',
                  help='list only providers of this kind: root, child or '
                       'sharing'),
    kinds=_KINDS, columns={
        'Name': 'name', 'UUID': 'uuid', 'Kind': 'kind',
        'Parent': base.or_empty('parent'), 'Root': 'root',
        'Cell': base.or_empty('cell'), 'Aggregate': base.or_empty('aggregate'),
        'Inventories': lambda each: base.ShownValue(
            _fields(each), _usage_text),
        'Over Capacity': lambda each: base.lines(each.over_capacity),
        'Traits': lambda each: base.ShownValue(
            sorted(each.traits), lambda names: str(len(names)))})
def list_providers(
    app: Shell, args: argparse.Namespace
) -> 'Iterable[ProviderRecord]':
    """List the resource providers.

    A root provider is a compute node, a child provider is a part of one, and
    a sharing provider is shared by the hosts of an aggregate. The table shows
    the usage and the capacity of each resource class, and the number of
    traits; other formats have all fields and names. Over Capacity lists the
    classes with more usage than capacity, because the inventory was
    reduced; existing servers keep their share, and no more is allocated. If a
    cell does not answer, a warning names it and its providers are missing.

    Examples::

        cellsched provider list
        cellsched provider list --kind sharing -f json
    """
    return _read(app, args.kind)


@base.show(_PROVIDER, columns=_COLUMNS, kinds=_KINDS)
def show_provider(app: Shell, args: argparse.Namespace) -> 'ProviderRecord':
    """Show a resource provider.

    Examples::

        cellsched provider show node1
        cellsched provider show pool1 -f yaml
    """
    return app.api.providers.get(app.context(), args.provider)


@base.show(
    base.argument('name', metavar='NAME', help='name of the provider'),
    base.argument('--aggregate', metavar='AGGREGATE', required=True,
                  help='id or name of the aggregate whose hosts share the '
                       'provider'),
    *_CONTENTS, columns=_COLUMNS, kinds=_KINDS)
def create_provider(app: Shell, args: argparse.Namespace) -> 'ProviderRecord':
    """Create a resource provider that the hosts of an aggregate share.

    If an identical provider exists, nothing changes, and a creation that was
    interrupted is completed.

    Examples::

        cellsched provider create pool1 --aggregate rack1 \\
            --resource DISK_GB=100000 --resource DISK_GB:reserved=500
        cellsched provider create pool2 --aggregate rack2 \\
            --resource CUSTOM_LICENSE=20 --trait CUSTOM_LICENSED
    """
    return app.api.providers.create(
        app.context(), args.name, args.aggregate, _inventories(args.resource),
        args.trait)


@base.show(
    _PROVIDER,
    base.argument('--name', metavar='NAME', help='new name of the provider'),
    base.argument('--aggregate', metavar='AGGREGATE',
                  help='id or name of the aggregate whose hosts share the '
                       'provider'),
    *_CONTENTS,
    base.several('--no-resource', 'CLASS', 'a resource class to remove'),
    base.several('--no-trait', 'TRAIT', 'a trait to remove'),
    columns=_COLUMNS, kinds=_KINDS)
def set_provider(app: Shell, args: argparse.Namespace) -> 'ProviderRecord':
    """Change a resource provider that the hosts of an aggregate share.

    Fields that are not named keep their values. Servers keep their
    allocations even if the inventory becomes smaller; nothing more is
    allocated then.

    Examples::

        cellsched provider set pool1 --resource DISK_GB=200000
        cellsched provider set pool1 --name pool9 --no-trait CUSTOM_SLOW
    """
    changes: dict[str, Mapping[str, Any] | None] = {
        **_inventories(args.resource)}
    for option, removed, added in (
            ('--no-resource', args.no_resource, changes),
            ('--no-trait', args.no_trait, args.trait)):
        for name in removed:
            if name in added:
                raise base.invalid(
                    option, f'{name!a:.60} is both set and removed',
                    'a name that is not set')
    changes.update(dict.fromkeys(args.no_resource))
    return app.api.providers.update(
        app.context(), args.provider, args.name, args.aggregate, changes,
        args.trait, args.no_trait)


@base.change_each(
    'deleted', 'provider',
    base.argument('providers', metavar='PROVIDER', nargs='+',
                  help='names or uuids of the providers'),
    kinds=_KINDS)
def delete_provider(app: Shell, args: argparse.Namespace, name: str) -> None:
    """Delete sharing resource providers that have no allocations.

    Example::

        cellsched provider delete pool1 pool2
    """
    app.api.providers.delete(app.context(), name)


@base.lister(kinds=_KINDS, columns={
    'Name': lambda row: row[0], 'Unit': lambda row: _unit(row[0]),
    'Providers': lambda row: row[1][0], 'Capacity': lambda row: row[1][1],
    'Used': lambda row: row[1][2]})
def list_resource_classes(
    app: Shell, args: argparse.Namespace
) -> Iterable[tuple[str, list[int]]]:
    """List the resource classes with their total capacity and usage.

    The list has the standard classes, and each custom class of a provider.
    If a cell does not answer, its providers are not counted.

    Example::

        cellsched resource class list -f csv
    """
    sums = {name: [0, 0, 0] for name in os_resource_classes.STANDARDS}
    for each in _read(app):
        for name, usage in each.inventories.items():
            amounts = (1, usage.inventory.capacity, usage.used)
            sums[name] = [total + amount for total, amount in zip(
                sums.get(name, (0, 0, 0)), amounts)]
    return sorted(sums.items())


@base.lister(
    base.flag('--standard',
              'add the standard traits that no provider has'),
    kinds=_KINDS, columns={
        'Name': lambda row: row[0], 'Providers': lambda row: row[1]})
def list_traits(
    app: Shell, args: argparse.Namespace
) -> Iterable[tuple[str, int]]:
    """List the traits of resource providers, and how many providers have each.

    If a cell does not answer, its providers are not counted.

    Examples::

        cellsched trait list
        cellsched trait list --standard -f csv
    """
    counts = collections.Counter(
        name for each in _read(app) for name in each.traits)
    if args.standard:
        # To import it takes 20 ms, and the help of all commands would do so.
        import os_traits

        counts.update(dict.fromkeys(os_traits.get_traits(), 0))
    return sorted(counts.items())


def _read(app: Shell, kind: str | None = None) -> 'list[ProviderRecord]':
    """Return all providers; warn of cells that do not answer."""
    page = app.api.providers.list(app.context(), kind)
    for cell in page.down_cells:
        app.warn(f'warning: cell {cell} did not answer; its resource '
                 'providers are missing')
    return page.providers


def _unit(name: str) -> str:
    # The help of all commands imports this module, and would import numpy.
    from cellsched.objects import resources

    _, unit = resources.describe(name)
    return '' if unit == name else unit


def _inventories(texts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the fields of inventories, by class, from options."""
    inventories: dict[str, dict[str, Any]] = {}
    for name, field, value, text in _split(texts):
        fields = inventories.setdefault(name, {})
        if field in fields:
            raise base.invalid(
                '--resource', f'{text!a:.60} sets a field twice',
                'each field of a class once')
        number = _NUMBER.fullmatch(value)
        if not number or (number[1] and field != _RATIO):
            kind = 'number' if field == _RATIO else 'whole number'
            raise base.invalid(
                '--resource', f'{text!a:.60} has an invalid value',
                f'a {kind} after the =')
        fields[field] = float(value) if field == _RATIO else int(value)
    return inventories


def _split(texts: Iterable[str]) -> Iterator[tuple[str, str, str, str]]:
    for text in texts:
        found = _RESOURCE.fullmatch(text)
        if found is None:
            raise base.invalid(
                '--resource', f'{text!a:.60} is not an inventory',
                'CLASS=TOTAL or CLASS:FIELD=VALUE')
        yield found[1], found[2] or 'total', found[3], text
