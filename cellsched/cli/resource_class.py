# SPDX-License-Identifier: Apache-2.0
"""Resource classes: ``cellsched resource class list``."""

import argparse
from typing import Any
from typing import TYPE_CHECKING

import os_resource_classes

from cellsched.cli import base
from cellsched.cli import provider
from cellsched import plugins

if TYPE_CHECKING:
    from cellsched.cli.app import Shell


class ListResourceClasses(base.Lister):
    """List the resource classes, and what there is of each.

    They are those that all clouds know, and custom ones that some provider
    has. The capacity is what may be taken of all providers in sum. Those
    of a cell that does not answer are missing in it.

    Example::

        cellsched resource class list -f csv
    """

    kinds = (plugins.CLAIMS,)

    app: 'Shell'
    columns = ('Name', 'Unit', 'Providers', 'Capacity', 'Used')

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        sums = {name: [0, 0, 0] for name in os_resource_classes.STANDARDS}
        for each in provider.read(self.app):
            for name, has in each.inventories.items():
                amounts = (1, has.inventory.capacity, has.used)
                sums[name] = [known + more for known, more in zip(
                    sums.get(name, (0, 0, 0)), amounts)]
        return self.columns, [
            (name, _unit(name), *sums[name]) for name in sorted(sums)]


def _unit(name: str) -> str:
    # The help of all commands imports this module.
    from cellsched.objects import resources

    _, unit = resources.words(name)
    return '' if unit == name else unit
