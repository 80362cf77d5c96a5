# SPDX-License-Identifier: Apache-2.0
"""The applications ``cellsched`` and ``cellsched-manage``.

Options of the application are accepted before and after the command. An error
is one line on standard error, and the exit code is 1 unless the command has
another one for it. That includes errors in the arguments.
"""

import argparse
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import copy
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
from cliff import commandmanager

from cellsched.cli.completion import Complete
from cellsched.clock import Clock
from cellsched import exception
from cellsched import plugins
from cellsched import urls

if TYPE_CHECKING:
    from oslo_config import cfg

    from cellsched.cli.backend import Backend
    from cellsched.cli.deployment import ReadDeployment
    from cellsched.context import RequestContext
    from cellsched.wiring.api import API
    from cellsched.wiring.components import Components

#: The exit codes that a shell reports for a process whose reader has gone, and
#: for one that a user interrupts.
_BROKEN_PIPE = 141
INTERRUPTED = 130

#: A URL and the rest of the text: the end of a password cannot be found.
_URL = re.compile(r'\w[\w.+-]*://.*')


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Have a parser show docstrings as plain text, and raise its errors."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    marked_up = parser.format_help

    def format_help() -> str:
        return marked_up().replace('::\n', ':\n').replace('``', '')

    def error(message: str) -> NoReturn:
        raise exception.Invalid(f'{message.removeprefix("argument ")}; see '
                                f'{parser.prog} --help')

    parser.format_help = format_help  # type: ignore[method-assign]
    parser.error = error  # type: ignore[method-assign]


class _Entry(commandmanager.EntryPointWrapper):
    """The entry point of a command; an error in it is one line."""

    def __init__(self, point: metadata.EntryPoint) -> None:
        self.name = point.name.replace('.', ' ')
        self._point = point

    def load(self) -> type[command.Command]:
        point = self._point
        field = f'{point.group} {point.name}'
        found = plugins.attempt(
            field, 'a command that can be imported', point.load)
        if not (isinstance(found, type)
                and issubclass(found, command.Command)):
            raise exception.ConfigurationInvalid(
                field=field, problem='it has the wrong type',
                expected='a subclass of cliff.command.Command')
        plugins.check_complete(field, found)
        return found

    @property
    def value(self) -> str:
        return self._point.value

    def __repr__(self) -> str:
        return f'{self.name} ({self.value})'


class Commands(commandmanager.CommandManager):
    """The commands of a namespace, found by entry point.

    No command is imported before it is used. A command of another
    distribution does not replace one of this project. A broken command does
    not affect the other commands.
    """

    def load_commands(self, namespace: str) -> None:
        self.group_list.append(namespace)
        for point in (*plugins.entry_points(namespace),
                      *plugins.shipped(namespace)):
            entry = _Entry(point)
            self.commands[entry.name] = entry


def epilog(package: metadata.PackageMetadata) -> str | None:
    """Return the end of the help of a command, with the documentation's URL.

    :param package: the metadata of the package, which may name no URL
    """
    return next((each.replace(', ', ': ') for each in package.get_all(
        'Project-URL', ()) if each.startswith('Documentation, ')), None)


class App(app.App):
    """An application; its backend is created on first use."""

    #: The namespace of the entry points of the commands.
    namespace: ClassVar[str]

    #: The names of the option that shows warnings.
    verbose: ClassVar[tuple[str, ...]] = ('-v', '--verbose')

    #: The exit code after an error in a command.
    _failure_code: int | None = None

    #: Kinds of plug-ins that the command uses.
    _kinds: Collection[str] = ()

    #: Whether the command sends messages.
    _sends = True

    # cliff logs errors here; :meth:`report` shows them instead.
    LOG = logging.getLogger(f'{__name__}.unheard')
    LOG.disabled = True

    def __init__(
        self, stdout: TextIO | None = None, stderr: TextIO | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or Clock()
        # To parse it takes long.
        self._package = metadata.metadata('cellsched')
        super().__init__(
            inspect.getdoc(self), self._package['Version'],
            Commands(self.namespace), stdout=stdout, stderr=stderr)
        self.command_manager.add_command('complete', Complete)

    @functools.cached_property
    def backend(self) -> 'Backend':
        """The deployment that the configuration names; not yet connected."""
        # To import the libraries takes longer than to show a help.
        from cellsched.cli import backend

        return backend.Backend(
            self.config_options, self._kinds, self._sends, self.clock,
            self.stderr)

    @property
    def conf(self) -> 'cfg.ConfigOpts':
        """The configuration.

        :raises cellsched.exception.ConfigurationInvalid: names the file and
            the option
        """
        return self.backend.conf

    @property
    def config_options(self) -> list[str]:
        """The options that name the configuration files."""
        return [
            *(f'--config-file={path}' for path in self.options.config_file),
            *(f'--config-dir={path}' for path in self.options.config_dir)]

    @property
    def parts(self) -> 'Components':
        """Databases, transports and the components on top of them."""
        return self.backend.parts

    @property
    def api(self) -> 'API':
        """The API that a front end calls."""
        return self.backend.api

    @property
    def sending_api(self) -> 'API':
        """The API, for commands that send messages to conductors.

        :raises cellsched.exception.BrokerRefused: the broker refuses the
            connection
        """
        self.backend.parts.transports.check()
        return self.backend.api

    def say(self, line: str) -> None:
        """Print a line on standard output."""
        print(line, file=self.stdout)

    def warn(self, text: str) -> None:
        """Print a problem in one line, on standard error."""
        line = ''.join(
            each if each.isprintable() else '?'
            for each in ' '.join(_without_secrets(text).split()))
        print(f'{self.NAME}: {line}', file=self.stderr)

    def report(self, exc: BaseException) -> None:
        """Print an error, and with ``--debug`` its traceback."""
        if self.options.debug:
            self.stderr.write(_without_secrets(
                ''.join(traceback.format_exception(exc))))
        if isinstance(exc, exception.PluginFailed) and exc.__cause__:
            self.warn(f'{exc.format_message()} (--debug shows why)')
        elif isinstance(exc, exception.CellschedException):
            text = exc.format_message()
            hint = self._similar(exc)
            self.warn(text.rstrip('.') + hint if hint else text)
        else:
            self.warn(f'internal error ({type(exc).__name__}); --debug shows '
                      'the traceback')

    def _similar(self, exc: exception.CellschedException) -> str:
        """Return a question with a name like one that does not exist."""
        if not isinstance(exc, (
                exception.CellMappingNotFound, exception.FlavorNotFound,
                exception.HostMappingNotFound, exception.ServiceNotFound)):
            return ''
        try:
            return self.backend.similar(exc)
        except exception.CellschedException:
            # The first error says enough.
            return ''

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
            epilog=epilog(self._package), allow_abbrev=False)
        prepare_parser(parser)
        parser.add_argument(
            '-h', '--help', action='store_true',
            help='show this help, or the help of the command, and exit')
        parser.add_argument(
            '--version', action='version', version=f'{self.NAME} {version}',
            help='show the version and exit')
        parser.add_argument(
            '--config-file', action='append', default=[], metavar='FILE',
            help='a configuration file; may be repeated, and a later file '
                 'overrides an earlier one. By default the files in the '
                 'environment variable CELLSCHED_CONFIG, or else '
                 '~/.cellsched/cellsched.conf, ~/cellsched.conf, '
                 '/etc/cellsched/cellsched.conf or /etc/cellsched.conf')
        parser.add_argument(
            '--config-dir', action='append', default=[], metavar='DIR',
            help='a directory with *.conf files, which override the '
                 'configuration files; may be repeated')
        parser.add_argument(
            *self.verbose, action='store_true', dest='verbose',
            help='show log messages of level WARNING and above')
        parser.add_argument(
            '--debug', action='store_true',
            help='show all log messages, and the tracebacks of errors')
        return parser

    def configure_logging(self) -> None:
        """Set the level of the handler that :meth:`run` has added."""
        if self.options.debug:
            logging.getLogger().setLevel(logging.DEBUG)
            self._handler.setLevel(logging.DEBUG)
        elif self.options.verbose:
            self._handler.setLevel(logging.WARNING)

    def prepare_to_run_command(self, cmd: command.Command) -> None:
        self._kinds = getattr(cmd, 'kinds', ())
        if getattr(cmd, 'warns', False) and not self.options.debug:
            self._handler.setLevel(logging.WARNING)
        # A command of another distribution may lack the attribute.
        self._sends = getattr(cmd, 'sends', True)

    def initialize_app(self, argv: list[str]) -> None:
        if self.options.help:
            # Each command shows its own help.
            if not argv:
                raise SystemExit(self.run_subcommand(['help']))
            argv.append('--help')

    def interact(self) -> None:
        """Show the help; there is no interactive mode."""
        self.run_subcommand(['help'])

    def run_subcommand(self, argv: list[str]) -> int:
        try:
            self.command_manager.find_command(argv)
        except ValueError:
            words = itertools.takewhile(
                lambda word: not word.startswith('-'), argv)
            if argv[0].startswith('-'):
                self.warn(f'{argv[0]!a:.60}: unknown option before the '
                          f'command; see {self.NAME} --help')
                return 1
            near = self.get_fuzzy_matches(argv[0])
            if self.options.help and any(
                    name.split()[0] == argv[0] for name in near):
                return super().run_subcommand(['help', argv[0]])
            self.warn(f'{" ".join(words)!a:.120}: unknown command; did you '
                      f'mean one of: {", ".join(near)}?')
            return 1
        result = super().run_subcommand(argv)
        return self._failure_code or result

    def clean_up(
        self, cmd: command.Command, result: int, err: BaseException | None
    ) -> None:
        if isinstance(err, Exception) and not isinstance(err, BrokenPipeError):
            self.report(err)
            # A command of another distribution may lack the method.
            code_after = getattr(cmd, 'exit_code_after', None)
            self._failure_code = code_after and code_after(err)
        try:
            if 'backend' in self.__dict__:
                self.backend.close()
        except Exception as exc:
            # The command is complete, and its exit code is known.
            self.report(exc)

    @contextlib.contextmanager
    def _logging(self) -> Iterator[None]:
        """Add a handler; without one, logging prints warnings itself."""
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
    """Servers, flavors and hosts, across all cells.

    Works on the databases and the broker that the configuration names, as an
    administrator: the commands show the servers of all projects.
    """

    NAME = 'cellsched'
    namespace = 'cellsched.cli'

    @property
    def deployment(self) -> 'ReadDeployment':
        """The deployment of the commands that only read."""
        return self.backend

    def build_option_parser(
        self, description: str | None, version: str | None,
        argparse_kwargs: dict[str, Any] | None = None,
    ) -> argparse.ArgumentParser:
        parser = super().build_option_parser(
            description, version, argparse_kwargs)
        for name, what in (('project', 'the project of new servers'),
                           ('user', 'the user that new servers belong to')):
            variable = f'OS_{name.upper()}_ID'
            parser.add_argument(
                f'--os-{name}-id', metavar='ID',
                default=os.environ.get(variable) or 'admin',
                help=f'{what}; by default the environment variable '
                     f'{variable}, or else admin')
        return parser

    def servers(self, names: Sequence[str]) -> list[str]:
        """Return the uuids of servers by uuid, beginning of it, or name.

        :raises cellsched.exception.CellschedException: one is unknown, or
            means several servers
        """
        context = self.context()
        return list(dict.fromkeys(
            self.api.servers.find(context, name) for name in names))

    def context(self) -> 'RequestContext':
        """Return the context of an administrator in the given project.

        :raises cellsched.exception.InvalidField: an id is invalid
        """
        return self.backend.context(
            self.options.os_project_id, self.options.os_user_id)


class Manage(App):
    """Databases and cells, for operators.

    Names, arguments and exit codes are as in ``nova-manage``.
    """

    NAME = 'cellsched-manage'
    namespace = 'cellsched.manage'
    verbose = ('-v',)


class Application(Protocol):
    """An application that a process runs."""

    def run(self, argv: Sequence[str]) -> int:
        """Run a command; return the exit code."""


def main(application: Callable[[], Application]) -> NoReturn:
    """Run an application as this process, and end it."""
    for name in ('stdout', 'stderr'):
        # Python sets a stream to None if it was closed before the start.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, 'w', encoding='utf-8'))
    # Characters that the terminal cannot show are escaped.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors='backslashreplace')
    try:
        code = application().run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        code = _BROKEN_PIPE
    except KeyboardInterrupt:
        code = INTERRUPTED
    with contextlib.suppress(BrokenPipeError):
        sys.stderr.flush()
    # Python would wait for the threads, of which some may wait for a cell
    # that does not answer.
    os._exit(code)


class _Formatter(logging.Formatter):
    """Shows the server of a line as services do, and no passwords."""

    def format(self, record: logging.LogRecord) -> str:
        return _without_secrets(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        uuid = getattr(record, 'instance_uuid', None)
        if uuid:
            record = copy.copy(record)
            record.message = f'[instance: {uuid}] {record.message}'
        return super().formatMessage(record)


def _without_secrets(text: str) -> str:
    return _URL.sub(lambda match: urls.mask(match[0]), text)
