# SPDX-License-Identifier: Apache-2.0
"""Aiming a context at a cell."""

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


#: What of a URL a field stands for; a number is that of one of its hosts.
_FIELD = re.compile(r'\{((?:username|password|hostname|port)(?:[1-9]\d*)?'
                    r'|scheme|path|query|fragment)\}')

#: A host, and maybe its port.
_PLACE = re.compile(r'(?P<hostname>\[[^\]]*\]|[^:]*)(?::(?P<port>.*))?')


def fill(url: str, own: Callable[[], str], option: str) -> str:
    """Return a URL with its fields replaced.

    Parts are taken as they stand, percent-encoded where they are. What is in
    braces and is no field stays.

    :param own: returns the URL that the parts are of, if there is a field
    :param option: where that URL comes from
    :raises cellsched.exception.ConfigurationInvalid: it has no such part
    """
    fields = _FIELD.findall(url)
    if not fields:
        return url
    parts = _parts(own())
    missing = sorted({field for field in fields if parts.get(field) is None})
    if missing:
        raise exception.ConfigurationInvalid(
            field=option,
            expected=f'a URL that has a {missing[0]}, as the URL of a cell '
                     'takes it from there')
    return _FIELD.sub(lambda match: parts[match[1]] or '', url)


def check(url: str, field: str) -> None:
    """Make sure that all braces of a URL are those of fields.

    :raises cellsched.exception.InvalidField: some are not
    """
    if re.search('[{}]', _FIELD.sub('', url)):
        raise exception.InvalidField(
            where='cell', field=field,
            expected='a URL whose only braces are those of {scheme}, '
                     '{username}, {password}, {hostname}, {port}, {path}, '
                     '{query} and {fragment}, with a number for one of '
                     'several hosts; others are written %7B and %7D')


def _parts(url: str) -> dict[str, str | None]:
    """Return the parts of a URL by field; None where it has none.

    Its path goes without the first slash, so that of an absolute SQLite file
    begins with one.
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


#: Fields of a mapping that say how its cell is reached, and what it is called.
_MADE_OF = ('uuid', 'name', 'database_connection', 'transport_url')

_DATABASE_OPTION = '[database] connection'


class Targets:
    """Opens the ways into cells, each once.

    :param options: arguments for the engines of the cells' databases
    :param own_database: ``[database] connection``, of which URLs of databases
        that are templates take their parts
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
        #: By what of a mapping they are made of.
        self._made: dict[tuple[Any, ...], CellTarget] = {}

    def aim(
        self, context: RequestContext, cell: objects.CellMapping
    ) -> RequestContext:
        """Return a new context that is aimed at the cell.

        Its transport is opened when it is first asked for.

        :raises cellsched.exception.ConfigurationInvalid: a URL of the mapping
            is none that can be opened
        """
        made_of = cell.values_of(_MADE_OF)
        key = tuple(made_of.values())
        target = self._made.get(key)
        if target is None:
            target = self._made[key] = CellTarget(
                uuid=cell.uuid, name=cell.identity,
                database=self.database(cell),
                open_transport=self._transport_opener(cell))
        return context.aimed_at(target)

    def database(self, cell: objects.CellMapping) -> session.Database:
        """Return the cell's database.

        :raises cellsched.exception.ConfigurationInvalid: its URL is none that
            can be opened
        """
        return self._databases.get(
            self.database_url(cell), 'cell', self._options)

    @contextlib.contextmanager
    def connected_once(
        self, cell: objects.CellMapping
    ) -> Iterator[session.Database]:
        """Give the cell's database, to which nothing connects again.

        It is closed in the end; whether it answers is found out by one try.

        :raises cellsched.exception.ConfigurationInvalid: as :meth:`database`
        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """
        opened = self.database(cell).alone({'max_retries': 1})
        try:
            yield opened
        finally:
            opened.close()

    def database_url(self, cell: objects.CellMapping) -> str:
        """Return the URL of the cell's database, as it is opened here.

        :raises cellsched.exception.ConfigurationInvalid: it is a template,
            and the configuration has no URL with such parts
        """
        return fill(
            cell.database_connection, self._configured_database,
            _DATABASE_OPTION)

    def transport(self, cell: objects.CellMapping) -> Any:
        """Return the cell's transport; None of cell0, which has none.

        :raises cellsched.exception.ConfigurationInvalid: its URL is none that
            can be opened
        """
        return self._transport_opener(cell)()

    def _transport_opener(
        self, cell: objects.CellMapping
    ) -> Callable[[], Any]:
        """Return what opens the cell's transport, whose URL is looked at."""
        if not cell.transport_url:
            # What is not given elsewhere means this process's own transport,
            # and what is sent to this cell would end there.
            raise exception.ConfigurationInvalid(
                field=f'transport_url of cell {cell.identity}',
                expected='the URL of its message transport; it is not set')
        scheme = cell.transport_url.partition(':')[0].lower()
        if scheme == transport.NO_TRANSPORT:
            return lambda: None
        url = self._transport_url(cell)
        self._transports.check_url(url, 'transport_url')
        return functools.partial(self._transports.get, url)

    def broker_places(
        self, cell: objects.CellMapping
    ) -> frozenset[tuple[str, int, str]]:
        """Return the virtual hosts of brokers that a cell's URL leads to.

        :raises cellsched.exception.ConfigurationInvalid: as :meth:`transport`
        """
        if self.transport(cell) is None:
            return frozenset()
        return self._transports.places(self._transport_url(cell))

    def _transport_url(self, cell: objects.CellMapping) -> str:
        return fill(
            cell.transport_url, self._transports.own_url,
            '[DEFAULT] transport_url')

    def _configured_database(self) -> str:
        if not self._own_database:
            raise exception.ConfigurationInvalid(
                field=_DATABASE_OPTION,
                expected='a URL, of which the URL of a cell takes parts; it '
                         'is not set')
        return self._own_database
