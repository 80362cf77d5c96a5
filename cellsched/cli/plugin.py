# SPDX-License-Identifier: Apache-2.0
"""Plug-ins that are installed: ``cellsched plugin list|show``."""

import argparse
from collections.abc import Iterable
import inspect
import re
import sys
from typing import Any

from cliff import columns

from cellsched.cli import base
from cellsched import exception
from cellsched import plugins

_ROLE = re.compile(r':[\w:]+:`([^`]*)`')


class ListPlugins(base.Lister):
    """List the plug-ins that are installed.

    One that cannot be imported is listed with the reason.

    Example::

        cellsched plugin list
    """

    columns = ('Kind', 'Name', 'Summary', 'Module')

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        rows: list[tuple[str, ...]] = []
        for kind, namespace in plugins.KINDS.items():
            for point in plugins.entry_points(namespace):
                try:
                    found = plugins.load(namespace, point.name)
                except exception.ConfigurationInvalid as exc:
                    summary = exc.format_message()
                else:
                    summary = _documentation(found, point.module)[0]
                rows.append((kind, point.name, summary, point.module))
        return self.columns, rows


class ShowPlugin(base.ShowOne):
    """Show a plug-in with its documentation and its options.

    Example::

        cellsched plugin show filter NumInstancesFilter
    """

    columns = ('kind', 'name', 'module', 'description', 'hints', 'promises',
               'options')

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
        found = plugins.load(namespace, name)
        module = next(point.module
                      for point in plugins.entry_points(namespace)
                      if point.name == name)
        return self.columns, (
            kind, name, module, '\n'.join(_documentation(found, module)),
            ', '.join(sorted(getattr(found, 'hints', None) or ())),
            ', '.join(sorted(
                trait.value for trait in getattr(found, 'traits', ()))),
            _Options(list(_options(found))))


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


def _options(found: Any) -> Iterable[dict[str, Any]]:
    for option in found.opts() if hasattr(found, 'opts') else ():
        yield {'group': found.group, 'name': option.name,
               'default': '' if option.default is None else option.default,
               'help': _plain(option.help or '').strip()}


def _plain(text: str) -> str:
    """Return reStructuredText without its inline markup."""
    return _ROLE.sub(r'\1', text).replace('``', '')
