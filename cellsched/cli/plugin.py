# SPDX-License-Identifier: Apache-2.0
"""Installed plug-ins: ``cellsched plugin list|show``."""

import argparse
from typing import Any

from cellsched.cli import base
from cellsched import plugins


class ListPlugins(base.Lister):
    """List the installed plug-ins.

    A broken plug-in is listed with its problem. It affects no service unless
    an option names it.

    Example::

        cellsched plugin list
    """

    columns = ('Kind', 'Name', 'Summary', 'Module', 'Problem')

    def take_action(self, parsed_args: argparse.Namespace) -> base.Rows:
        inspection, rows = _inspection(), list[tuple[str, ...]]()
        for kind, namespace in plugins.KINDS.items():
            for point in plugins.entry_points(namespace):
                found = inspection.describe(kind, point)
                rows.append((kind, point.name, found.text[0],
                             inspection.module_of(point), found.problem))
        return self.columns, rows


class ShowPlugin(base.ShowOne):
    """Show a plug-in with its documentation and its options.

    If the plug-in is broken, shows its problem and ends with 1.

    Example::

        cellsched plugin show filter NumInstancesFilter
    """

    columns = ('kind', 'name', 'module', 'description', 'hints', 'reads',
               'capabilities', 'options', 'problem')
    arguments = (
        base.argument('kind', metavar='KIND', choices=list(plugins.KINDS),
                      help=f'kind of the plug-in: {", ".join(plugins.KINDS)}'),
        base.argument('name', metavar='NAME', help='name of the plug-in'))

    def take_action(self, parsed_args: argparse.Namespace) -> base.Row:
        kind, name = parsed_args.kind, parsed_args.name
        namespace = plugins.KINDS[kind]
        points = [point for point in plugins.entry_points(namespace)
                  if point.name == name]
        if not points:
            # Raises an error that lists the installed plug-ins.
            plugins.load(namespace, name)
        inspection = _inspection()
        found = inspection.describe(kind, points[0])
        if found.problem:
            self.exit_code = 1
        return self.columns, (
            kind, name, inspection.module_of(points[0]),
            '\n'.join(found.text), ', '.join(found.hints),
            ', '.join(found.reads), ', '.join(found.capabilities),
            base.ShownValue(found.options, lambda options: '\n\n'.join(
                '[{group}] {name} = {default}\n{help}'.format(**option)
                for option in options)), found.problem)


def _inspection() -> Any:
    # The help of all commands imports this module, and would import the
    # contract of each kind of plug-in.
    from cellsched.cli import plugin_inspection

    return plugin_inspection
