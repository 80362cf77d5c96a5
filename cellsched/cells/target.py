# SPDX-License-Identifier: Apache-2.0
"""Access to cells: their databases and transports.

The URL of a cell may be a template. A field such as ``{password}`` stands for
that part of the URL of the same kind in the configuration of the process. So
hosts may reach a cell by different addresses, and mappings need no password.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import functools
import re
from typing import Any
from urllib import parse

from cellsched.context import CellTarget
from cellsched.context import RequestContext
from cellsched.db import session
from cellsched import exception
from cellsched import objects
from cellsched.rpc import transport


#: A template field; a number selects one of several hosts.
_FIELD = re.compile(r'\{((?:username|password|hostname|port)(?:[1-9]\d*)?'
                    r'|scheme|path|query|fragment)\}')

#: A host with an optional port.
_PLACE = re.compile(r'(?P<hostname>\[[^\]]*\]|[^:]*)(?::(?P<port>.*))?')


def fill(url: str, own: Callable[[], str], option: str) -> str:
    """Return a URL with its template fields replaced.

    Parts are copied unchanged, including percent-encoding. Other text in
    braces stays.

    :param own: returns the URL that provides the parts; called if there is a
        field
    :param option: the option of that URL
    :raises cellsched.exception.ConfigurationInvalid: it lacks such a part
    """
    fields = _FIELD.findall(url)
    if not fields:
        return url
    parts = _parts(own())
    missing = sorted({field for field in fields if parts.get(field) is None})
    if missing:
        raise exception.ConfigurationInvalid(
            field=option,
            problem=f'the URL has no {missing[0]}, which the template URL of '
                    'a cell uses',
            expected=f'a URL with a {missing[0]}')
    return _FIELD.sub(lambda match: parts[match[1]] or '', url)


def check(url: str, field: str) -> None:
    """Check that all braces of a URL belong to template fields.

    :raises cellsched.exception.InvalidField: some do not
    """
    if re.search('[{}]', _FIELD.sub('', url)):
        raise exception.InvalidField(
            where='cell', field=field,
            problem='braces that are not part of a template field',
            expected='template fields {scheme}, {username}, {password}, '
                     '{hostname}, {port}, {path}, {query} or {fragment}, with '
                     'a number for one of several hosts; write other braces '
                     'as %7B and %7D')


def _parts(url: str) -> dict[str, str | None]:
    """Return the parts of a URL by field; None for missing parts.

    The path has no first slash. So the path of an absolute SQLite file begins
    with a slash.
    """
    split = parse.urlsplit(url)
    parts: dict[str, str | None] = {
        'scheme': split.scheme, 'path': split.path.removeprefix('/'),
        'query': split.query, 'fragment': split.fragment}
    for number, host in enumerate(split.netloc.split(','), start=1):
        credentials, at, place = host.rpartition('@')
        username, colon, password = credentials.partition(':')
        found = _PLACE.fullmatch(place)
        of_host = {'username': username if at else None,
                   'password': password if colon else None,
                   'hostname': found and found['hostname'] or None,
                   'port': found and found['port'] or None}
        for name, value in of_host.items():
            parts[f'{name}{number}'] = value
            if number == 1:
                parts[name] = value
    return parts


#: Fields of a mapping that define the connections to its cell, and its name.
_MADE_OF = ('uuid', 'name', 'database_connection', 'transport_url')

_DATABASE_OPTION = '[database] connection'


class Targets:
    """Opens the database and the transport of each cell once.

    :param options: arguments for the engines of the cells' databases
    :param own_database: ``[database] connection``, the source of template
        fields in database URLs
    """

    def __init__(
        self, databases: session.Databases, transports: transport.Transports,
        options: Mapping[str, Any] | None = None,
        own_database: str | None = None,
    ) -> None:
        self._databases = databases
        self._transports = transports
        self._options = options
        self._own_database = own_database
        #: Targets by the fields that they are made of.
        self._made: dict[tuple[Any, ...], CellTarget] = {}

    def target_cell(
        self, context: RequestContext, cell: objects.CellMapping
    ) -> RequestContext:
        """Return a new context for the cell.

        The transport of the cell is opened on first use.

        :raises cellsched.exception.ConfigurationInvalid: a URL of the mapping
            cannot be opened
        """
        made_of = cell.values_of(_MADE_OF)
        key = tuple(made_of.values())
        target = self._made.get(key)
        if target is None:
            target = self._made[key] = CellTarget(
                uuid=cell.uuid, name=cell.identity,
                database=self.database(cell),
                open_transport=self._transport_opener(cell))
        return context.for_cell(target)

    def database(self, cell: objects.CellMapping) -> session.Database:
        """Return the cell's database.

        :raises cellsched.exception.ConfigurationInvalid: its URL cannot be
            opened
        """
        return self._databases.get(
            self.database_url(cell), 'cell', self._options)

    @contextlib.contextmanager
    def connected_once(
        self, cell: objects.CellMapping
    ) -> Iterator[session.Database]:
        """Yield the cell's database with a connection of its own.

        The connection is made in one attempt, and closed at the end.

        :raises cellsched.exception.ConfigurationInvalid: as :meth:`database`
        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """
        opened = self.database(cell).alone({'max_retries': 1})
        try:
            yield opened
        finally:
            opened.close()

    def database_url(self, cell: objects.CellMapping) -> str:
        """Return the URL of the cell's database with its fields replaced.

        :raises cellsched.exception.ConfigurationInvalid: the URL is a
            template, and the configuration has no URL with such parts
        """
        return fill(
            cell.database_connection, self._configured_database,
            _DATABASE_OPTION)

    def transport(self, cell: objects.CellMapping) -> Any:
        """Return the cell's transport; None for cell0, which has none.

        :raises cellsched.exception.ConfigurationInvalid: its URL cannot be
            opened
        """
        return self._transport_opener(cell)()

    def _transport_opener(
        self, cell: objects.CellMapping
    ) -> Callable[[], Any]:
        """Check the cell's transport URL; return a function that opens it."""
        if not cell.transport_url:
            # An empty URL would select this process's own transport, and
            # messages to this cell would go there.
            raise exception.ConfigurationInvalid(
                field=f'transport_url of cell {cell.identity}',
                problem='it is not set',
                expected='the URL of a message transport')
        scheme = cell.transport_url.partition(':')[0].lower()
        if scheme == transport.NO_TRANSPORT:
            return lambda: None
        url = self._transport_url(cell)
        self._transports.check_url(url, 'transport_url')
        return functools.partial(self._transports.get, url)

    def broker_places(
        self, cell: objects.CellMapping
    ) -> frozenset[tuple[str, int, str]]:
        """Return the virtual hosts of brokers in a cell's URL.

        :raises cellsched.exception.ConfigurationInvalid: as :meth:`transport`
        """
        if self.transport(cell) is None:
            return frozenset()
        return self._transports.places(self._transport_url(cell))

    def check_broker(self, cell: objects.CellMapping) -> None:
        """Check that the broker of a cell answers and accepts the client.

        :raises cellsched.exception.BrokerUnreachable: it does not answer
        :raises cellsched.exception.BrokerRefused: it refuses the client
        """
        self._transports.check_reachable(
            self._transport_url(cell), 'transport_url')

    def _transport_url(self, cell: objects.CellMapping) -> str:
        return fill(
            cell.transport_url, self._transports.own_url,
            '[DEFAULT] transport_url')

    def _configured_database(self) -> str:
        if not self._own_database:
            raise exception.ConfigurationInvalid(
                field=_DATABASE_OPTION,
                problem='it is not set, and the template URL of a cell uses '
                        'parts of it', expected='a SQLAlchemy URL')
        return self._own_database
