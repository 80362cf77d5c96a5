# SPDX-License-Identifier: Apache-2.0
"""Base classes of commands, and commands declared by a function.

A command is declared by its arguments, its columns and a function, with the
help as docstring::

    @base.show(argument('flavor', metavar='FLAVOR', help='id or name'),
               columns=COLUMNS)
    def show_flavor(app: Shell, args: Namespace) -> Flavor:
        '''Show a flavor. …'''
        return app.api.flavors.get(app.context(), args.flavor)

Each decorator makes a class of cliff's out of the function: :func:`lister` a
command that lists things, :func:`show` one that shows a thing,
:func:`change_each` one that changes several things one after the other. A
command that needs more is a subclass of :class:`Lister`, :class:`ShowOne`,
:class:`ReportCommand` or :class:`Command` with :attr:`Command.arguments`.
"""

import argparse
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import csv
import dataclasses
import datetime
import importlib.util
import json
import operator
import os
import pathlib
import shutil
import tempfile
from typing import Any
from typing import cast
from typing import ClassVar
from typing import TextIO

from cliff import columns as cliff_columns
from cliff import command
from cliff import lister as cliff_lister
from cliff import show as cliff_show

from cellsched.cli.app import App
from cellsched.cli.app import prepare_parser
from cellsched import exception
from cellsched import plugins

_EPILOG = ('Options of every command, such as --config-file, are shown by '
           '{name} --help.')

#: Kinds of plug-ins that a command on servers uses.
SERVERS = (plugins.CLAIMS, plugins.QUOTA)

#: Kinds of plug-ins that a command that makes a decision uses.
DECISIONS = (plugins.CLAIMS, plugins.DRIVERS, plugins.FILTERS,
             plugins.NETWORKS, plugins.WEIGHERS)

#: Exit codes of commands on servers that wait.
TIMED_OUT = 1
IN_ERROR = 2

#: The longest timeout of commands that wait, a week.
TIMEOUT_MAX_S = 604800

#: Characters of a name or an id.
_TEXT_MAX = 255

#: Characters of a uuid, and of a short one in a table.
_UUID_LENGTH = 36
_SHORT_ID = 8

#: Digits of a number; to convert a very long one takes long.
_DIGITS_MAX = 20


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of a command, with the options of ``add_argument``."""

    names: tuple[str, ...]
    options: Mapping[str, Any]

    def add_to(self, parser: Any) -> None:
        parser.add_argument(*self.names, **self.options)


@dataclasses.dataclass(frozen=True)
class Exclusive:
    """Arguments of which a command line has at most one."""

    arguments: tuple[Argument, ...]
    required: bool

    def add_to(self, parser: Any) -> None:
        group = parser.add_mutually_exclusive_group(required=self.required)
        for each in self.arguments:
            each.add_to(group)


Arguments = Sequence[Argument | Exclusive]


def argument(*names: str, **options: Any) -> Argument:
    """Return an argument; as ``add_argument`` takes it."""
    return Argument(names, options)


def flag(name: str, help: str) -> Argument:
    """Return an option without a value."""
    return Argument((name,), {'action': 'store_true', 'help': help})


def several(name: str, metavar: str, help: str) -> Argument:
    """Return an option that may be repeated."""
    return Argument((name,), {
        'metavar': metavar, 'action': 'append', 'default': [],
        'help': f'{help}; may be repeated'})


def exclusive(*arguments: Argument, required: bool = False) -> Exclusive:
    """Return arguments of which a command line has at most one."""
    return Exclusive(arguments, required)


def whole(
    least: int | None = None, most: int | None = None
) -> Callable[[str], int]:
    """Return the type of an argument that is a whole number."""
    bounds = '' if least is None else f' from {least} to {most}'

    def number(text: str) -> int:
        digits = text.removeprefix('-')
        if not (digits.isascii() and digits.isdigit()):
            raise argparse.ArgumentTypeError(
                f'{text!a:.60} is not a number; expected a whole number'
                f'{bounds}')
        if len(digits) > _DIGITS_MAX or (
                least is not None and not least <= int(text) <= (most or 0)):
            raise argparse.ArgumentTypeError(
                f'{text:.60} is out of range; expected a whole number'
                f'{bounds}')
        return int(text)

    return number


def seconds(most: int) -> Callable[[str], float]:
    """Return the type of an argument that is a time in seconds."""
    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f'{text!a:.60} is not a number; expected a number from 0 to '
                f'{most}') from None
        # The comparison is false for NaN.
        if not 0 <= value <= most:
            raise argparse.ArgumentTypeError(
                f'{text:.60} is out of range; expected a number from 0 to '
                f'{most}')
        return value

    return number


def text(value: str) -> str:
    """Return an argument that is a name or an id.

    :raises argparse.ArgumentTypeError: it cannot be one
    """
    if (not 0 < len(value) <= _TEXT_MAX or not value.isprintable()
            or value.isspace()):
        raise argparse.ArgumentTypeError(
            f'{value!a:.60} is not a name or an id; expected 1 to '
            f'{_TEXT_MAX} printable characters')
    return value


def pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Return the keys and values of an option that is repeated.

    :raises cellsched.exception.InvalidField: a value is not KEY=VALUE, or a
        key is given twice
    """
    found: dict[str, str] = {}
    for each in texts:
        key, equals, value = each.partition('=')
        if not equals or not key:
            raise invalid(option, f'{each!a:.80} is not a key with a value',
                          'KEY=VALUE')
        if key in found:
            raise invalid(option, f'{key!a:.80} is given twice',
                          'each key once')
        found[key] = value
    return found


def invalid(
    option: str, problem: str, expected: str
) -> exception.InvalidField:
    """Return the error of an invalid value of an option."""
    return exception.InvalidField(
        f'{option}: {problem}; expected {expected}', where='options',
        field=option, problem=problem, expected=expected)


def require(user: str, package: str, extra: str) -> None:
    """Check that a package of an extra is installed.

    :param user: the option or the command that needs the package
    :raises cellsched.exception.InvalidField: the package is not installed
    """
    if importlib.util.find_spec(package) is None:
        raise invalid(user, f'{package} is not installed',
                      f'{package}, which cellsched[{extra}] installs')


def save(path: pathlib.Path, write: Callable[[TextIO], object]) -> None:
    """Write a file completely or not at all.

    A device or a pipe is written directly; a symbolic link is followed.

    :raises cellsched.exception.Invalid: the file cannot be written
    """
    try:
        if path.exists() and not path.is_file():
            with path.open('w', encoding='utf-8', errors='replace') as stream:
                write(stream)
            return
        path = path.resolve()
        with tempfile.NamedTemporaryFile(
                'w', encoding='utf-8', errors='replace', dir=path.parent,
                prefix=path.name, delete=False) as file:
            try:
                write(cast(TextIO, file))
                file.flush()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as exc:
        raise exception.Invalid(
            f'{path} cannot be written: {exc.strerror}') from None


class Refused(exception.Invalid):
    """A command line is refused, with an exit code of its own."""

    def __init__(self, exit_code: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Command(command.Command):
    """A command; its docstring is its help.

    The application reports an error of the command, and the process ends
    with :meth:`exit_code_after` it.
    """

    app: App

    #: The arguments, in the order in which the help shows them.
    arguments: ClassVar[Arguments] = ()

    #: Kinds of plug-ins that the command uses. The configuration is read with
    #: their options; an invalid option ends the command.
    kinds: ClassVar[Collection[str]] = ()

    #: Whether the command sends messages or checks the broker. The options of
    #: messaging are validated then.
    sends: ClassVar[bool] = False

    #: The exit code after an error, and those after errors of some classes.
    failure_code = 1
    failure_codes: ClassVar[Mapping[type[Exception], int]] = {}

    def exit_code_after(self, error: Exception) -> int:
        """Return the exit code of the command after an error."""
        if isinstance(error, Refused):
            return error.exit_code
        return next((code for kind, code in self.failure_codes.items()
                     if isinstance(error, kind)), self.failure_code)

    def get_epilog(self) -> str:
        parts = [super().get_epilog() if self._is_extended() else '']
        # The generated documentation has no application.
        if self.app is not None:
            parts.append(_EPILOG.format(name=self.app.NAME))
        return '\n\n'.join(filter(None, parts))

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        prepare_parser(parser)
        for each in self.arguments:
            each.add_to(parser)
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        # Libraries are imported here, and not in the functions that use them:
        # they compile hundreds of regular expressions, which takes twice as
        # long in a deep call stack. CPython allocates memory for stack frames
        # in chunks, and a loop that calls across the end of a chunk allocates
        # and frees one in each iteration.
        self.app.backend  # noqa: B018
        return super().run(parsed_args)

    def _is_extended(self) -> bool:
        """Return whether cliff adds to the help of the command.

        That is so for a command of another distribution, and for a command
        with hooks. To find out, cliff reads the metadata of every installed
        distribution, which takes longer than many commands.
        """
        if self.app is None or _package(self) != _package(self.app):
            return True
        name = (self.cmd_name or '').replace(' ', '_')
        return bool(plugins.names(
            f'{self.app.command_manager.namespace}.{name}'))


#: Columns and rows of a list; columns and values of one thing.
Rows = tuple[tuple[str, ...], list[tuple[Any, ...]]]
Row = tuple[tuple[str, ...], tuple[Any, ...]]


class _Columns(Command):
    """A command with columns that are known before it runs."""

    columns: ClassVar[Collection[str]]

    #: The exit code unless an error is raised.
    exit_code = 0

    def columns_of(self, args: argparse.Namespace) -> Collection[str]:
        """Return the columns that the command shows."""
        return self.columns

    def run(self, parsed_args: argparse.Namespace) -> int:
        known = self.columns_of(parsed_args)
        normalized = {_normalized(name) for name in known}
        for name in parsed_args.columns:
            if _normalized(name) not in normalized:
                raise exception.InvalidField(
                    where='output', field='--column',
                    problem=f'unknown column {name}',
                    expected=f'one of {", ".join(known)}')
        return super().run(parsed_args) or self.exit_code


class Lister(_Columns, cliff_lister.Lister):
    """A command that returns :attr:`columns` and rows.

    :cvar server_ids: columns with uuids of servers. A table that does not fit
        the terminal shows their first characters, which commands accept
    """

    server_ids: ClassVar[Collection[str]] = ()

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Any, data: Any
    ) -> int:
        """Print the rows; a table without rows is one line in words."""
        rows = list(data)
        if self.server_ids and parsed_args.formatter == 'table' and (
                parsed_args.max_width > 0 or parsed_args.fit_width
                or self.app.stdout.isatty()):
            rows = _fitted(column_names, rows, self.server_ids, parsed_args)
        if not rows and parsed_args.formatter == 'table':
            self.app.say('Nothing found.')
            return 0
        result: int = super().produce_output(parsed_args, column_names, rows)
        return result


class ShowOne(_Columns, cliff_show.ShowOne):
    """A command that returns :attr:`columns` and their values."""


class ReportCommand(Command):
    """A command that shows a document as text, JSON or YAML."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '-f', '--format', default='table',
            choices=('csv', 'json', 'table', 'value', 'yaml'),
            help='output format; by default table, a text')
        return parser

    def show(
        self, form: str, data: Any, lines: Iterable[str],
        rows: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Show the data as JSON or YAML, rows as CSV or values, or the lines.

        :param rows: the part of the data that is a table; by default all
        """
        if form in ('csv', 'value'):
            self._show_rows(
                form, rows if rows is not None
                else data if isinstance(data, list) else [data])
        elif form == 'json':
            self.app.say(json.dumps(data, indent=2))
        elif form == 'yaml':
            # To import it takes 20 ms, which a table does not need.
            import yaml

            self.app.say(yaml.safe_dump(data, sort_keys=False).rstrip())
        else:
            for line in lines:
                self.app.say(line)

    def _show_rows(
        self, form: str, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Show rows as a :class:`Lister` does; nested values are JSON."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        table = [[json.dumps(value) if isinstance(value, (dict, list))
                  else value for value in map(row.get, names)]
                 for row in rows]
        if form == 'value':
            for each in table:
                self.app.say(' '.join(map(str, each)))
            return
        writer = csv.writer(self.app.stdout, quoting=csv.QUOTE_NONNUMERIC,
                            lineterminator=os.linesep)
        if names:
            writer.writerow(names)
        writer.writerows(table)


class ChangeCommand(ReportCommand):
    """A command that changes several things, and reports each change."""

    def change(
        self, form: str, action: str, kind: str, names: Iterable[str],
        do: Callable[[str], Mapping[str, Any] | None],
    ) -> tuple[list[str], int]:
        """Change things one after the other; report each as it is done.

        An error with one thing is reported, and the next thing is changed.

        :param action: the past participle in the report: ``deleted``
        :param kind: the noun in the report: ``flavor``
        :param do: changes the thing of a name; returns more fields of the
            report
        :returns: the names of the changed things, and the exit code
        """
        changes, code = [], 0
        try:
            for name in dict.fromkeys(names):
                try:
                    more = do(name) or {}
                except exception.CellschedException as exc:
                    self.app.report(exc)
                    code = 1
                    continue
                changes.append(
                    {'action': action, 'kind': kind, 'name': name, **more})
                if form == 'table':
                    self.app.say(', '.join((
                        f'{action.capitalize()} {kind} {name}',
                        *(f'{key} {value}' for key, value in more.items()))))
        finally:
            # If an unexpected error ends the command, the report still has
            # the changes made before it.
            self.show(form, changes, ())
        return [each['name'] for each in changes], code


# A function of a declared command takes the application, whose class depends
# on the command, and the arguments.
_Function = Callable[..., Any]

#: Headings, each with the attribute that it shows, or a function of the item.
Columns = Mapping[str, str | Callable[[Any], Any]]


def lister(
    *arguments: Argument | Exclusive, columns: Columns,
    kinds: Collection[str] = (), server_ids: Collection[str] = (),
) -> Callable[[_Function], type[Lister]]:
    """Return a decorator that makes a command of a function.

    The function takes the application and the arguments, and returns the
    items to list.

    :param server_ids: see :class:`Lister`
    """
    def decorate(function: _Function) -> type[Lister]:
        def take_action(
            self: Lister, parsed_args: argparse.Namespace
        ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
            return tuple(columns), [
                values(columns, each)
                for each in function(self.app, parsed_args)]

        return _made(Lister, function, arguments=arguments,
                     columns=tuple(columns), kinds=kinds,
                     server_ids=server_ids, take_action=take_action)
    return decorate


def show(
    *arguments: Argument | Exclusive, columns: Columns,
    kinds: Collection[str] = (),
) -> Callable[[_Function], type[ShowOne]]:
    """Return a decorator that makes a command of a function.

    The function takes the application and the arguments, and returns the
    item to show.
    """
    def decorate(function: _Function) -> type[ShowOne]:
        def take_action(
            self: ShowOne, parsed_args: argparse.Namespace
        ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
            return tuple(columns), values(
                columns, function(self.app, parsed_args))

        return _made(ShowOne, function, arguments=arguments,
                     columns=tuple(columns), kinds=kinds,
                     take_action=take_action)
    return decorate


def change_each(
    action: str, kind: str, names: Argument, *arguments: Argument | Exclusive,
    kinds: Collection[str] = (),
) -> Callable[[_Function], type[ChangeCommand]]:
    """Return a decorator that makes a command of a function.

    The function takes the application, the arguments and a name, changes the
    thing of that name, and returns more fields of the report, or None.

    :param action: see :meth:`ChangeCommand.change`
    :param kind: see :meth:`ChangeCommand.change`
    :param names: the argument with the names
    """
    [dest] = names.names

    def decorate(function: _Function) -> type[ChangeCommand]:
        def take_action(
            self: ChangeCommand, parsed_args: argparse.Namespace
        ) -> int:
            given = getattr(parsed_args, dest)
            _, code = self.change(
                parsed_args.format, action, kind,
                given if isinstance(given, list) else [given],
                lambda name: function(self.app, parsed_args, name))
            return code

        return _made(
            ChangeCommand, function, arguments=(*arguments, names),
            kinds=kinds, take_action=take_action)
    return decorate


def _made(base: type, function: _Function, **members: Any) -> Any:
    """Return a subclass that has the name and the docstring of a function."""
    return type(function.__name__, (base,), {
        **members, '__doc__': function.__doc__,
        '__module__': function.__module__,
        '__qualname__': function.__qualname__})


def values(columns: Columns, item: Any) -> tuple[Any, ...]:
    """Return the values that the columns show of an item."""
    return tuple(
        operator.attrgetter(get)(item) if isinstance(get, str) else get(item)
        for get in columns.values())


class ShownValue(cliff_columns.FormattableColumn[Any]):
    """A value, which a table shows as a text.

    :param text: returns the text
    """

    def __init__(self, value: Any, text: Callable[[Any], str]) -> None:
        super().__init__(value)
        self._text = text

    def human_readable(self) -> str:
        return self._text(self.machine_readable())


def lines(values: Sequence[str]) -> ShownValue:
    """Return a list, of which a table shows one value on each line."""
    return ShownValue(values, '\n'.join)


def pairs_text(mapping: Mapping[str, Any]) -> str:
    """Return a mapping as KEY=VALUE in one line."""
    return ', '.join(
        f'{key}={value!r}' for key, value in sorted(mapping.items()))


def or_empty(name: str) -> Callable[[Any], Any]:
    """Return a column that shows an attribute, and nothing for None."""
    return lambda item: getattr(item, name) or ''


def time(name: str) -> Callable[[Any], str | None]:
    """Return a column that shows an attribute which is a time."""
    return lambda item: shown(getattr(item, name))


def shown(time: datetime.datetime | None) -> str | None:
    """Return a time, which is in UTC, as commands show it."""
    return f'{time:%Y-%m-%dT%H:%M:%SZ}' if time else None


def enabled_or_disabled(disabled: bool | None) -> str:
    """Return a status as commands show it; empty where it is unknown."""
    if disabled is None:
        return ''
    return 'disabled' if disabled else 'enabled'


def _fitted(
    names: Sequence[str], rows: list[Any], server_ids: Collection[str],
    args: argparse.Namespace,
) -> list[Any]:
    """Return rows with short ids of servers if the table is too wide.

    The formatter folds the other columns then.
    """
    # 1. Measure the selected columns, with a frame of 3 characters each.
    selected = {_normalized(name) for name in args.columns}
    width = 1 + sum(
        3 + max(map(_width, (name, *values)))
        for name, *values in zip(names, *rows)
        if not selected or _normalized(name) in selected)
    if width <= (args.max_width or shutil.get_terminal_size().columns):
        return rows
    # 2. Shorten the ids as far as they differ in this table.
    short: dict[int, int] = {}
    for place, name in enumerate(names):
        if name in server_ids:
            ids = {row[place] for row in rows if row[place]}
            short[place] = next(
                (length for length in range(_SHORT_ID, _UUID_LENGTH)
                 if len({each[:length] for each in ids}) == len(ids)),
                _UUID_LENGTH)
    return [tuple(value[:short[place]] if place in short and value else value
                  for place, value in enumerate(row)) for row in rows]


def _width(value: Any) -> int:
    if isinstance(value, cliff_columns.FormattableColumn):
        value = value.human_readable()
    return max(map(len, str(value).splitlines()), default=0)


def _package(thing: object) -> str:
    return type(thing).__module__.partition('.')[0]


def _normalized(name: str) -> str:
    return name.lower().strip().replace(' ', '_')
