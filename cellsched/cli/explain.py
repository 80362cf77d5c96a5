# SPDX-License-Identifier: Apache-2.0
"""The explanation of a server's placement: ``cellsched explain``."""

import argparse
from collections.abc import Iterator
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched.cli import decision_text
from cellsched import exception

if TYPE_CHECKING:
    from cellsched.cli.app import Shell
    from cellsched.db.api import decisions


class Explain(base.ReportCommand):
    """Show how a scheduler decided on a server.

    Shows what was asked for, how many hosts each stage and each filter left,
    and for the chosen host and the second how each weigher scored them. Where
    there was no host, shows what rejected how many, what was missing where
    least was missing, and the names of some of these hosts.

    Decisions are kept for ``[scheduler] decision_retention`` seconds.

    Examples::

        cellsched explain 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
        cellsched explain req-0d1fb7f1-2d9e-4c62-8f3b-0a5c0f6a1c11 --all
    """

    app: 'Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('name', metavar='SERVER|REQUEST_ID',
                            help='id of a server or of a request')
        parser.add_argument(
            '--all', action='store_true',
            help='show every decision that is kept, the newest first; by '
                 'default the newest alone')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        found = self._find(parsed_args.name, parsed_args.all)
        told = []
        for each in found:
            decision_text.check(each.document)
            told.append({**each.document,
                         'why_not_second': decision_text.reason(
                             each.document)})
        self.show(parsed_args.format, told if parsed_args.all else told[0],
                  self._lines(told, parsed_args.name))

    def _find(
        self, name: str, everything: bool
    ) -> 'list[decisions.DecisionRow]':
        from cellsched.api import validation

        validation.check_text('options', 'SERVER|REQUEST_ID', name)
        deployment = self.app.deployment
        found = deployment.decisions(name, None if everything else 1)
        if not found:
            raise exception.DecisionNotFound(
                name=name, kept=_kept(deployment.retention_s,
                                      deployment.retention_option))
        return found

    def _lines(
        self, told: list[dict[str, Any]], name: str
    ) -> Iterator[str]:
        cells = self.app.deployment.cells()
        for number, document in enumerate(told):
            if number:
                yield '-' * 79
            server = name if name in document['instances'] else None
            yield from decision_text.lines(document, cells, server)


def _kept(retention_s: int, option: str) -> str:
    if retention_s:
        return (f'they are kept for {retention_s} seconds, as {option} '
                'says')
    return f'none are kept, as {option} is 0'
