# SPDX-License-Identifier: Apache-2.0
"""Requests that operators write into files."""

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
