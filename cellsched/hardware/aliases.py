# SPDX-License-Identifier: Apache-2.0
"""PCI devices that a flavor asks for by the names of aliases.

Source: Nova 34, ``nova/pci/request.py``.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import re
from typing import Any
from typing import NamedTuple
import uuid

from oslo_utils import strutils

from cellsched.conf import pci
from cellsched import exception
from cellsched.hardware import devices
from cellsched.hardware.devices import DeviceRequest
from cellsched.hardware.guest import refuse

#: The extra spec with names of aliases and numbers of devices.
ALIAS = 'pci_passthrough:alias'

#: The pattern of its values, and the values in words.
PATTERN = r'[^:,]+:\s*[0-9]{1,9}\s*(,[^:,]+:\s*[0-9]{1,9}\s*)*'
EXPECTED = 'names with numbers of devices, such as gpu:1,card:2'

#: The trait of hosts that know the sockets of their devices.
SOCKETS = 'COMPUTE_SOCKET_PCI_NUMA_AFFINITY'

#: Namespace of the ids of requests.
_REQUEST_IDS = uuid.UUID('5a2d2f0e-9c51-4d0b-8a53-6a1f6b0e7c4d')


class Alias(NamedTuple):
    """Devices with a name.

    :param affinity: one of :data:`cellsched.hardware.devices.AFFINITIES`
    :param specs: alternatives, each a mapping of properties to values
    """

    affinity: str
    specs: tuple[Mapping[str, str], ...]


Aliases = Mapping[str, Alias]


def by_name(configured: Iterable[str]) -> dict[str, Alias]:
    """Return the aliases of a configuration by name.

    :param configured: values of ``[pci] alias``; those with one name are
        alternatives
    :raises cellsched.exception.ConfigurationInvalid: a value is invalid
    """
    found: dict[str, Alias] = {}
    for spec in map(pci.parse, configured):
        name = spec.pop('name')
        affinity = spec.pop('numa_policy', pci.LEGACY)
        if 'device_type' in spec:
            spec['dev_type'] = spec.pop('device_type')
        if 'live_migratable' in spec:
            spec['live_migratable'] = str(strutils.bool_from_string(
                spec['live_migratable'])).lower()
        known = found.get(name, Alias(affinity, ()))
        found[name] = known._replace(specs=(*known.specs, spec))
    return found


def affinity(
    extra_specs: Mapping[str, Any], properties: Mapping[str, Any]
) -> str | None:
    """Return the affinity that a flavor and an image ask for.

    :returns: None if they ask for none
    :raises cellsched.exception.HardwareRequestInvalid: they differ, or the
        value is unknown
    """
    flavor = extra_specs.get('hw:pci_numa_affinity_policy')
    image = properties.get('hw_pci_numa_affinity_policy')
    if flavor and image and flavor != image:
        refuse('ImagePCINUMAPolicyForbidden')
    policy: str | None = flavor or image or None
    if policy and policy not in devices.AFFINITIES:
        refuse('InvalidPCINUMAAffinity', policy=policy)
    return policy


def requests(
    aliases: Aliases, extra_specs: Mapping[str, Any],
    properties: Mapping[str, Any],
) -> tuple[DeviceRequest, ...]:
    """Return the devices that a flavor and an image ask for.

    Equal flavors have equal requests, so that a repeated request for a server
    is the same one. Their ids differ within a server.

    :raises cellsched.exception.HardwareRequestInvalid: an alias is not
        defined, or the flavor and the image contradict each other
    :raises cellsched.exception.InvalidField: the extra spec has another form
    """
    policy, given = affinity(extra_specs, properties), extra_specs.get(ALIAS)
    if given is None:
        return ()
    if not re.fullmatch(PATTERN, given):
        raise exception.InvalidField(
            where='flavor', field=f'extra_specs.{ALIAS}',
            problem=f'{given!a:.60} is not valid', expected=EXPECTED)
    found = []
    for place, each in enumerate(given.split(',')):
        name, _, count = each.partition(':')
        name = name.strip()
        if name not in aliases:
            refuse('PciRequestAliasNotDefined', alias=name)
        alias = aliases[name]
        found.append(DeviceRequest(
            int(count), alias.specs, name,
            str(uuid.uuid5(_REQUEST_IDS, f'{place} {name}')),
            policy or alias.affinity))
    return tuple(found)
