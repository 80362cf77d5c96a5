# SPDX-License-Identifier: Apache-2.0
"""The applications, and what is the same for each of their commands.

Options of the application are taken before and after the command. What goes
wrong ends in one line on standard error and with 1, what is wrong with the
arguments among it; other exit codes are the commands' own.
"""

import argparse
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import functools
from importlib import metadata
import inspect
import io
import itertools
import logging
import os
import re
import sys
import traceback
from typing import Any
from typing import ClassVar
from typing import NoReturn
from typing import Protocol
from typing import TextIO
from typing import TYPE_CHECKING

from cliff import app
from cliff import command

from cellsched.cli import base
from cellsched.cli import command_manager
from cellsched.clock import Clock
from cellsched import exception
from cellsched import urls

if TYPE_CHECKING:
    from oslo_config import cfg

    from cellsched.cli.deployment import ReadDeployment
    from cellsched.context import RequestContext
    from cellsched import embedding
    from cellsched.wiring.api import API
    from cellsched.wiring import command as assembly
    from cellsched.wiring import planner

#: What a shell says of a process that lost its reader.
_BROKEN_PIPE = 141

#: A URL, and what follows it: nobody can say where a password ends.
_URL = re.compile(r'\w[\w.+-]*://.*')


class App(app.App):
    """An application; what its commands need is made when they ask for it."""

    #: Entry points of the commands.
    namespace: ClassVar[str]

    #: Names of the option that shows warnings.
    verbose: ClassVar[tuple[str, ...]] = ('-v', '--verbose')

    #: What the process ends with when a command raised something.
    _failure_code: int | None = None

    #: Kinds of plug-ins that the command uses.
    _kinds: Collection[str] = ()

    #: Whether the command sends messages.
    _sends = True

    # What it is told of errors is reported by :meth:`report` instead.
    LOG = logging.getLogger(f'{__name__}.unheard')
    LOG.disabled = True

    def __init__(
        self, stdout: TextIO | None = None, stderr: TextIO | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or Clock()
        super().__init__(
            inspect.getdoc(self), metadata.version('cellsched'),
            command_manager.Commands(self.namespace), stdout=stdout,
            stderr=stderr)

    @functools.cached_property
    def conf(self) -> 'cfg.ConfigOpts':
        """The configuration.

        :raises cellsched.exception.ConfigurationInvalid: names file and field
        """
        from cellsched.conf import database
        from cellsched.conf import loader

        conf = loader.load(
            self.config_options, kinds=self._kinds, messages=self._sends)
        database.be_impatient(conf)
        return conf

    @property
    def config_options(self) -> list[str]:
        """The options that say which configuration is read."""
        return [
            *(f'--config-file={path}' for path in self.options.config_file),
            *(f'--config-dir={path}' for path in self.options.config_dir)]

    @functools.cached_property
    def parts(self) -> 'assembly.CommandParts':
        """Databases, transports and what is made of them."""
        conf = self.conf
        from cellsched.wiring import command as assembly

        parts = assembly.CommandParts(conf, self.clock)
        if self._sends:
            parts.check_messages()
        return parts

    @functools.cached_property
    def planner_parts(self) -> 'planner.PlannerParts':
        """The same, and what schedulers have besides."""
        parts = self.parts
        from cellsched.wiring import planner

        return planner.PlannerParts(
            self.conf, self.clock, None, parts.databases, parts.transports)

    @functools.cached_property
    def conductor_parts(self) -> 'embedding.ConductorParts':
        """The same, and what conductors have besides."""
        parts = self.parts
        from cellsched import embedding

        return embedding.ConductorParts(
            self.conf, self.clock, None, parts.databases, parts.transports)

    @functools.cached_property
    def api(self) -> 'API':
        """Return the API that a front end calls."""
        parts = self.parts
        from cellsched.wiring import command as assembly

        made = assembly.api(self.conf, parts)
        if self._sends:
            made.check_messages()
        return made

    @functools.cached_property
    def sending_api(self) -> 'API':
        """The same, for commands that send a message to conductors.

        :raises cellsched.exception.BrokerRefused: the broker refuses
        """
        self.parts.transports.check()
        return self.api

    def say(self, line: str) -> None:
        """Tell of what was done, on standard output."""
        print(line, file=self.stdout)

    def warn(self, text: str) -> None:
        """Tell of what is wrong, in one line on standard error."""
        line = ''.join(
            each if each.isprintable() else '?'
            for each in ' '.join(_without_secrets(text).split()))
        print(f'{self.NAME}: {line}', file=self.stderr)

    def report(self, exc: BaseException) -> None:
        """Tell of an error, and where it comes from if that was asked for."""
        if self.options.debug:
            self.stderr.write(_without_secrets(
                ''.join(traceback.format_exception(exc))))
        if isinstance(exc, exception.PluginFailed) and exc.__cause__:
            self.warn(f'{exc.format_message()} (--debug shows why)')
        elif isinstance(exc, exception.CellschedException):
            self.warn(exc.format_message())
        else:
            self.warn(f'unexpected {type(exc).__name__}: {exc} (--debug shows '
                      'where it comes from)')

    def run(self, argv: Sequence[str]) -> int:
        """Run a command; return the exit code."""
        self.options = argparse.Namespace(debug=False)
        try:
            # What is wrong here would not be heard of below.
            self.parser.parse_known_args(argv)
            with self._logging():
                return super().run(list(argv))
        except SystemExit as exc:
            return 1 if exc.code else 0
        except Exception as exc:
            self.report(exc)
            return 1

    def build_option_parser(
        self, description: str | None, version: str | None,
        argparse_kwargs: dict[str, Any] | None = None,
    ) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=self.NAME, description=description, add_help=False,
            allow_abbrev=False)
        base.show_docstrings(parser)
        base.refuse(parser)
        parser.add_argument(
            '-h', '--help', action='store_true',
            help='show this help, or that of the command, and end')
        parser.add_argument(
            '--version', action='version', version=f'{self.NAME} {version}',
            help='show the version and end')
        parser.add_argument(
            '--config-file', action='append', default=[], metavar='FILE',
            help='a configuration file; of several, the later ones override '
                 'the earlier')
        parser.add_argument(
            '--config-dir', action='append', default=[], metavar='DIR',
            help='a directory whose *.conf files are read after those')
        parser.add_argument(
            *self.verbose, action='store_true', dest='verbose',
            help='show warnings that are logged')
        parser.add_argument(
            '--debug', action='store_true',
            help='show everything that is logged, and where errors come from')
        return parser

    def configure_logging(self) -> None:
        """Say what is shown; the handler is there already."""
        if self.options.debug:
            logging.getLogger().setLevel(logging.DEBUG)
            self._handler.setLevel(logging.DEBUG)
        elif self.options.verbose:
            self._handler.setLevel(logging.WARNING)

    def prepare_to_run_command(self, cmd: command.Command) -> None:
        self._kinds = getattr(cmd, 'kinds', ())
        # Nobody knows of commands that do not say it.
        self._sends = getattr(cmd, 'sends', True)

    def initialize_app(self, argv: list[str]) -> None:
        if self.options.help:
            # A command shows its own.
            if not argv:
                raise SystemExit(self.run_subcommand(['help']))
            argv.append('--help')

    def interact(self) -> None:
        """Show the help: there is no prompt."""
        self.run_subcommand(['help'])

    def run_subcommand(self, argv: list[str]) -> int:
        try:
            self.command_manager.find_command(argv)
        except ValueError:
            words = itertools.takewhile(
                lambda word: not word.startswith('-'), argv)
            if argv[0].startswith('-'):
                self.warn(f'there is no option {argv[0]!r} that may stand '
                          'before a command')
                return 1
            near = self.get_fuzzy_matches(argv[0])
            if self.options.help:
                return super().run_subcommand(['help', argv[0]])
            self.warn(f'there is no command {" ".join(words)!r}; near it are: '
                      f'{", ".join(near)}')
            return 1
        result = super().run_subcommand(argv)
        return self._failure_code or result

    def clean_up(
        self, cmd: command.Command, result: int, err: BaseException | None
    ) -> None:
        if isinstance(err, Exception) and not isinstance(err, BrokenPipeError):
            self.report(err)
            self._failure_code = getattr(cmd, 'failure_code', None)
        try:
            for name in ('planner_parts', 'conductor_parts', 'parts'):
                if name in self.__dict__:
                    getattr(self, name).close()
        except Exception as exc:
            # It came too late to change what was done, and how it ended.
            self.report(exc)

    @contextlib.contextmanager
    def _logging(self) -> Iterator[None]:
        """Have a handler, for without one logging shows warnings."""
        self._handler = logging.StreamHandler(self.stderr)
        self._handler.setLevel(logging.CRITICAL + 1)
        self._handler.setFormatter(_Formatter(
            '%(asctime)s %(levelname)s %(name)s %(message)s'))
        root = logging.getLogger()
        level = root.level
        root.addHandler(self._handler)
        try:
            yield
        finally:
            root.removeHandler(self._handler)
            root.setLevel(level)


class Shell(App):
    """Servers and flavors, across all cells.

    Works on the databases and the broker that the configuration names, as an
    administrator: it shows the servers of all projects.
    """

    NAME = 'cellsched'
    namespace = 'cellsched.cli'

    @functools.cached_property
    def deployment(self) -> 'ReadDeployment':
        """The deployment that commands read which change nothing."""
        from cellsched.cli import deployment

        return deployment.OwnDeployment(self)

    def build_option_parser(
        self, description: str | None, version: str | None,
        argparse_kwargs: dict[str, Any] | None = None,
    ) -> argparse.ArgumentParser:
        parser = super().build_option_parser(
            description, version, argparse_kwargs)
        for name, what in (('project', 'that new servers belong to'),
                           ('user', 'who creates them')):
            variable = f'OS_{name.upper()}_ID'
            parser.add_argument(
                f'--os-{name}-id', metavar='ID',
                default=os.environ.get(variable) or 'admin',
                help=f'the {name} {what} ({variable}; by default admin)')
        return parser

    def context(self) -> 'RequestContext':
        """Return who asks: an administrator, in a project.

        :raises cellsched.exception.InvalidField: no id that can be kept
        """
        from cellsched.api import validation
        from cellsched.context import RequestContext

        options = self.options
        validation.check_text(
            'options', '--os-project-id', options.os_project_id)
        validation.check_text('options', '--os-user-id', options.os_user_id)
        return RequestContext(
            project_id=options.os_project_id, user_id=options.os_user_id,
            is_admin=True)


class Manage(App):
    """Databases and cells, for operators.

    Arguments, meaning and exit codes are those of Nova's command of this
    kind.
    """

    NAME = 'cellsched-manage'
    namespace = 'cellsched.manage'
    verbose = ('-v',)


class Application(Protocol):
    """An application, as a process runs it."""

    def run(self, argv: Sequence[str]) -> int:
        """Run a command; return the exit code."""


def main(application: Callable[[], Application]) -> NoReturn:
    """Run an application as this process, and end it."""
    for name in ('stdout', 'stderr'):
        # Python has none where it was closed.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, 'w', encoding='utf-8'))
    # What a terminal cannot show is no reason to show nothing.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors='backslashreplace')
    try:
        code = application().run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        code = _BROKEN_PIPE
    with contextlib.suppress(BrokenPipeError):
        sys.stderr.flush()
    # Nothing is left to be done. Python would wait for threads, and those of
    # cells that do not answer are not worth it.
    os._exit(code)


class _Formatter(logging.Formatter):

    def format(self, record: logging.LogRecord) -> str:
        return _without_secrets(super().format(record))


def _without_secrets(text: str) -> str:
    return _URL.sub(lambda match: urls.mask(match[0]), text)
