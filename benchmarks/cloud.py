# SPDX-License-Identifier: Apache-2.0
"""Hosts and requests that cellsched and Nova decide on.

``document`` and ``request_document`` return them in the form that both sides
read. ``table`` and ``request`` convert them to objects of this project.
"""

import json
import uuid

import hardware_shapes
import numpy as np

from cellsched.hardware import documents
from cellsched.hosts import aggregate
from cellsched.hosts import columns
from cellsched.hosts.table import HostTable
from cellsched.testing import builders

#: Metadata of the aggregates, in turn.
METADATA = (
    {}, {'ssd': 'true'}, {'ssd': 'true', 'max_io_ops_per_host': '7'},
    {'filter_tenant_id': 'other'}, {'ssd': 'true', 'os_type': 'linux,bsd'},
    {'ssd': 'true', 'instance_type': 'medium,large'})


def document(parameters):
    """Return random hosts of a few sizes, partly used, some down or disabled.

    :param parameters: ``hosts``, ``cells``, ``zones``, ``aggregates``,
        ``seed``, ``fill`` with the smallest and the largest used share, and
        ``shapes``, the number of kinds of hosts that report NUMA cells and
        PCI devices
    """
    random = np.random.default_rng(parameters['seed'])
    count, cells = parameters['hosts'], parameters['cells']
    vcpus = random.choice([32, 64, 128], count)
    used = random.uniform(*parameters['fill'], count)
    free = 1 - used * random.uniform(0.8, 1.0, (2, count))
    aggregates, zones = groups_of(parameters)
    hosts = []
    for number in range(count):
        cell = number * cells // count
        groups = [zones[cell % len(zones)]['id']]
        if aggregates:
            groups.insert(0, aggregates[number % len(aggregates)]['id'])
        ram_mb, disk_gb = int(vcpus[number]) * 4096, int(vcpus[number]) * 40
        free_gb = int(disk_gb * free[1, number])
        hosts.append({
            'host': f'host{number}', 'nodename': f'host{number}',
            'uuid': str(uuid.UUID(int=number + 1)),
            'cell_uuid': str(uuid.UUID(int=2 ** 64 + cell)),
            'vcpus_total': int(vcpus[number]),
            'vcpus_used': int(vcpus[number] * 4 * used[number]),
            'cpu_allocation_ratio': 4.0,
            'total_usable_ram_mb': ram_mb,
            'free_ram_mb': int(ram_mb * free[0, number]),
            'ram_allocation_ratio': 1.0,
            'total_usable_disk_gb': disk_gb, 'free_disk_mb': free_gb * 1024,
            'disk_mb_used': (disk_gb - free_gb) * 1024,
            'disk_allocation_ratio': 1.0,
            'num_instances': int(vcpus[number] * used[number] // 4),
            'num_io_ops': int(random.integers(0, 9)),
            'failed_builds': int(random.random() < 0.02),
            'hypervisor_type': 'QEMU',
            'hypervisor_version': int(random.choice([8002000, 9000000])),
            'cpu_info': json.dumps({'arch': 'x86_64', 'vendor': 'Intel'}),
            'supported_instances': [['x86_64', 'kvm', 'hvm']],
            'stats': {}, 'disabled': bool(random.random() < 0.01),
            'forced_down': False,
            'last_seen_up': builders.NOW - (
                600.0 if random.random() < 0.01 else 5.0),
            'aggregates': groups,
            'instances': [str(uuid.UUID(int=2 ** 80 + number))]})
    if parameters.get('shapes'):
        add_hardware(hosts, parameters['shapes'], random)
    return {'now': builders.NOW, 'hosts': hosts,
            'aggregates': [*aggregates, *zones]}


def add_hardware(hosts, shapes, random):
    """Add NUMA cells and PCI devices, which are half used."""
    shape = [hardware_shapes.topology(number) for number in range(shapes)]
    for host in hosts:
        cells = shape[random.integers(0, shapes)]
        host['numa_topology'] = documents.written_host(
            hardware_shapes.half_used(cells, random))
        host['pci_stats'] = documents.written_pools(
            hardware_shapes.pools(cells, random))


def groups_of(parameters):
    """Return the aggregates, and those with an availability zone apart."""
    aggregates = [
        {'id': number + 1, 'uuid': str(uuid.UUID(int=2 ** 96 + number)),
         'name': f'aggregate{number}',
         'metadata': METADATA[number % len(METADATA)]}
        for number in range(parameters.get('aggregates', 0))]
    zones = [
        {'id': len(aggregates) + number + 1,
         'uuid': str(uuid.UUID(int=2 ** 97 + number)), 'name': f'az{number}',
         'metadata': {'availability_zone': f'zone{number}'}}
        for number in range(parameters['zones'])]
    return aggregates, zones


def table(contents, kind=HostTable):
    """Return a host table of a document, and the host of each instance."""
    hosts = contents['hosts']
    aggregates = {each['id']: aggregate.HostAggregate(**each)
                  for each in contents['aggregates']}

    def column(name, of=lambda value: value):
        return [of(host[name]) for host in hosts]

    result = kind(columns.STANDARD)
    same = ('host', 'nodename', 'vcpus_total', 'vcpus_used',
            'cpu_allocation_ratio', 'total_usable_ram_mb', 'free_ram_mb',
            'ram_allocation_ratio', 'total_usable_disk_gb', 'free_disk_mb',
            'disk_mb_used', 'disk_allocation_ratio', 'num_instances',
            'num_io_ops', 'failed_builds', 'hypervisor_type',
            'hypervisor_version', 'cpu_info', 'forced_down', 'last_seen_up')
    pools = [documents.device_pools(host.get('pci_stats')) for host in hosts]
    topologies = [documents.host_topology(host.get('numa_topology'))
                  for host in hosts]
    groups = {}
    for host in hosts:
        key = tuple(host['aggregates'])
        groups.setdefault(key, tuple(aggregates[each] for each in key))
    result.put(column('uuid'), {
        **{name: column(name) for name in same},
        'numa_topology': topologies,
        'device_pools': pools,
        'free_pci_devices': [
            sum(pool.count for pool in each) for each in pools],
        'cell': column('cell_uuid'), 'service_disabled': column('disabled'),
        'supported_instances': column(
            'supported_instances', lambda all_: tuple(map(tuple, all_))),
        'stats': column('stats', json.dumps),
        'aggregates': column('aggregates', lambda ids: groups[tuple(ids)]),
        'availability_zone': column('aggregates', lambda ids: next(
            aggregates[each].metadata['availability_zone'] for each in ids
            if 'availability_zone' in aggregates[each].metadata)),
        'unreserved_ram_mb': column('total_usable_ram_mb'),
        'unreserved_disk_mb': column('total_usable_disk_gb',
                                     lambda size: size * 1024),
        'available:VCPU': [
            int(host['vcpus_total'] * host['cpu_allocation_ratio'])
            - host['vcpus_used'] for host in hosts],
        'available:PCPU': [
            sum(len(cell.free_pcpus) for cell in cells.cells) if cells else 0
            for cells in topologies],
        'available:MEMORY_MB': column('free_ram_mb'),
        'available:DISK_GB': column('free_disk_mb', lambda size: size // 1024),
    })
    located = {instance: host['uuid'] for host in hosts
               for instance in host['instances']}
    return result, located


def request_document(parameters):
    """Return a request in the form that both sides read.

    :param parameters: fields of the flavor, ``image`` with properties,
        ``availability_zone``, ``hints``, ``group`` with a policy and the
        number of ``members``, and ``devices`` or ``ports``, a number of PCI
        devices or SR-IOV ports
    """
    fields = dict(parameters)
    devices = [make(fields.pop(name)) for name, make in (
        ('devices', hardware_shapes.request),
        ('ports', hardware_shapes.ports)) if name in fields]
    group = fields.pop('group', None)
    if group is not None:
        step = 997
        group = {'uuid': str(uuid.UUID(int=3)), 'policy': group['policy'],
                 'members': [str(uuid.UUID(int=2 ** 80 + number * step))
                             for number in range(group['members'])],
                 'hosts': [f'host{number * step}'
                           for number in range(group['members'])],
                 'rules': {}}
    image = fields.pop('image', None)
    return {
        **({'pci_requests': devices[0]} if devices else {}),
        'project_id': 'project', 'user_id': 'user',
        'image': None if image is None else {
            'id': str(uuid.UUID(int=2)), 'properties': image},
        'availability_zone': fields.pop('availability_zone', None),
        'scheduler_hints': fields.pop('hints', {}), 'instance_group': group,
        'instance_uuid': str(uuid.UUID(int=2 ** 81)), 'ignore_hosts': [],
        'num_instances': 1,
        'flavor': {'name': 'medium', 'ephemeral_gb': 0, 'swap': 0,
                   'extra_specs': {}, **fields}}


def request(contents):
    """Return the request object of a request document."""
    group = contents['instance_group']
    return builders.request(
        **contents['flavor'], hints=contents['scheduler_hints'],
        image=contents['image'] and dict(contents['image']),
        availability_zone=contents['availability_zone'],
        instance_uuid=contents['instance_uuid'],
        pci_requests=contents.get('pci_requests'),
        **({'group': group} if group else {}))
