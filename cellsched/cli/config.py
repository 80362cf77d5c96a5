# SPDX-License-Identifier: Apache-2.0
"""The configuration: ``cellsched config validate``."""

import argparse
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched import urls

if TYPE_CHECKING:
    from cellsched import exception


class ValidateConfig(base.ReportCommand):
    """Find all errors in a configuration.

    Reads the configuration as services do, and lists each unknown option and
    group, each value out of range, each plug-in that cannot be used and each
    invalid URL. A service stops at the first error. ``--exclude-group`` names
    groups of other programs in the same files.

    ``--connect`` also checks whether the databases answer, including those of
    all cells, whether their schemas are up to date, and whether a broker
    refuses the connection or a kind of queue. A broker that cannot be reached
    is not an error, because services wait for it.

    Without ``--config-file`` and ``--config-dir``, shows the files that it
    reads on standard error.

    Ends with 1 if there is an error. Warnings are no errors. Passwords are
    masked.

    Examples::

        cellsched --config-file api.conf config validate
        cellsched config validate --connect -f json
    """

    arguments = (
        base.several('--exclude-group', 'GROUP',
                     'a group of options of another program'),
        base.flag('--connect', 'connect to the databases and brokers'))

    #: Whether warnings in the log are shown.
    warns = True

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        args = parsed_args
        if not self.app.config_options:
            files = self.app.backend.files()
            self.app.warn(f'reading {", ".join(files)}' if files else
                          'warning: there is no configuration file to read; '
                          '--config-file names one')
        found = [_shown(each) for each in self.app.backend.problems(
            args.exclude_group, args.connect)]
        self.show(args.format, found, [
            each['problem'] for each in found] or ['Nothing is wrong.'])
        return 1 if found else 0


def _shown(problem: 'exception.CellschedException') -> dict[str, Any]:
    """Return a problem in one line, with the name of its option."""
    text = ' '.join(urls.mask_text(problem.format_message()).split())
    return {'field': problem.kwargs.get('field'),
            'problem': text.removeprefix('Configuration: ')}
