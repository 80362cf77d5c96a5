# SPDX-License-Identifier: Apache-2.0
"""The base of commands that show more than one table."""

import argparse
from collections.abc import Iterable
import json
from typing import Any

import yaml

from cellsched.cli import base


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
            self.app.say(yaml.safe_dump(data, sort_keys=False).rstrip())
        else:
            for line in lines:
                self.app.say(line)
