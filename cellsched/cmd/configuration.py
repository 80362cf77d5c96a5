# SPDX-License-Identifier: Apache-2.0
"""The configuration of a service, which the service can read again."""

from collections.abc import Collection
from collections.abc import Sequence
import logging
import os
from typing import Any

from oslo_log import log

from cellsched.conf import loader
from cellsched.conf import logging_setup
from cellsched import exception

LOG = log.getLogger(__name__)


class ServiceConfiguration:
    """The configuration and the logging of a service.

    :param args: the arguments of the command
    :param kinds: namespaces of the plug-ins that the service uses
    :ivar conf: the configuration
    :raises cellsched.exception.ConfigurationInvalid: names the file and the
        option
    """

    def __init__(
        self, args: Sequence[str], kinds: Collection[str]
    ) -> None:
        self._args = [*args]
        self._kinds = kinds
        self.conf = loader.load(args, kinds=kinds)
        _set_up_logging(self.conf)
        self._logging = _version(self.conf.log_config_append)

    def read_again(self, level: int = logging.ERROR) -> None:
        """Read the options that can change; keep all values after an error.

        Raises nothing, because an error would end the process.

        :param level: the level of the line about an error
        """
        try:
            self._check()
            # The values are valid now, unless the files change meanwhile.
            changed = self.conf.mutate_config_files()
        except (Exception, SystemExit) as exc:
            # oslo.config raises SystemExit for the value of an option that is
            # also an argument.
            LOG.log(level, 'The configuration cannot be read again, and all '
                    'values stay: %s', exception.describe(exc)
                    if isinstance(exc, Exception) else 'an invalid value')
            return
        # A value may be a password.
        LOG.info('The configuration was read again; changed options: %s',
                 ', '.join(f'[{group or "DEFAULT"}] {name}'
                           for group, name in changed) or 'none')

    def _check(self) -> None:
        """Check the files as at the start, and load a changed logging file.

        oslo.config would apply the new values before oslo.log loads that file.
        """
        path = loader.load(
            self._args, self.conf.default_config_files,
            self.conf.default_config_dirs, self._kinds).log_config_append
        version = _version(path)
        if path and version != self._logging:
            logging_setup.load(path)
        self._logging = version


def _set_up_logging(conf: Any) -> None:
    # These log each check of a schema, and errors that are reported anyway.
    conf.set_default('default_log_levels', [
        *log.get_default_log_levels(), 'alembic=WARN', 'stevedore=ERROR'])
    if not (conf.log_file or conf.log_dir or conf.use_journal
            or conf.use_syslog):
        # oslo.log would write to standard output.
        conf.set_default('use_stderr', True)
    logging_setup.set_up(conf, 'cellsched')


def _version(path: str | None) -> tuple[str, int] | None:
    """Return a value that changes when a file changes; None without one."""
    if not path:
        return None
    try:
        return path, os.stat(path).st_mtime_ns
    except OSError:
        # A file that vanished differs from each one that was loaded.
        return path, 0
