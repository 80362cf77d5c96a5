# SPDX-License-Identifier: Apache-2.0
"""Requests that operators make up, by options or in a file."""

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
import json
import pathlib
from typing import Any
from typing import TYPE_CHECKING

from cellsched import exception

if TYPE_CHECKING:
    from cellsched import objects

#: The largest file that is read.
_SIZE_MAX = 1_000_000

_PREFIX = 'nova_object.'

#: The objects that fields hold, by the object whose fields they are.
_NESTED = {
    'RequestSpec': {
        'flavor': 'Flavor', 'image': 'ImageMeta', 'limits': 'SchedulerLimits',
        'instance_group': 'InstanceGroup',
        'requested_destination': 'Destination'},
    'ImageMeta': {'properties': 'ImageMetaProps'},
    'Destination': {'cell': 'CellMapping'},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is wanted."""
    parser.add_argument('--flavor', metavar='FLAVOR',
                        help='id or name of the flavor')
    for name, unit, what in (('--vcpus', 'NUMBER', 'virtual CPUs'),
                             ('--ram', 'MB', 'memory'),
                             ('--disk', 'GB', 'disk')):
        parser.add_argument(name, type=int, metavar=unit,
                            help=f'{what}; in place of a flavor')
    for name, what in (
            ('--extra-spec', 'an extra spec that the flavor is to have'),
            ('--image-property', 'a property of the image'),
            ('--hint', 'a scheduler hint; the same one may be given several '
                       'values')):
        parser.add_argument(name, metavar='KEY=VALUE', action='append',
                            default=[], help=what)
    parser.add_argument('--availability-zone', metavar='ZONE',
                        help='the zone to build in')
    parser.add_argument('--project', metavar='ID',
                        help='the project; by default --os-project-id')
    parser.add_argument('--group', metavar='UUID',
                        help='the server group that they would join')
    for name, what in (('--force-host', 'consider this host, and others that '
                        'are forced, and ask no filter'),
                       ('--ignore-host', 'leave this host out')):
        parser.add_argument(name, metavar='HOST', action='append',
                            default=[], help=what)
    parser.add_argument(
        '--request', metavar='FILE', type=pathlib.Path,
        help='a request in JSON: a RequestSpec as it is sent, or its fields '
             'alone; options come on top of it')


def read(path: pathlib.Path) -> 'objects.RequestSpec':
    """Return the request that a file describes.

    :raises cellsched.exception.InvalidField: names the file and the field
    """
    try:
        with path.open('rb') as file:
            text = file.read(_SIZE_MAX + 1)
    except OSError as exc:
        raise _invalid(
            path, 'document', f'a file that can be read: {exc.strerror}'
        ) from None
    if len(text) > _SIZE_MAX:
        raise _invalid(path, 'document', f'at most {_SIZE_MAX} bytes')
    try:
        given = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise _invalid(path, 'document', 'less nested objects') from None
    except ValueError as exc:
        raise _invalid(path, 'document', f'JSON: {exc!s:.200}') from None
    return _made(path, given)


def extra_specs(args: argparse.Namespace) -> dict[str, str]:
    """Return what the option says of the flavor."""
    return pairs('--extra-spec', args.extra_spec)


def pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Return the keys of an option with their values."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition('=')
        if not equals or not key or key in found:
            raise exception.InvalidField(
                where='options', field=option,
                expected=f'KEY=VALUE, each key once, not {ascii(text):.80}')
        found[key] = value
    return found


def _made(path: pathlib.Path, given: Any) -> 'objects.RequestSpec':
    from oslo_versionedobjects import exception as ovo_exception

    from cellsched import objects

    if not isinstance(given, dict):
        raise _invalid(path, 'document', 'an object')
    if f'{_PREFIX}name' not in given:
        given = _enveloped(path, 'RequestSpec', given, '')
    if given[f'{_PREFIX}name'] != 'RequestSpec':
        raise _invalid(path, f'{_PREFIX}name', 'RequestSpec')
    try:
        made = objects.RequestSpec.obj_from_primitive(given)
    except (ovo_exception.VersionedObjectsException, AttributeError,
            KeyError, TypeError, ValueError) as exc:
        raise _invalid(
            path, 'document', f'a RequestSpec as it is sent: {exc!s:.200}'
        ) from None
    except exception.InvalidField as exc:
        raise _invalid(
            path, f'{exc.where}.{exc.field}', f'{exc.expected:.200}'
        ) from None
    return made


def _enveloped(
    path: pathlib.Path, name: str, given: Any, where: str
) -> dict[str, Any]:
    """Return plain fields as the object that is sent."""
    from cellsched.objects import base

    if not isinstance(given, Mapping):
        raise _invalid(path, where or 'document', 'an object')
    if f'{_PREFIX}name' in given:
        return dict(given)
    kind = base.Registry.obj_classes()[name][0]
    data = {}
    for field, value in given.items():
        if field == 'rules' and '_rules' in kind.fields:
            field = '_rules'
        if kind.fields and field not in kind.fields:
            raise _invalid(path, f'{where}{field!s:.80}',
                           f'a field of {name}: {", ".join(kind.fields)}')
        nested = _NESTED.get(name, {}).get(field)
        if nested is not None and value is not None:
            value = _enveloped(path, nested, value, f'{where}{field}.')
        data[field] = value
    return {f'{_PREFIX}name': name, f'{_PREFIX}namespace': 'nova',
            f'{_PREFIX}version': kind.VERSION, f'{_PREFIX}data': data}


def _invalid(
    path: pathlib.Path, field: str, expected: str
) -> exception.InvalidField:
    return exception.InvalidField(
        where=str(path), field=field, expected=expected)


def _refuse(constant: str) -> Any:
    raise ValueError(f'no number {constant}')
