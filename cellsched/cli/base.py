# SPDX-License-Identifier: Apache-2.0
"""Base classes of commands."""

import argparse
from collections.abc import Collection
from collections.abc import Iterable
import datetime
from typing import ClassVar
from typing import NoReturn
from typing import TYPE_CHECKING

from cliff import command
from cliff import lister
from cliff import show

from cellsched import exception
from cellsched import plugins

if TYPE_CHECKING:
    from cellsched.cli.app import App

_EPILOG = ('Options of every command, such as --config-file, are shown by '
           '{name} --help.')


def show_docstrings(parser: argparse.ArgumentParser) -> None:
    """Have a parser's help show docstrings as they are, less their markup."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    marked_up = parser.format_help

    def format_help() -> str:
        return marked_up().replace('::\n', ':\n').replace('``', '')

    parser.format_help = format_help  # type: ignore[method-assign]


def refuse(parser: argparse.ArgumentParser) -> None:
    """Make a parser raise what it would print and exit with."""
    def error(message: str) -> NoReturn:
        raise exception.Invalid(f'{message}; see {parser.prog} --help')

    parser.error = error  # type: ignore[method-assign]


#: Kinds of plug-ins that who creates, moves or deletes servers uses.
SERVERS = (plugins.CLAIMS, plugins.QUOTA)

#: Kinds of plug-ins that who decides uses.
DECISIONS = (plugins.CLAIMS, plugins.DRIVERS, plugins.FILTERS,
             plugins.NETWORKS, plugins.WEIGHERS)


class Command(command.Command):
    """A command.

    Its docstring is its help. What it raises is reported by the application,
    and ends the process with :attr:`failure_code`.
    """

    app: 'App'

    #: Kinds of plug-ins that it uses. Before it does anything it imports
    #: them, and refuses options of theirs that make no sense.
    kinds: ClassVar[Collection[str]] = ()

    #: Whether it sends messages, or has the broker checked. Before it does
    #: anything, options that concern them are looked at.
    sends: ClassVar[bool] = False

    #: What the process ends with when something was raised.
    failure_code = 1

    def get_epilog(self) -> str:
        parts = [super().get_epilog() if self._is_extended() else '']
        # The generated documentation has no application.
        if self.app is not None:
            parts.append(_EPILOG.format(name=self.app.NAME))
        return '\n\n'.join(filter(None, parts))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        show_docstrings(parser)
        refuse(parser)
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        # CPython takes memory for the frames of functions in pieces, and
        # where a loop calls across the end of one, it takes it anew and gives
        # it back each time. Libraries compile hundreds of regular expressions
        # when they are imported; from deep inside that took twice as long as
        # all else.
        from cellsched.conf import loader  # noqa: F401
        from cellsched import objects  # noqa: F401

        return super().run(parsed_args)

    def _is_extended(self) -> bool:
        """Return whether cliff has something to say of who wrote this.

        It looks for that in the metadata of all that is installed, which
        takes longer than many a command.
        """
        if self.app is None or _package(self) != _package(self.app):
            return True
        name = (self.cmd_name or '').replace(' ', '_')
        return bool(plugins.names(
            f'{self.app.command_manager.namespace}.{name}'))


class _Columns(Command):
    """A command whose columns are known before it does anything."""

    columns: ClassVar[tuple[str, ...]]

    #: What the process ends with when nothing was raised.
    exit_code = 0

    def run(self, parsed_args: argparse.Namespace) -> int:
        self._check_columns(parsed_args.columns)
        return super().run(parsed_args) or self.exit_code

    def _check_columns(self, wanted: Iterable[str]) -> None:
        known = {_normalized(name) for name in self.columns}
        for name in wanted:
            if _normalized(name) not in known:
                raise exception.InvalidField(
                    where='output', field='--column',
                    expected=f'one of {", ".join(self.columns)}, not {name}')


class Lister(_Columns, lister.Lister):
    """A command that returns :attr:`columns` and rows."""


class ShowOne(_Columns, show.ShowOne):
    """A command that returns :attr:`columns` and their values."""


def shown(time: datetime.datetime | None) -> str | None:
    """Return a time, which is in UTC, as it is shown."""
    return f'{time:%Y-%m-%dT%H:%M:%SZ}' if time else None


def _package(thing: object) -> str:
    return type(thing).__module__.partition('.')[0]


def _normalized(name: str) -> str:
    return name.lower().strip().replace(' ', '_')
