# SPDX-License-Identifier: Apache-2.0
"""Plug-ins that are installed: ``cellsched plugin list|show``."""

import argparse
from collections.abc import Callable
import dataclasses
from importlib import metadata
import inspect
import re
import sys
from typing import Any
from typing import TYPE_CHECKING

from cliff import columns

from cellsched.cli import base
from cellsched import exception
from cellsched import plugins

if TYPE_CHECKING:
    from oslo_config import cfg

_ROLE = re.compile(r':[\w:]+:`([^`]*)`')


class ListPlugins(base.Lister):
    """List the plug-ins that are installed.

    One that cannot be used is listed with its problem. It stops nothing as
    long as no option names it.

    Example::

        cellsched plugin list
    """

    columns = ('Kind', 'Name', 'Summary', 'Module', 'Problem')

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        rows: list[tuple[str, ...]] = []
        for kind, namespace in plugins.KINDS.items():
            for point in plugins.entry_points(namespace):
                seen = _look(kind, point)
                rows.append((kind, point.name, seen.description[0],
                             _module(point), seen.problem))
        return self.columns, rows


class ShowPlugin(base.ShowOne):
    """Show a plug-in with its documentation and its options.

    Ends with 1 if it cannot be used, and shows its problem.

    Example::

        cellsched plugin show filter NumInstancesFilter
    """

    columns = ('kind', 'name', 'module', 'description', 'hints', 'reads',
               'promises', 'options', 'problem')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'kind', metavar='KIND', choices=list(plugins.KINDS),
            help=f'one of {", ".join(plugins.KINDS)}')
        parser.add_argument('name', metavar='NAME', help='its name')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        kind, name = parsed_args.kind, parsed_args.name
        namespace = plugins.KINDS[kind]
        found = [point for point in plugins.entry_points(namespace)
                 if point.name == name]
        if not found:
            # This says which there are.
            plugins.load(namespace, name)
        seen = _look(kind, found[0])
        if seen.problem:
            self.exit_code = 1
        return self.columns, (
            kind, name, _module(found[0]), '\n'.join(seen.description),
            ', '.join(seen.hints), ', '.join(seen.reads),
            ', '.join(seen.promises), _Options(seen.options), seen.problem)


@dataclasses.dataclass
class _Seen:
    """The description of a plug-in by itself, or what is wrong with it."""

    description: list[str] = dataclasses.field(default_factory=lambda: [''])
    hints: list[str] = dataclasses.field(default_factory=list)
    reads: list[str] = dataclasses.field(default_factory=list)
    promises: list[str] = dataclasses.field(default_factory=list)
    options: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    problem: str = ''


def _look(kind: str, point: metadata.EntryPoint) -> _Seen:
    """Return what is to be seen of a plug-in that may be broken."""
    namespace, name = plugins.KINDS[kind], point.name
    field = plugins.field_of(namespace, name)
    try:
        found = plugins.load(namespace, name)
        _check(kind, field, found)
        return plugins.attempt(
            field, 'a plug-in that says what it is',
            lambda: _seen(found, point, field),
            passed_on=(exception.ConfigurationInvalid,))
    except exception.ConfigurationInvalid as exc:
        return _Seen(problem=' '.join(exc.format_message().split()))


def _check(kind: str, field: str, found: Any) -> None:
    """Make sure that something is a plug-in of a kind, as services do.

    :raises cellsched.exception.ConfigurationInvalid: it is none
    """
    from cellsched.claims import base as claims
    from cellsched.filters import registry as filters
    from cellsched.hosts import column_providers
    from cellsched.network import base as network
    from cellsched.objects import resource_classes
    from cellsched.quota import base as quota
    from cellsched.scheduler.drivers import base as drivers
    from cellsched.virt import base as virt
    from cellsched.weighers import registry as weighers

    checks: dict[str, Callable[[str, Any], object]] = {
        'columns': column_providers.check, 'filter': filters.check,
        'resource_class': resource_classes.check, 'weigher': weighers.check}
    bases: dict[str, type] = {
        'claims': claims.ClaimStore, 'driver': drivers.SchedulerDriver,
        'network': network.NetworkAPI, 'quota': quota.QuotaDriver,
        'virt': virt.ComputeDriver}
    if kind in checks:
        checks[kind](field, found)
    else:
        plugins.check_class(field, found, bases[kind])


def _seen(found: Any, point: metadata.EntryPoint, field: str) -> _Seen:
    from cellsched.conf import enabled

    return _Seen(
        _documentation(found, _module(point)),
        sorted(getattr(found, 'hints', None) or ()),
        sorted(getattr(found, 'reads', None) or ()),
        sorted(each.value
               for each in getattr(found, 'capabilities', ())),
        [_option(found, option)
         for option in enabled.options_of(found, field)])


def _module(point: metadata.EntryPoint) -> str:
    # An entry point that is badly written has no module.
    return point.value.partition(':')[0].strip()


class _Options(columns.FormattableColumn):
    """Options as data for programs, and as paragraphs for people."""

    def human_readable(self) -> str:
        return '\n\n'.join(
            f'[{option["group"]}] {option["name"]} = {option["default"]}\n'
            f'{option["help"]}' for option in self.machine_readable())


def _documentation(found: Any, module: str) -> list[str]:
    """Return the docstring's lines; of data, those of their module."""
    documented = found if inspect.isclass(found) else sys.modules[module]
    return _plain(inspect.getdoc(documented) or '').splitlines() or ['']


def _option(found: Any, option: 'cfg.Opt') -> dict[str, Any]:
    return {'group': found.group, 'name': option.name,
            'default': '' if option.default is None else option.default,
            'help': _plain(option.help or '').strip()}


def _plain(text: str) -> str:
    """Return reStructuredText without its inline markup."""
    return _ROLE.sub(r'\1', text).replace('``', '')
