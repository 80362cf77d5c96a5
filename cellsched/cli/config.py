# SPDX-License-Identifier: Apache-2.0
"""The configuration: ``cellsched config validate``."""

import argparse
from collections.abc import Iterator
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli.app import App
from cellsched.cli import base
from cellsched import urls

if TYPE_CHECKING:
    from oslo_config import cfg

    from cellsched import exception


class ValidateConfig(base.ReportCommand):
    """Look for all that is wrong with a configuration.

    Reads it as services do, and names each option and group that there is
    not, each value that is out of range, each plug-in that cannot be used and
    each URL that cannot be one. A service would stop at the first of them.
    Groups of other programs in the same files are named by
    ``--exclude-group``.

    With ``--connect``, it looks too whether databases answer, those of all
    cells among them, and have the right schemas, and whether a broker
    refuses. One that cannot be reached is no problem: services wait for it.

    Ends with 1 if anything is wrong. Passwords are not shown.

    Examples::

        cellsched --config-file api.conf config validate
        cellsched config validate --connect -f json
    """

    app: 'App'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--exclude-group', metavar='GROUP', action='append', default=[],
            help='a group that is somebody else\'s')
        parser.add_argument(
            '--connect', action='store_true',
            help='connect to databases and brokers')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        from cellsched.conf import loader

        args = parsed_args
        conf, problems = loader.examine(
            self.app.config_options, foreign=args.exclude_group)
        found = [_shown(each) for each in (
            *problems, *self._beyond(conf, bool(problems), args.connect))]
        self.show(args.format, found, [
            each['problem'] for each in found] or ['Nothing is wrong.'])
        return 1 if found else 0

    def _beyond(
        self, conf: 'cfg.ConfigOpts', broken: bool, connect: bool
    ) -> 'Iterator[exception.CellschedException]':
        """Yield what is wrong beyond the files.

        :param broken: whether something is wrong with those
        """
        from cellsched.conf import database
        from cellsched.wiring import configuration
        from cellsched.wiring import services as assembly

        yield from configuration.problems(conf)
        if broken:
            return
        database.be_impatient(conf)
        parts = assembly.Parts(conf, self.app.clock)
        try:
            bad = list(configuration.url_problems(parts))
            yield from bad
            if connect and not bad:
                yield from configuration.connection_problems(parts)
        finally:
            parts.close()


def _shown(problem: 'exception.CellschedException') -> dict[str, Any]:
    """Return a problem in one line, with the name of what has it."""
    text = ' '.join(urls.mask_text(problem.format_message()).split())
    return {'field': problem.kwargs.get('field'),
            'problem': text.removeprefix('Configuration: ')}
