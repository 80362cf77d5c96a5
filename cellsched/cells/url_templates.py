# SPDX-License-Identifier: Apache-2.0
"""URLs of cells that are templates, filled in by each process.

A field of a template, such as ``{password}``, stands for a part of the URL of
the same kind in the configuration of the process that opens it, so that hosts
may reach a cell by ways of their own, and mappings need hold no password.
"""

from collections.abc import Callable
import re
from urllib import parse

from cellsched import exception

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
