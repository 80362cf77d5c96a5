# SPDX-License-Identifier: Apache-2.0
"""Aiming a context at a cell."""

from collections.abc import Mapping
from typing import Any

from cellsched import context as context_
from cellsched.db import session
from cellsched import exception
from cellsched import objects
from cellsched.rpc import transport


class Targets:
    """Opens the ways into cells, each once.

    :param options: arguments for the engines of the cells' databases
    """

    def __init__(
        self, databases: session.Databases, transports: transport.Transports,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._databases = databases
        self._transports = transports
        self._options = options

    def aim(
        self, context: context_.RequestContext, cell: objects.CellMapping
    ) -> context_.RequestContext:
        """Return a new context that is aimed at the cell.

        :raises cellsched.exception.ConfigurationInvalid: a URL of the mapping
            is none that can be opened
        """
        return context.aimed_at(context_.CellTarget(
            uuid=cell.uuid, name=cell.identity,
            database=self.database(cell), transport=self._transport(cell)))

    def database(self, cell: objects.CellMapping) -> session.Database:
        """Return the cell's database."""
        return self._databases.get(
            cell.database_connection, 'cell', self._options)

    def _transport(self, cell: objects.CellMapping) -> Any:
        if not cell.transport_url:
            # What is not given elsewhere means this process's own transport,
            # and what is sent to this cell would end there.
            raise exception.ConfigurationInvalid(
                field=f'transport_url of cell {cell.identity}',
                expected='the URL of its message transport; it is not set')
        scheme = cell.transport_url.partition(':')[0].lower()
        if scheme == transport.NO_TRANSPORT:
            return None
        return self._transports.get(cell.transport_url)
