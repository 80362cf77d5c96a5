# SPDX-License-Identifier: Apache-2.0
"""The command ``cellsched-status``."""

from collections.abc import Sequence
from importlib import metadata
import logging
import sys
from typing import Any
from typing import NoReturn

from cellsched import cmd

with cmd.ended_by_interrupts():
    from oslo_config import cfg
    from oslo_upgradecheck import upgradecheck

    from cellsched.cli import app
    from cellsched.conf import loader
    from cellsched import exception
    from cellsched import urls
    from cellsched.wiring.components import Components
    from cellsched.wiring import maintenance

#: The exit code if the checks could not run.
ERROR = 255


_DESCRIPTION = """
Checks whether a deployment is ready to be upgraded, and changes nothing.

The checks read the databases and the brokers of the configuration. The exit
code is 0 if all checks pass, 1 if there is a warning, 2 if there is a failure,
and 255 if the checks could not run.
"""


class _Options(cfg.ConfigOpts):
    """Options whose help has a description."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        super().__call__(*args, **{
            **kwargs, 'description': _DESCRIPTION,
            'epilog': app.epilog(metadata.metadata('cellsched'))})


class Status(upgradecheck.UpgradeCommands):
    """The command, which reads its configuration after its options."""

    def __init__(self) -> None:
        self._conf = loader.new_conf(_Options)
        #: Whether the command line names files.
        self._named = False

    def run(self, argv: Sequence[str]) -> int:
        """Run the command; return the exit code."""
        if [*argv] == ['--version']:
            print(f'cellsched-status {metadata.version("cellsched")}')
            return 0
        self._named = any(each.startswith('--config') for each in argv)
        # The results of the checks have the problems.
        logging.getLogger().addHandler(logging.NullHandler())
        try:
            return upgradecheck.main(self._conf, 'cellsched', self, list(argv))
        except SystemExit as exc:
            # An invalid command line has the exit code of a failure.
            return ERROR if exc.code else 0
        except cfg.ConfigFileParseError as exc:
            # The text of the error quotes the line.
            return _refuse(f'Configuration: {exc.config_file}: cannot be read')
        except UnicodeDecodeError:
            return _refuse('Configuration: a file is not text in UTF-8')
        except (cfg.Error, OSError) as exc:
            return _refuse(f'Configuration: {exc}')

    def check(self) -> upgradecheck.Code:
        """Run the checks, and print the results."""
        try:
            # The library does not know the environment variable.
            conf = loader.load(
                files=self._conf.config_file if self._named else None,
                dirs=self._conf.config_dir if self._named else None)
            for group in ('api_database', 'database'):
                # Do not retry: a person waits for the result.
                conf.set_default('max_retries', 0, group)
            parts = Components(conf)
            try:
                return maintenance.upgrade_checks(parts).check()
            finally:
                parts.close()
        except exception.CellschedException as exc:
            raise SystemExit(_refuse(exc.format_message())) from None
        except Exception as exc:
            raise SystemExit(_refuse(
                f'unexpected {type(exc).__name__}: {exc}')) from None


def _refuse(text: str) -> int:
    """Say in one line why the checks cannot be made; return the code."""
    line = ' '.join(urls.mask_text(text).split())
    print(f'cellsched-status: {line}', file=sys.stderr)
    return ERROR


def main() -> NoReturn:
    """Check whether a deployment is ready to be upgraded."""
    app.main(Status)
