# SPDX-License-Identifier: Apache-2.0
"""Commands by their names, of this package and of others."""

from importlib import metadata

from cliff import command
from cliff import commandmanager

from cellsched import exception
from cellsched import plugins


class _Entry(commandmanager.EntryPointWrapper):
    """A command's entry point, whose failure to load is one line."""

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
                field=field, expected='a subclass of cliff.command.Command')
        plugins.check_complete(field, found)
        return found

    @property
    def value(self) -> str:
        return self._point.value

    def __repr__(self) -> str:
        return f'{self.name} ({self.value})'


class Commands(commandmanager.CommandManager):
    """Finds commands by entry point; none is imported before it is needed.

    Those of other packages do not replace those that are shipped, and one
    that is broken ends no other.
    """

    def load_commands(self, namespace: str) -> None:
        self.group_list.append(namespace)
        for point in (*plugins.entry_points(namespace),
                      *plugins.shipped(namespace)):
            entry = _Entry(point)
            self.commands[entry.name] = entry
