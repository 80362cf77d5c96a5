# SPDX-License-Identifier: Apache-2.0
"""Traits: ``cellsched trait list``."""

import argparse
import collections
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched.cli import provider
from cellsched import plugins

if TYPE_CHECKING:
    from cellsched.cli.app import Shell


class ListTraits(base.Lister):
    """List the traits that resource providers have, and how many have each.

    Those of a cell that does not answer are missing in it.

    Examples::

        cellsched trait list
        cellsched trait list --standard -f csv
    """

    kinds = (plugins.CLAIMS,)

    app: 'Shell'
    columns = ('Name', 'Providers')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--standard', action='store_true',
            help='add those that all clouds know, whether or not any '
                 'provider has them')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        counts = collections.Counter(
            name for each in provider.read(self.app) for name in each.traits)
        names = set(counts)
        if parsed_args.standard:
            import os_traits

            names.update(os_traits.get_traits())
        return self.columns, [(name, counts[name]) for name in sorted(names)]
