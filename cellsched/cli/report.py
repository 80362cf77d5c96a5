# SPDX-License-Identifier: Apache-2.0
"""Bases of commands that show more than one table, or what they did."""

import argparse
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import json
from typing import Any

from cellsched.cli import base
from cellsched import exception


class ReportCommand(base.Command):
    """A command that shows a document: to people, or as data."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '-f', '--format', choices=('table', 'json', 'yaml'),
            default='table',
            help='how to show it: table, for people, or json or yaml; by '
                 'default table')
        return parser

    def show(self, form: str, data: Any, lines: Iterable[str]) -> None:
        """Show data as the option says, or else these lines."""
        if form == 'json':
            self.app.say(json.dumps(data, indent=2))
        elif form == 'yaml':
            import yaml

            self.app.say(yaml.safe_dump(data, sort_keys=False).rstrip())
        else:
            for line in lines:
                self.app.say(line)


class ChangeCommand(ReportCommand):
    """A command that changes things, and says of each what it did."""

    def change(
        self, form: str, action: str, kind: str, names: Iterable[str],
        do: Callable[[str], Mapping[str, Any] | None],
    ) -> tuple[list[str], int]:
        """Change each of several things, and say so as the option says.

        What goes wrong with one is reported, and the others go on.

        :param action: what is said of those that it was done with, such as
            ``deleted``
        :param kind: what they are
        :param do: does it; returns what else there is to say of it
        :returns: the names of those that it was done with, and the exit code
        """
        told, code = [], 0
        try:
            for name in dict.fromkeys(names):
                try:
                    more = do(name) or {}
                except exception.CellschedException as exc:
                    self.app.report(exc)
                    code = 1
                    continue
                told.append(
                    {'action': action, 'kind': kind, 'name': name, **more})
                if form == 'table':
                    self.app.say(', '.join((
                        f'{action.capitalize()} {kind} {name}',
                        *(f'{key} {value}' for key, value in more.items()))))
        finally:
            # What was done before an error that ends it is said too.
            self.show(form, told, ())
        return [each['name'] for each in told], code
