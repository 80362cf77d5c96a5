# SPDX-License-Identifier: Apache-2.0
"""Block devices, as users ask for them."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from cellsched.api import validation
from cellsched import exception
from cellsched import objects

#: Block devices of one server.
DEVICES_MAX = 64

#: The largest whole number that a column takes.
_NUMBER_MAX = 2 ** 31 - 1

#: Sources, each with where disks made from it may be, and what names it.
_SOURCES = {
    'blank': (('local', 'volume'), None),
    'image': (('local', 'volume'), 'image_id'),
    'snapshot': (('volume',), 'snapshot_id'),
    'volume': (('volume',), 'volume_id'),
}

#: Characters of texts, and the least of whole numbers.
_TEXTS = {'guest_format': 255, 'device_type': 255, 'disk_bus': 255,
          'device_name': 255, 'volume_type': 255, 'tag': 255,
          'snapshot_id': 36, 'volume_id': 36, 'image_id': 36}
_NUMBERS = {'boot_index': -1, 'volume_size': 1}

_KNOWN = ('source_type', 'destination_type', 'delete_on_termination',
          *_TEXTS, *_NUMBERS)


def check(devices: Any, several: bool) -> None:
    """Make sure that block devices can be taken as they are.

    :param several: whether more than one server is to have them
    :raises cellsched.exception.InvalidField: names the field and the bound
    """
    if not isinstance(devices, (list, tuple)) or len(devices) > DEVICES_MAX:
        raise _invalid('', f'a list of at most {DEVICES_MAX} mappings')
    booted = []
    for index, device in enumerate(devices):
        at = f'[{index}]'
        if not isinstance(device, Mapping) or not all(
                name in _KNOWN for name in device):
            raise _invalid(at, f'a mapping of {", ".join(_KNOWN)}')
        _check_one(at, device)
        if several and device['source_type'] == 'volume':
            raise _invalid(f'{at}.source_type',
                           'no volume, which one server alone can have; '
                           'several were asked for')
        if device.get('boot_index') is not None and device['boot_index'] >= 0:
            booted.append(device['boot_index'])
    if len(booted) != len(set(booted)):
        raise _invalid('', 'each boot_index once')


def made(
    devices: Sequence[Mapping[str, Any]], uuid: str,
    new_uuid: Callable[[], str],
) -> objects.BlockDeviceMappingList | None:
    """Return the block devices of a server, each with a name of its own."""
    if not devices:
        return None
    return objects.BlockDeviceMappingList(objects=[
        objects.BlockDeviceMapping(
            uuid=new_uuid(), instance_uuid=uuid, **device)
        for device in devices])


def _check_one(at: str, device: Mapping[str, Any]) -> None:
    where, field = 'server', f'block_device_mappings{at}'
    source = device.get('source_type')
    validation.check_choice(where, f'{field}.source_type', source,
                            tuple(_SOURCES))
    destinations, named_by = _SOURCES[str(source)]
    validation.check_choice(where, f'{field}.destination_type',
                            device.get('destination_type'), destinations)
    if named_by is not None and device.get(named_by) is None:
        raise _invalid(f'{at}.{named_by}', f'the id of the {source}')
    if not isinstance(device.get('delete_on_termination', False), bool):
        raise _invalid(f'{at}.delete_on_termination', 'true or false')
    for name, most in _TEXTS.items():
        if device.get(name) is not None:
            validation.check_text(
                where, f'{field}.{name}', device[name], most)
    for name, least in _NUMBERS.items():
        if device.get(name) is not None:
            validation.check_count(
                where, f'{field}.{name}', device[name], _NUMBER_MAX, least)
    if (source == 'blank' and device['destination_type'] == 'volume'
            and device.get('volume_size') is None):
        raise _invalid(f'{at}.volume_size', 'GB of the volume')


def _invalid(at: str, expected: str) -> exception.InvalidField:
    return exception.InvalidField(
        where='server', field=f'block_device_mappings{at}',
        expected=expected)
