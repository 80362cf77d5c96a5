# SPDX-License-Identifier: Apache-2.0
"""Resource classes by name: the standard ones and installed ones.

A class of another package that cannot be loaded is named in the log. Requests
for it are refused, as the amounts that it would take are unknown.
"""

from collections.abc import Mapping
import functools
import logging
import re
import types
from typing import Any
from typing import NamedTuple

import os_resource_classes

from cellsched import exception
from cellsched.objects import resource_class
from cellsched import plugins

LOG = logging.getLogger(__name__)

#: The largest amount of a resource class, in its unit.
AMOUNT_MAX = 2 ** 31 - 1

#: In error messages: the valid classes.
CLASSES = ('a resource class of os-resource-classes, or CUSTOM_ and capital '
           'letters, digits and _')

_KNOWN = frozenset(os_resource_classes.STANDARDS)
_CUSTOM = re.compile(r'CUSTOM_[A-Z0-9_]{1,248}')

#: Units by the suffix of the class name.
_UNITS = {
    '_GB': 'GB', '_MB': 'MB', '_KB': 'kB',
    '_KILOBIT_PER_SEC': 'kbit/s', '_KILOPACKET_PER_SEC': 'kpacket/s'}

#: The most characters of a class's noun and of its unit.
_WORD_MAX = 40


class VCPU(resource_class.ResourceClass):
    """Virtual CPUs that share physical CPUs."""

    word = 'CPUs'
    unit = 'VCPU'


class PCPU(resource_class.ResourceClass):
    """Dedicated CPUs: each virtual CPU has a physical one."""

    word = 'dedicated CPUs'
    unit = 'PCPU'


class Memory(resource_class.ResourceClass):
    """Memory."""

    word = 'memory'
    unit = 'MB'


class Disk(resource_class.ResourceClass):
    """Disk space."""

    word = 'disk'
    unit = 'GB'


class PCIDevice(resource_class.ResourceClass):
    """PCI devices."""


class NetworkFunction(resource_class.ResourceClass):
    """Virtual functions of network cards."""


class NUMASocket(resource_class.ResourceClass):
    """Sockets of a NUMA topology."""


class NUMACore(resource_class.ResourceClass):
    """Cores of a NUMA topology."""


class NUMAThread(resource_class.ResourceClass):
    """Threads of a NUMA topology."""


class NUMAMemory(resource_class.ResourceClass):
    """Memory of a NUMA topology."""

    unit = 'MB'


class IPv4Address(resource_class.ResourceClass):
    """Addresses of a network."""


class VirtualGPU(resource_class.ResourceClass):
    """Virtual graphics processors."""


class DisplayHead(resource_class.ResourceClass):
    """Heads of virtual graphics processors."""


class EgressBandwidth(resource_class.ResourceClass):
    """Bandwidth of outgoing traffic."""

    word = 'outgoing bandwidth'
    unit = 'kbit/s'


class IngressBandwidth(resource_class.ResourceClass):
    """Bandwidth of incoming traffic."""

    word = 'incoming bandwidth'
    unit = 'kbit/s'


class PacketRate(resource_class.ResourceClass):
    """Rate of packets in both directions."""

    word = 'packet rate'
    unit = 'kpacket/s'


class EgressPacketRate(resource_class.ResourceClass):
    """Rate of outgoing packets."""

    word = 'outgoing packet rate'
    unit = 'kpacket/s'


class IngressPacketRate(resource_class.ResourceClass):
    """Rate of incoming packets."""

    word = 'incoming packet rate'
    unit = 'kpacket/s'


class EncryptionContext(resource_class.ResourceClass):
    """Servers whose memory is encrypted."""


class FPGA(resource_class.ResourceClass):
    """Field-programmable gate arrays."""


class PhysicalGPU(resource_class.ResourceClass):
    """Physical graphics processors."""


#: The classes by name, available without any other package.
STANDARD: Mapping[str, resource_class.ResourceClass] = types.MappingProxyType({
    'VCPU': VCPU(),
    'PCPU': PCPU(),
    'MEMORY_MB': Memory(),
    'DISK_GB': Disk(),
    'PCI_DEVICE': PCIDevice(),
    'SRIOV_NET_VF': NetworkFunction(),
    'NUMA_SOCKET': NUMASocket(),
    'NUMA_CORE': NUMACore(),
    'NUMA_THREAD': NUMAThread(),
    'NUMA_MEMORY_MB': NUMAMemory(),
    'IPV4_ADDRESS': IPv4Address(),
    'VGPU': VirtualGPU(),
    'VGPU_DISPLAY_HEAD': DisplayHead(),
    'NET_BW_EGR_KILOBIT_PER_SEC': EgressBandwidth(),
    'NET_BW_IGR_KILOBIT_PER_SEC': IngressBandwidth(),
    'NET_PACKET_RATE_KILOPACKET_PER_SEC': PacketRate(),
    'NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC': EgressPacketRate(),
    'NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC': IngressPacketRate(),
    'MEM_ENCRYPTION_CONTEXT': EncryptionContext(),
    'FPGA': FPGA(),
    'PGPU': PhysicalGPU(),
})

#: The defaults, for a class without a plug-in.
_PLAIN = resource_class.ResourceClass()


class InstalledClasses(NamedTuple):
    """Resource classes of other packages.

    :param usable: by name
    :param broken: names of classes that cannot be loaded
    """

    usable: dict[str, resource_class.ResourceClass]
    broken: frozenset[str]


def is_known(name: str) -> bool:
    """Return whether a string is the name of a resource class."""
    return name in _KNOWN or _CUSTOM.fullmatch(name) is not None


@functools.cache
def load() -> InstalledClasses:
    """Return the installed classes of other packages; cached.

    No option enables them. A broken class is named in the log and affects
    only requests for it.
    """
    usable, broken = plugins.load_installed(plugins.RESOURCE_CLASSES, _load)
    for problem in broken.values():
        LOG.error('Resource class cannot be used: %s', problem)
    return InstalledClasses(
        {name: made for name, made in usable.items()
         if name not in STANDARD},
        frozenset(broken) - STANDARD.keys())


def _load(name: str) -> resource_class.ResourceClass:
    found = plugins.load(plugins.RESOURCE_CLASSES, name)
    field = plugins.field_of(plugins.RESOURCE_CLASSES, name)
    check(field, found)
    if not is_known(name):
        raise exception.ConfigurationInvalid(
            field=field, problem=f'{name!a:.80} is not the name of a resource '
                                 'class', expected=CLASSES)
    made: resource_class.ResourceClass = plugins.attempt(
        field, 'a class that is made without arguments', found)
    return made


def check(field: str, found: Any) -> None:
    """Check that a plug-in is a resource class.

    :param field: its name in the error
    :raises cellsched.exception.ConfigurationInvalid: it is not
    """
    plugins.check_class(field, found, resource_class.ResourceClass)
    for name in 'word', 'unit':
        value = getattr(found, name)
        if not (isinstance(value, str) and value.isprintable()
                and len(value) <= _WORD_MAX):
            raise exception.ConfigurationInvalid(
                field=field, problem=f'its {name} is not valid',
                expected=f'at most {_WORD_MAX} printable characters')


def describe(name: str) -> tuple[str, str]:
    """Return the noun of a resource class in messages, and its unit."""
    found = _get(name) or _PLAIN
    return found.word or name, found.unit or _unit(name)


def _unit(name: str) -> str:
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)),
                name)


def charge(name: str, amount: int) -> int | None:
    """Return the amount that a demand takes of an inventory of a class.

    :param name: a known class
    :param amount: from 0 to :data:`AMOUNT_MAX`; zero takes zero
    :returns: None if the plug-in fails; the log has the error
    """
    found = _get(name)
    if found is None or not amount:
        return None if found is None else 0
    try:
        value: Any = found.amount_taken(amount)
        if type(value) is not int or value < amount:
            raise ValueError(f'{amount} is asked for, and {value!a:.80} is no '
                             'whole number of at least that')
    except exception.STOPS:
        raise
    except BaseException:
        LOG.exception('Resource class %s failed', name)
        return None
    return value


def _get(name: str) -> resource_class.ResourceClass | None:
    """Return a class; None if it cannot be loaded."""
    found = STANDARD.get(name)
    if found is not None:
        return found
    installed = load()
    if name in installed.broken:
        return None
    return installed.usable.get(name, _PLAIN)
