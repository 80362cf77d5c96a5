# SPDX-License-Identifier: Apache-2.0
"""Validation of a request before a decision.

A request comes over RPC and includes users' input. The checks here need no
host. A filter checks the fields that only it reads.
"""

from collections.abc import Sequence
import re
from typing import Any
from typing import NamedTuple

from cellsched.claims import validation as claims_validation
from cellsched import exception
from cellsched import objects
from cellsched.objects import keys
from cellsched.objects import resources

#: Scheduler hints that are read with any filters enabled.
_HINTS = frozenset({'group'})

#: Nova's hint to check a host for a server's new image.
REBUILD = '_nova_check_type'

#: Fields of a request that name hosts or nodes.
_HOST_LISTS = ('ignore_hosts', 'force_hosts', 'force_nodes')

#: Fields of a request that name its user and project.
_OWNERS = ('project_id', 'user_id')

#: Fields of a request that are checked.
_CHECKED = (
    'flavor', 'scheduler_hints', 'image', 'num_instances', 'instance_uuid',
    'migration_uuid', 'instance_group', 'requested_destination',
    'numa_topology', 'pci_requests', *_OWNERS, *_HOST_LISTS)

#: Required fields of a flavor.
_REQUIRED = ('vcpus', 'memory_mb', 'root_gb')
_AMOUNTS = (*_REQUIRED, 'ephemeral_gb', 'swap')

#: The maximum of any amount.
_AMOUNT_MAX = 2 ** 31 - 1

#: The maximum length of a uuid, and of a host's name.
_UUID_MAX, _HOST_MAX = 36, 255

#: The canonical form of uuids, required if a request has several.
_UUID = re.compile(r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')


class RequestBounds(NamedTuple):
    """Upper limits of a request.

    :param instances_max: instances
    :param names_max: hints, extra specs or image properties
    :param values_max: hosts, members or aggregates in one list
    """

    instances_max: int = 1000
    names_max: int = 1000
    values_max: int = 100_000


def bounds(options: Any) -> RequestBounds:
    """Return the limits configured in ``[scheduler]``."""
    return RequestBounds(
        options.max_instances_per_request, options.max_names_per_request,
        options.max_values_per_list)


def check(
    spec: Any, uuids: Any, bounds: RequestBounds,
    hints: frozenset[str] | None = None, strictly: bool = True,
) -> None:
    """Check that a request is valid.

    :param uuids: of its instances; None if the caller named none
    :param hints: scheduler hints that are read; None for any whose name does
        not begin with ``_``
    :param strictly: whether to refuse all other hints, not only those that
        begin with ``_``
    :raises cellsched.exception.InvalidField: names the field and the limit
    :raises cellsched.exception.HardwareRequestInvalid: the flavor and the
        image contradict each other about CPUs
    """
    if not isinstance(spec, objects.RequestSpec):
        raise invalid('spec_obj', 'a RequestSpec')
    most, listed = bounds.names_max, bounds.values_max
    value = spec.values_of(_CHECKED)
    _check_flavor(value['flavor'], most)
    _check_hints(value['scheduler_hints'] or {}, most, hints, strictly)
    image = value['image']
    properties = image.get('properties') if image else None
    if properties is not None and len(properties.items()) > most:
        raise invalid('spec_obj.image.properties',
                      f'at most {most} properties')
    keys.check_request(spec, 'select_destinations', 'spec_obj', hints)
    if not spec.resources():
        raise invalid('spec_obj.flavor', 'an amount of a resource class',
                      'the request needs no resources')
    if value['numa_topology'] is not None:
        spec.guest_topology()
    if value['pci_requests'] is not None:
        spec.device_requests()
    count = 1 if value['num_instances'] is None else value['num_instances']
    if not 1 <= count <= _AMOUNT_MAX:
        raise invalid('spec_obj.num_instances',
                      f'a whole number from 1 to {_AMOUNT_MAX}')
    for name in ('instance_uuid', 'migration_uuid'):
        if value[name] is not None:
            check_ids(f'spec_obj.{name}', [value[name]])
    if value['migration_uuid'] is not None and (
            count != 1 or uuids is not None and len(uuids) != 1):
        raise invalid('spec_obj.migration_uuid', 'one instance',
                      'the request has several instances')
    for name in _OWNERS:
        if value[name]:
            claims_validation.check_id(
                'select_destinations', f'spec_obj.{name}', value[name])
    for name in _HOST_LISTS:
        check_length(f'spec_obj.{name}', value[name], listed)
    _check_group(value['instance_group'], listed)
    _check_destination(value['requested_destination'], listed)
    if uuids is not None:
        _check_uuids(uuids, bounds.instances_max)
    elif count > bounds.instances_max:
        raise invalid('spec_obj.num_instances',
                      f'a whole number from 1 to {bounds.instances_max}')


def unknown_hints(
    spec: objects.RequestSpec, hints: frozenset[str] | None
) -> list[str]:
    """Return the names of a request's unread hints, safe to print.

    :param hints: scheduler hints that are read; None for any
    """
    value = spec.get('scheduler_hints')
    if hints is None or not value:
        return []
    return [_shown(hint) for hint in value if hint not in hints | _HINTS]


def check_length(field: str, values: Any, most: int) -> None:
    """Check that a list is not too long.

    :raises cellsched.exception.InvalidField: it is too long
    """
    if len(values or ()) > most:
        raise invalid(field, f'at most {most} values')


def _check_flavor(flavor: objects.Flavor | None, most: int) -> None:
    if flavor is None:
        raise invalid('spec_obj.flavor', 'a Flavor')
    amounts = flavor.values_of((*_AMOUNTS, 'extra_specs'))
    extra_specs = amounts.pop('extra_specs')
    for name in _REQUIRED:
        if amounts[name] is None:
            raise invalid(f'spec_obj.flavor.{name}', 'a number')
    for name, amount in amounts.items():
        # A negative amount would reduce another amount.
        if not 0 <= (amount or 0) <= _AMOUNT_MAX:
            raise invalid(f'spec_obj.flavor.{name}',
                          f'an amount from 0 to {_AMOUNT_MAX}')
    if len(extra_specs or ()) > most:
        raise invalid('spec_obj.flavor.extra_specs',
                      f'at most {most} extra specs')
    resources.requested(extra_specs)


def _check_hints(
    hints: dict[str, list[str]], most: int, known: frozenset[str] | None,
    strictly: bool,
) -> None:
    if len(hints) > most:
        raise invalid('spec_obj.scheduler_hints', f'at most {most} hints')
    read = _HINTS if known is None else known | _HINTS
    for hint, values in hints.items():
        # Users write hints, so a hint must not bypass a check. The reader of
        # the rebuild hint validates that the request can be a rebuild.
        if hint.startswith('_') and (
                hint not in read or values != ['rebuild']):
            raise invalid(f'spec_obj.scheduler_hints.{_shown(hint)}',
                          'a name that does not begin with _',
                          'the name of the hint is reserved')
        if strictly and known is not None and hint not in read:
            names = ', '.join(
                sorted(name for name in read if not name.startswith('_')))
            raise invalid(
                f'spec_obj.scheduler_hints.{_shown(hint)}',
                f'one of {names}', 'no enabled filter supports this hint')


def _shown(hint: str) -> str:
    return ascii(hint[:40])[1:-1]


def _check_group(group: objects.InstanceGroup | None, most: int) -> None:
    if group is None:
        return
    for name in ('members', 'hosts'):
        check_length(f'spec_obj.instance_group.{name}', group.get(name), most)
    check_ids('spec_obj.instance_group.members', group.get('members') or ())


def _check_destination(target: objects.Destination | None, most: int) -> None:
    if target is None:
        return
    where = 'spec_obj.requested_destination'
    for name, values in target.values_of(
            ('aggregates', 'forbidden_aggregates')).items():
        check_length(f'{where}.{name}', values, most)
    cell = target.get('cell')
    if cell is not None and cell.get('uuid') is None:
        raise invalid(f'{where}.cell.uuid', 'the uuid of a cell')


def _check_uuids(uuids: Any, most: int) -> None:
    if not isinstance(uuids, Sequence) or isinstance(uuids, str):
        raise invalid('instance_uuids', 'a list of uuids')
    if 1 <= len(uuids) <= most:
        if not all(map(_is_uuid, uuids)):
            raise invalid('instance_uuids', 'a list of uuids')
        if len(set(uuids)) == len(uuids):
            return
    raise invalid('instance_uuids', f'1 to {most} different uuids',
                  f'{len(uuids)} uuids are given, or one is repeated')


def check_ids(field: str, ids: Sequence[Any]) -> None:
    """Check that ids can be looked up; this costs little.

    :raises cellsched.exception.InvalidField: an id is not valid
    """
    if all(isinstance(each, str) for each in ids):
        together = ''.join(ids)
        if not ids or (max(map(len, ids)) <= _UUID_MAX
                       and together.isascii() and together.isprintable()):
            return
    raise invalid(field, f'uuids of at most {_UUID_MAX} characters')


def check_host(field: str, name: Any) -> None:
    """Check that a value is a valid host name.

    :raises cellsched.exception.InvalidField: it is not valid
    """
    if not isinstance(name, str) or not (
            1 <= len(name) <= _HOST_MAX and name.isprintable()):
        raise invalid(field, f'a name of 1 to {_HOST_MAX} characters')


def _is_uuid(text: Any) -> bool:
    return isinstance(text, str) and _UUID.fullmatch(text) is not None


def invalid(
    field: str, expected: str, problem: str | None = None
) -> exception.InvalidField:
    """Return the error for a field of a request."""
    return exception.InvalidField(
        where='select_destinations', field=field, problem=problem,
        expected=expected)
