# SPDX-License-Identifier: Apache-2.0
"""The resource classes of os-resource-classes."""

from collections.abc import Mapping
import types

from cellsched.objects import resource_class


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
