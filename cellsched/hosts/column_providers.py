# SPDX-License-Identifier: Apache-2.0
"""Columns that plug-ins add to the host table."""

import logging
from typing import Any

from cellsched import exception
from cellsched.hosts import column_sources
from cellsched.hosts import columns
from cellsched import plugins

LOG = logging.getLogger(__name__)


def load() -> list[columns.Column]:
    """Return the columns of every plug-in that is installed.

    No option enables them, so a plug-in that is broken stops nobody: it is
    named in the log and left out. What reads a column of it fails, and says
    that there is no such column.
    """
    usable, broken = plugins.load_installed(plugins.COLUMNS, _load)
    for problem in broken.values():
        LOG.error('Columns are left out: %s', problem)
    return [column for more in usable.values() for column in more]


def _load(name: str) -> list[columns.Column]:
    said = plugins.load(plugins.COLUMNS, name)
    return check(plugins.field_of(plugins.COLUMNS, name), said)


def check(field: str, said: Any) -> list[columns.Column]:
    """Return the columns that a plug-in says.

    :param field: what an error calls the plug-in
    :raises cellsched.exception.ConfigurationInvalid: they cannot be used
    """
    found = plugins.attempt(field, 'columns in a sequence', lambda: [*said])
    standard = {column.name: column for column in (
        *columns.STANDARD, *columns.CELL_FACTS)}
    for column in found:
        if not isinstance(column, columns.Column):
            raise exception.ConfigurationInvalid(
                field=field, expected='columns, each a '
                'cellsched.hosts.columns.Column')
        if standard.get(column.name, column) != column:
            raise exception.ConfigurationInvalid(
                field=field, expected='columns with names of their own; '
                f'{column.name} is one of every table')
        column_sources.check(field, column)
    return found
