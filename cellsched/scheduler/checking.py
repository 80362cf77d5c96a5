# SPDX-License-Identifier: Apache-2.0
"""What a request must be before anything is decided on it.

A request comes over RPC, with what users wrote in it. What is checked here
needs no host; what single filters read, they check themselves.
"""

from collections.abc import Sequence
from typing import Any
import uuid as uuid_

from oslo_utils import uuidutils

from cellsched import exception
from cellsched import objects

#: The largest amount of anything.
_AMOUNT_MAX = 2 ** 31 - 1

#: Hosts, members or aggregates that one list of a request may name.
LISTED_MAX = 100_000

#: Hints, extra specs or image properties that a request may have.
NAMED_MAX = 1000

#: Characters of a uuid.
_UUID_MAX = 36


def check(spec: Any, uuids: Any, instances_max: int) -> None:
    """Make sure that a request can be decided on.

    :param uuids: of its instances
    :raises cellsched.exception.InvalidField: names the field and the bound
    """
    if not isinstance(spec, objects.RequestSpec):
        raise _invalid('spec_obj', 'a RequestSpec')
    _check_flavor(spec.get('flavor'))
    _check_hints(spec.get('scheduler_hints') or {})
    image = spec.get('image')
    properties = image.get('properties') if image else None
    if properties is not None and len(properties.items()) > NAMED_MAX:
        raise _invalid('spec_obj.image.properties',
                       f'at most {NAMED_MAX} properties')
    if not 1 <= spec.get('num_instances', 1) <= _AMOUNT_MAX:
        raise _invalid('spec_obj.num_instances',
                       f'a whole number from 1 to {_AMOUNT_MAX}')
    if spec.get('instance_uuid') is not None:
        _check_ids('spec_obj.instance_uuid', [spec.instance_uuid])
    for name in ('ignore_hosts', 'force_hosts', 'force_nodes'):
        _check_length(f'spec_obj.{name}', spec.get(name))
    _check_group(spec.get('instance_group'))
    _check_destination(spec.get('requested_destination'))
    _check_uuids(uuids, instances_max)


def _check_flavor(flavor: objects.Flavor | None) -> None:
    if flavor is None:
        raise _invalid('spec_obj.flavor', 'a Flavor')
    for name in ('vcpus', 'memory_mb', 'root_gb'):
        if flavor.get(name) is None:
            raise _invalid(f'spec_obj.flavor.{name}', 'a number')
    for name in ('vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb', 'swap'):
        # What is less than nothing would be taken off another amount.
        if not 0 <= flavor.get(name, 0) <= _AMOUNT_MAX:
            raise _invalid(f'spec_obj.flavor.{name}',
                           f'an amount from 0 to {_AMOUNT_MAX}')
    if len(flavor.get('extra_specs') or ()) > NAMED_MAX:
        raise _invalid('spec_obj.flavor.extra_specs',
                       f'at most {NAMED_MAX} extra specs')


def _check_hints(hints: dict[str, list[str]]) -> None:
    if len(hints) > NAMED_MAX:
        raise _invalid('spec_obj.scheduler_hints',
                       f'at most {NAMED_MAX} hints')
    for hint in hints:
        # Users write hints, so nothing that steers a decision past its
        # checks is taken from them.
        if hint.startswith('_'):
            raise _invalid(
                f'spec_obj.scheduler_hints.{ascii(hint[:40])[1:-1]}',
                'no hint whose name begins with _')


def _check_group(group: objects.InstanceGroup | None) -> None:
    if group is None:
        return
    for name in ('members', 'hosts'):
        _check_length(f'spec_obj.instance_group.{name}', group.get(name))
    _check_ids('spec_obj.instance_group.members', group.get('members') or ())


def _check_destination(target: objects.Destination | None) -> None:
    if target is None:
        return
    where = 'spec_obj.requested_destination'
    for name in ('aggregates', 'forbidden_aggregates'):
        _check_length(f'{where}.{name}', target.get(name))
    cell = target.get('cell')
    if cell is not None and cell.get('uuid') is None:
        raise _invalid(f'{where}.cell.uuid', 'the uuid of a cell')


def _check_uuids(uuids: Any, most: int) -> None:
    if not isinstance(uuids, Sequence) or isinstance(uuids, str):
        raise _invalid('instance_uuids', 'a list of uuids')
    if 1 <= len(uuids) <= most:
        if not all(map(_is_uuid, uuids)):
            raise _invalid('instance_uuids', 'a list of uuids')
        if len(set(uuids)) == len(uuids):
            return
    raise _invalid('instance_uuids', f'1 to {most} different uuids, not '
                                     f'{len(uuids)}')


def _check_length(field: str, values: Any) -> None:
    if len(values or ()) > LISTED_MAX:
        raise _invalid(field, f'at most {LISTED_MAX} values')


def _check_ids(field: str, ids: Sequence[str]) -> None:
    """Make sure that ids can be looked up; it takes next to no time."""
    together = ''.join(ids)
    if ids and not (max(map(len, ids)) <= _UUID_MAX
                    and together.isascii() and together.isprintable()):
        raise _invalid(field, f'uuids of at most {_UUID_MAX} characters')


def _is_uuid(text: Any) -> bool:
    # One uuid has many forms, and would be taken for several instances.
    return (uuidutils.is_uuid_like(text)
            and text == str(uuid_.UUID(text)))


def _invalid(field: str, expected: str) -> exception.InvalidField:
    return exception.InvalidField(
        where='select_destinations', field=field, expected=expected)
