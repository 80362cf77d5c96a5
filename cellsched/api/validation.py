# SPDX-License-Identifier: Apache-2.0
"""Validation of the input of the API."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from cellsched.api import schemas
from cellsched import exception
from cellsched import objects
from cellsched.objects import keys
from cellsched.validation.json_schema import check
from cellsched.validation.json_schema import shown
from cellsched.validation.uuids import canonical

#: Scheduler hints that every deployment supports.
HINTS = frozenset({'group'})

#: Values of fields of a request that are not given.
_DEFAULTS: Mapping[str, Any] = {
    'image_ref': None, 'availability_zone': None, 'hints': {}, 'tags': (),
    'block_device_mappings': (), 'forced_host': None, 'forced_node': None,
    'host': None, 'hypervisor_hostname': None}

#: The forms of a zone with the host that a request is forced to.
_ZONE_FORMS = 'ZONE, ZONE:HOST, ZONE:HOST:NODE or ZONE::NODE'


@dataclasses.dataclass(frozen=True)
class ServerBounds:
    """The bounds that a deployment sets.

    :param instances_max: servers of one request
    :param limit_max: servers of one page of a listing
    :param hints: returns the names of the scheduler hints that the enabled
        filters support; None allows any name that does not begin with ``_``
    :param group_members_max: members of a server group
    """

    instances_max: int
    limit_max: int
    hints: Callable[[], frozenset[str] | None]
    group_members_max: int = 1000


@dataclasses.dataclass(frozen=True)
class ServerRequest:
    """A request for servers, as a user made it.

    :param forced_host: the only possible host, which no filter checks
    :param forced_node: the only possible node, which no filter checks
    :param host: the only possible host, which filters check
    :param hypervisor_hostname: the only possible node, which filters check
    """

    name: Any
    flavor: Any
    image_ref: Any
    availability_zone: Any
    hints: Any
    min_count: Any
    max_count: Any
    tags: Any = ()
    block_device_mappings: Any = ()
    forced_host: Any = None
    forced_node: Any = None
    host: Any = None
    hypervisor_hostname: Any = None

    def check(self, bounds: ServerBounds) -> None:
        """Make sure that the request is valid.

        :raises cellsched.exception.InvalidField: names the field and the
            bound
        """
        most = bounds.instances_max
        check_count('server', 'min_count', self.min_count, most)
        check_count('server', 'max_count', self.max_count, most,
                    self.min_count)
        # Most requests have a name and a flavor alone.
        fields = {'name': self.name, 'flavor': self.flavor}
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if value is not default and value != default:
                fields[name] = value
        check('server', fields, schemas.SERVER)
        if self.max_count > 1:
            # The number of each server is added to the name.
            check_text('server', 'name', self.name,
                       schemas.TEXT_MAX - len(f'-{self.max_count}'))
        if self.hints:
            known = bounds.hints()
            _check_hint_names(self.hints, known)
            if known is not None:
                keys.check_hints(self.hints, 'server', 'hints')
        _check_devices(self.block_device_mappings, self.max_count > 1)
        boot = self.boot_device
        image_ref = boot.get('image_id') if boot else None
        if self.image_ref and image_ref and self.image_ref != image_ref:
            raise exception.InvalidField(
                where='server', field='image_ref',
                problem='the servers boot from another image, which is that '
                        'of the block device with boot_index 0',
                expected=f'{shown(image_ref)}, or no value')

    def check_local_disks(self, flavor: objects.Flavor) -> None:
        """Make sure that the flavor has disk for the local block devices.

        A server claims the disks of its flavor, and no more.

        :raises cellsched.exception.InvalidField: names the first device for
            which the flavor has no disk
        """
        free = {name: flavor.get(name) or 0
                for name in ('root_gb', 'ephemeral_gb', 'swap')}
        whole = dict(free)
        for number, device in enumerate(self.block_device_mappings):
            if device['destination_type'] != 'local':
                continue
            disk = ('root_gb' if device['source_type'] == 'image' else
                    'swap' if device.get('guest_format') == 'swap'
                    else 'ephemeral_gb')
            size = device.get('volume_size')
            if size is None:
                size = whole[disk]
            if size > free[disk]:
                raise exception.InvalidField(
                    where='server',
                    field=f'block_device_mappings[{number}].volume_size',
                    problem=f'{size} is too large for {disk} {whole[disk]} of '
                            'the flavor, with the local devices before it',
                    expected=f'at most {free[disk]}')
            free[disk] -= size

    @property
    def boot_device(self) -> objects.BlockDeviceMapping | None:
        """The block device from which the servers boot, if they name one."""
        return next((
            objects.BlockDeviceMapping(**device)
            for device in self.block_device_mappings
            if device.get('boot_index') == 0), None)

    @property
    def group(self) -> str | None:
        """The server group that the servers join."""
        values = self.hints.get('group')
        return canonical(values[0]) or values[0] if values else None


def parse_zone(text: Any) -> tuple[Any, str | None, str | None]:
    """Return the zone, the forced host and the forced node of a text.

    :param text: ``ZONE``, ``ZONE:HOST``, ``ZONE:HOST:NODE`` or
        ``ZONE::NODE``; the zone may be missing before a colon
    :raises cellsched.exception.InvalidField: it has another form
    """
    if not isinstance(text, str) or ':' not in text:
        return text, None, None
    zone, *names = text.split(':')
    if len(names) > 2 or not any(names):
        raise exception.InvalidField(
            where='server', field='availability_zone',
            problem=f'{shown(text)} is not valid', expected=_ZONE_FORMS)
    host, node = [*names, ''][:2]
    return zone or None, host or None, node or None


def check_text(
    where: str, field: str, value: Any, most: int = schemas.TEXT_MAX
) -> None:
    """Make sure that a value is a name or another text in one line.

    :raises cellsched.exception.InvalidField: it is not
    """
    if not (isinstance(value, str) and 0 < len(value) <= most
            and value.isprintable() and not value.isspace()):
        raise exception.InvalidField(
            where=where, field=field, problem=f'{shown(value)} is not valid',
            expected=f'1 to {most} printable characters')


def check_count(
    where: str, field: str, value: Any, most: int, least: int = 1
) -> None:
    """Make sure that a value is a whole number between two bounds.

    :raises cellsched.exception.InvalidField: it is not
    """
    if not (isinstance(value, int) and not isinstance(value, bool)
            and least <= value <= most):
        raise exception.InvalidField(
            where=where, field=field,
            problem=f'{shown(value)} is out of range',
            expected=f'a whole number from {least} to {most}')


def check_choice(
    where: str, field: str, value: Any, choices: Sequence[str]
) -> None:
    """Make sure that a value is one of several texts.

    :raises cellsched.exception.InvalidField: it is not
    """
    if not (isinstance(value, str) and value in choices):
        raise exception.InvalidField(
            where=where, field=field, problem=f'{shown(value)} is not valid',
            expected=f'one of {", ".join(choices)}')


def _check_hint_names(
    hints: Mapping[Any, Any], known: frozenset[str] | None
) -> None:
    """Make sure that every scheduler hint is supported."""
    for hint in hints:
        if known is None:
            check_text('server', 'hints', hint)
            if hint.startswith('_'):
                raise exception.InvalidField(
                    where='server', field='hints',
                    problem=f'the name {shown(hint)} is reserved',
                    expected='a name that does not begin with _')
        elif hint not in known | HINTS:
            raise exception.InvalidField(
                where='server', field='hints',
                problem=f'no enabled filter supports {shown(hint)}',
                expected=f'one of {", ".join(sorted(known | HINTS))}')


def _check_devices(
    devices: Sequence[Mapping[str, Any]], several: bool
) -> None:
    """Check the constraints of block devices that no schema has.

    :param several: whether more than one server gets them
    """
    where, field = 'server', 'block_device_mappings'
    boots = [device['boot_index'] for device in devices
             if (device.get('boot_index') or 0) >= 0
             and device.get('boot_index') is not None]
    if len(boots) != len(set(boots)):
        raise exception.InvalidField(
            where=where, field=field, problem='a boot_index is repeated',
            expected='each boot_index once')
    for number, device in enumerate(devices):
        if several and device['source_type'] == 'volume':
            raise exception.InvalidField(
                where=where, field=f'{field}[{number}].source_type',
                problem='a volume belongs to one server, and several are '
                        'requested', expected='another source')
