# SPDX-License-Identifier: Apache-2.0
"""Payloads of NUMA topologies and PCI devices."""

from typing import Any

from cellsched.notify.payloads import envelope

NUMA_TOPOLOGY = envelope.Form('InstanceNUMATopologyPayload', '1.0', (
    'emulator_threads_policy',))

NUMA_CELL = envelope.Form('InstanceNUMACellPayload', '1.2', (
    'id', 'cpuset', 'pcpuset', 'cpuset_reserved', 'memory', 'pagesize',
    'cpu_pinning_raw', 'cpu_policy', 'cpu_thread_policy'))

CPU_TOPOLOGY = envelope.Form('VirtCPUTopologyPayload', '1.0', (
    'sockets', 'cores', 'threads'))

PCI_REQUESTS = envelope.Form('InstancePCIRequestsPayload', '1.0')

PCI_REQUEST = envelope.Form('InstancePCIRequestPayload', '1.1', (
    'count', 'spec', 'alias_name', 'request_id', 'numa_policy'))


def numa_topology(
    topology: Any, instance_uuid: str | None
) -> dict[str, Any] | None:
    """Return the payload of a topology, or None without one."""
    fields = envelope.fields_of(topology)
    if fields is None:
        return None
    return NUMA_TOPOLOGY.fill(
        fields, instance_uuid=fields.get('instance_uuid', instance_uuid),
        cells=[_numa_cell(envelope.fields_of(cell))
               for cell in envelope.members_of(fields.get('cells'))])


def _numa_cell(cell: dict[str, Any] | None) -> dict[str, Any] | None:
    topology = cell and CPU_TOPOLOGY.fill(
        envelope.fields_of(cell.get('cpu_topology')))
    return NUMA_CELL.fill(cell, cpu_topology=topology)


def pci_requests(
    requests: Any, instance_uuid: str | None
) -> dict[str, Any] | None:
    """Return the payload of requests for devices, or None without any."""
    fields = envelope.fields_of(requests)
    if fields is None:
        return None
    return PCI_REQUESTS.fill(
        fields, instance_uuid=fields.get('instance_uuid', instance_uuid),
        requests=[PCI_REQUEST.fill(envelope.fields_of(request))
                  for request in envelope.members_of(fields.get('requests'))])
