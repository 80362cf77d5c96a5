# SPDX-License-Identifier: Apache-2.0
"""The query of a listing, parsed from the user's parameters."""

import base64
import binascii
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import itertools
import json
from typing import Any

from oslo_utils import timeutils

from cellsched.db.cell import instance_list
from cellsched.db import sort_order
from cellsched import exception
from cellsched.listing import server

#: Newest first.
NEWEST = sort_order.SortOrder((('created_at', True), ('uuid', True)))

_DIRECTIONS = {'asc': False, 'desc': True}
_TRUTHS = {'true': True, '1': True, 'false': False, '0': False}

#: Filters for administrators only.
_PLACES = frozenset({'host', 'node'})
_OF_ADMINISTRATORS = _PLACES | {'deleted', 'project_id', 'tenant_id'}

#: Filters whose column has another name.
_COLUMNS = {'image': 'image_ref', 'tenant_id': 'project_id'}

_NUMBERS = frozenset({'instance_type_id', 'launch_index', 'power_state'})
_TIMES = {'changes-since': 'changes_since', 'changes-before': 'changes_before'}
_TAGS = {'tags': 'tags', 'tags-any': 'tags_any', 'not-tags': 'not_tags',
         'not-tags-any': 'not_tags_any'}

#: Names of filters.
FILTERS = frozenset({
    *(instance_list.MATCHED - {'instance_type_id'}), *_COLUMNS, *_TIMES,
    *_TAGS, 'deleted', 'name', 'status'})

#: Maximum number of values of a filter, and of characters of a value.
VALUES_MAX = 100
_LENGTH_MAX = 255

#: Maximum length of a marker.
MARKER_LENGTH_MAX = 16_384

#: Maximum of an integer column.
_NUMBER_MAX = 2 ** 31 - 1


@dataclasses.dataclass(frozen=True)
class Marker:
    """The last server of a page, and its sort values when it was listed.

    The next page begins after these values, even if the server was changed,
    moved or deleted since.

    :param values: sort values in the order of the page; empty if unknown
    :param moved: uuids of the last servers of earlier pages whose sort values
        changed since they were listed; later pages leave them out
    """

    uuid: str
    values: tuple[Any, ...] = ()
    moved: tuple[str, ...] = ()

    #: Maximum number of uuids in ``moved``; beyond it, the oldest are dropped.
    MOVED_MAX = 100

    def __str__(self) -> str:
        """Return the text for users: the uuid, a dot, and encoded JSON."""
        content = json.dumps([[
            value.isoformat() if isinstance(value, datetime.datetime)
            else value for value in self.values], self.moved])
        encoded = base64.urlsafe_b64encode(content.encode()).decode()
        return f'{self.uuid}.{encoded}'

    @classmethod
    def parse(cls, text: str, order: sort_order.SortOrder) -> 'Marker':
        """Return the marker for a text or for the uuid of a server.

        :param order: the order of the page that the marker comes from
        :raises cellsched.exception.InvalidField: the text is damaged, or comes
            from a page in another order
        """
        uuid, dot, encoded = text.partition('.')
        if not dot:
            return cls(text)
        try:
            values, moved = json.loads(base64.b64decode(
                encoded, altchars=b'-_', validate=True))
            if not isinstance(values, list) or len(values) != len(order.names):
                raise ValueError
            if not isinstance(moved, list) or not all(
                    isinstance(each, str) for each in moved):
                raise ValueError
            return cls(uuid, tuple(map(_sort_value, order.names, values)),
                       tuple(moved[-cls.MOVED_MAX:]))
        except (binascii.Error, ValueError, TypeError, RecursionError):
            raise _invalid(
                'marker', 'the marker of the last page, with the same sort '
                'keys, or the uuid of a server', 'it is not valid') from None


def _invalid(
    field: str, expected: str, problem: str | None = None
) -> exception.InvalidField:
    return exception.InvalidField(
        where='server list', field=field, problem=problem, expected=expected)


def _sort_value(name: str, value: Any) -> Any:
    """Return the value of a sort key in a marker.

    :raises ValueError: the column cannot have the value
    """
    given, expected = type(value), instance_list.value_type(name)
    if value is None:
        return None
    if expected is datetime.datetime:
        if not isinstance(value, str):
            raise ValueError
        value = datetime.datetime.fromisoformat(value)
        if value.tzinfo is not None:
            raise ValueError
    elif (given is not expected
            or expected is int and abs(value) > _NUMBER_MAX
            or expected is str and b'\0' in value.encode()):
        raise ValueError
    return value


@dataclasses.dataclass(frozen=True)
class ServerQuery:
    """The filters, the order and the page of a listing.

    :param limit: maximum number of servers; None for all
    :param marker: the last server of the page before
    :param shows_places: whether the records contain hosts and cells
    """

    filters: instance_list.InstanceFilter = instance_list.InstanceFilter()
    order: sort_order.SortOrder = NEWEST
    limit: int | None = None
    marker: Marker | None = None
    shows_places: bool = True


def order(
    keys: Sequence[str] = (), directions: Sequence[str] = (),
    is_admin: bool = True,
) -> sort_order.SortOrder:
    """Return the order for some sort keys; newest first without keys.

    :param directions: ``asc`` or ``desc`` of each key; further keys have the
        first direction, or ``desc``
    :raises cellsched.exception.InvalidField: names the key
    """
    for field, values in ('sort_keys', keys), ('sort_dirs', directions):
        if not (isinstance(values, (list, tuple)) and all(
                isinstance(value, str) for value in values)):
            raise _invalid(field, 'a list of strings')
    if len(directions) > len(keys):
        raise _invalid('sort_dirs', 'at most one for each sort key',
                       'too many directions')
    for direction in directions:
        if direction not in _DIRECTIONS:
            raise _invalid('sort_dirs', 'asc or desc',
                           f'unknown direction {direction!a:.60}')
    allowed = instance_list.SORT_KEYS - (set() if is_admin else _PLACES)
    for key in keys:
        if key not in allowed:
            raise _invalid('sort_keys', f'some of {_listed(allowed)}',
                           f'unknown sort key {key!a:.60}')
    if len(set(keys)) < len(keys):
        raise _invalid('sort_keys', 'each key once', 'a key is repeated')
    if not keys:
        return NEWEST
    default = directions[0] if directions else 'desc'
    described = [(key, _DIRECTIONS[direction]) for key, direction
                 in itertools.zip_longest(keys, directions, fillvalue=default)]
    # Pages need a total order, because the next page begins after the last
    # server of this one.
    if 'uuid' not in keys:
        described.append(('uuid', described[-1][1]))
    return sort_order.SortOrder(tuple(described))


def parse_filters(
    filters: Mapping[str, Any], project_id: str | None, is_admin: bool = True,
    flavor_id: int | None = None,
) -> instance_list.InstanceFilter:
    """Return the filter on servers for some query parameters.

    :param filters: for each of :data:`FILTERS` a text, or several texts of
        which one must match; for tags, the name of the filter says how
    :param project_id: only servers of this project; None for all projects
    :param flavor_id: only servers with the flavor of this number
    :raises cellsched.exception.InvalidField: names the filter
    """
    if not isinstance(filters, Mapping):
        raise _invalid('filters', 'a mapping of names to values')
    allowed = FILTERS - (set() if is_admin else _OF_ADMINISTRATORS)
    matches: dict[str, list[Any]] = {}
    rest: dict[str, Any] = {}
    for name, value in filters.items():
        if name not in allowed:
            raise _invalid('filters', f'some of {_listed(allowed)}',
                           f'unknown filter {name!a:.60}')
        if name in _TAGS:
            rest[_TAGS[name]] = _texts(name, (
                value.split(',') if isinstance(value, str) else value))
        elif name in _TIMES:
            rest[_TIMES[name]] = _time(name, value)
        elif name == 'deleted':
            rest['deleted'] = _truth(name, value)
        elif name == 'name':
            [rest['name']] = _texts(name, [value])
        elif name == 'status':
            matches.setdefault('vm_state', []).extend(
                _vm_state(text) for text in _texts(name, value))
        else:
            column = _COLUMNS.get(name, name)
            if column in matches:
                raise _invalid(
                    f'filters.{name}', 'one filter for each field',
                    'another filter is for the same field')
            matches[column] = [
                _number(name, text) if column in _NUMBERS else text
                for text in _texts(name, value)]
    if flavor_id is not None:
        matches['instance_type_id'] = [flavor_id]
    if project_id is not None:
        matches['project_id'] = [project_id]
    # Filters on times and on deleted servers show both kinds of servers.
    if not rest.keys().isdisjoint(_TIMES.values()) or (
            'deleted' in matches.get('vm_state', ())):
        rest.setdefault('deleted', None)
    return instance_list.InstanceFilter(matches=matches, **rest)


def _listed(names: Iterable[str]) -> str:
    return ', '.join(sorted(names))


def _texts(name: str, given: Any) -> list[str]:
    values = [given] if isinstance(given, str) else given
    good = isinstance(values, (list, tuple, set, frozenset)) and (
        1 <= len(values) <= VALUES_MAX and all(
            isinstance(value, str) and 0 < len(value) <= _LENGTH_MAX
            and value.isprintable() for value in values))
    if not good:
        raise _invalid(
            f'filters.{name}', f'1 to {VALUES_MAX} strings of 1 to '
            f'{_LENGTH_MAX} printable characters')
    return list(values)


def _vm_state(status: str) -> str:
    if status.upper() not in server.STATUSES:
        raise _invalid(
            'filters.status', f'some of {_listed(server.STATUSES)}',
            f'unknown status {status!a:.60}')
    return server.vm_state_of(status)


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > _NUMBER_MAX:
        raise _invalid(
            f'filters.{name}', f'a whole number from 0 to {_NUMBER_MAX}')
    return int(text)


def _time(name: str, value: Any) -> datetime.datetime:
    if isinstance(value, datetime.datetime):
        return timeutils.normalize_time(value)
    try:
        return timeutils.normalize_time(timeutils.parse_isotime(value))
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise _invalid(f'filters.{name}',
                       'a time such as 2026-01-31T23:59:59Z') from None


def _truth(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.lower() not in _TRUTHS:
        raise _invalid(f'filters.{name}', 'true or false')
    return _TRUTHS[value.lower()]
