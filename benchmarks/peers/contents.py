# SPDX-License-Identifier: Apache-2.0
"""Hosts of a deployment in the databases of Nova and Placement.

A host has a service and a compute node in the database of its cell, a mapping
in the API database, and a provider in Placement, which can have child
providers. The hosts differ in size and run no servers yet.

Three simplifications are an advantage for Nova. By default, the hosts have no
NUMA topology and no PCI devices. Their providers have only the two traits that
Nova requests, where real ones have dozens. The usage of a host belongs to one
consumer, where real hosts have one for each server.
"""

import datetime
import itertools
import json
import pathlib
import random
import sys
import uuid

from nova import context
from nova.db.api import models as api_models
from nova.db.main import models
from nova import objects
import os_traits
from placement.db.sqlalchemy import models as placement_models
import sqlalchemy

import servers

TRAITS = (os_traits.COMPUTE_NODE, os_traits.OWNER_NOVA)

#: Resource class, field of a host, reserved amount, allocation ratio.
INVENTORIES = (
    ('VCPU', 'vcpus', 0, 4.0), ('MEMORY_MB', 'memory_mb', 512, 1.0),
    ('DISK_GB', 'local_gb', 0, 1.0), ('PCPU', 'pcpus', 0, 1.0))

CPU_INFO = json.dumps({
    'arch': 'x86_64', 'vendor': 'Intel', 'model': 'Cascadelake-Server',
    'topology': {'cells': 2, 'sockets': 1, 'cores': 16, 'threads': 2},
    'features': ['aes', 'avx', 'avx2', 'sse4.2', 'vmx']})

SUPPORTED = json.dumps([['x86_64', 'kvm', 'hvm'], ['i686', 'kvm', 'hvm']])

STATS = json.dumps({
    'num_instances': '0', 'io_workload': '0', 'failed_builds': '0'})


def make_hosts(count, cells, seed=0, shapes=0):
    """Return a list of hosts for each cell.

    :param shapes: the number of kinds of hosts with NUMA cells and devices,
        which are half used; they need this project in ``PYTHONPATH``
    """
    random_source = random.Random(seed)
    made = [[] for _ in range(cells)]
    for number in range(count):
        vcpus = random_source.choice([32, 48, 64, 96, 128])
        made[number % cells].append({
            'host': f'host-{number:06}',
            'uuid': str(uuid.UUID(
                int=random_source.getrandbits(128), version=4)),
            'vcpus': vcpus,
            'memory_mb': vcpus * 1024 * random_source.choice([4, 6, 8]),
            'local_gb': vcpus * random_source.choice([25, 50, 100]),
            'used': {name: 0 for name, *_ in INVENTORIES}, 'children': [],
        })
    if shapes:
        add_hardware([host for members in made for host in members], shapes)
    return made


def add_hardware(hosts, shapes):
    """Add NUMA cells and PCI devices, half of which are used."""
    sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
    from cellsched.hardware import documents
    import hardware_shapes
    import numpy as np

    source = np.random.default_rng(0)
    for host in hosts:
        shape = hardware_shapes.topology(int(source.integers(0, shapes)))
        used = hardware_shapes.half_used(shape, source)
        host['numa_topology'] = json.dumps(documents.written_host(used))
        host['pci_stats'] = json.dumps(documents.written_pools(
            hardware_shapes.pools(shape, source)))
        host['pcpus'] = sum(len(cell.pcpus) for cell in shape.cells)
        host['memory_mb'] = 512 + sum(
            cell.memory_mb for cell in shape.cells)
        host['used'].update(
            PCPU=sum(len(cell.pinned) for cell in used.cells),
            MEMORY_MB=sum(cell.memory_usage for cell in used.cells))


def port_requests(count):
    """Return the requests of SR-IOV ports; see :func:`add_hardware`."""
    import hardware_shapes

    return objects.InstancePCIRequests.obj_from_primitive(
        hardware_shapes.ports(count))


def map_cells(api_url, cell0_url, urls, hosts):
    """Write the mappings of cells and of their hosts."""
    ctxt = context.get_admin_context()
    objects.CellMapping(
        ctxt, uuid=objects.CellMapping.CELL0_UUID, name='cell0',
        database_connection=cell0_url, transport_url='none:///').create()
    rows = []
    for number, (url, members) in enumerate(zip(urls, hosts)):
        cell = objects.CellMapping(
            ctxt, uuid=str(uuid.uuid4()), name=f'cell-{number}',
            database_connection=url, transport_url='none:///')
        cell.create()
        rows += [{'host': host['host'], 'cell_id': cell.id}
                 for host in members]
    insert(api_url, {api_models.HostMapping: rows})


def write_cell(url, hosts):
    """Write the services and compute nodes of a cell."""
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    insert(url, {
        models.Service: [{
            'created_at': now, 'deleted': 0, 'uuid': str(uuid.uuid4()),
            'host': host['host'], 'binary': 'nova-compute',
            'topic': 'compute', 'report_count': 1, 'disabled': False,
            'last_seen_up': now, 'forced_down': False,
            'version': objects.service.SERVICE_VERSION,
        } for host in hosts],
        models.ComputeNode: [{
            'created_at': now, 'updated_at': now, 'deleted': 0,
            'uuid': host['uuid'], 'host': host['host'],
            'hypervisor_hostname': host['host'], 'vcpus': host['vcpus'],
            'vcpus_used': host['used']['VCPU'],
            'memory_mb': host['memory_mb'],
            'memory_mb_used': 512 + host['used']['MEMORY_MB'],
            'free_ram_mb':
                host['memory_mb'] - 512 - host['used']['MEMORY_MB'],
            'local_gb': host['local_gb'],
            'local_gb_used': host['used']['DISK_GB'],
            'free_disk_gb': host['local_gb'] - host['used']['DISK_GB'],
            'disk_available_least':
                host['local_gb'] - host['used']['DISK_GB'],
            'hypervisor_type': 'QEMU', 'hypervisor_version': 7002000,
            'current_workload': 0, 'running_vms': 0,
            'cpu_info': CPU_INFO, 'supported_instances': SUPPORTED,
            'host_ip': servers.ADDRESS, 'metrics': '[]', 'stats': STATS,
            'cpu_allocation_ratio': 4.0, 'ram_allocation_ratio': 1.0,
            'disk_allocation_ratio': 1.0, 'mapped': 1,
            'numa_topology': host.get('numa_topology'),
            'pci_stats': host.get('pci_stats'),
        } for host in hosts],
    })


def write_providers(url, hosts):
    """Write the providers of all hosts, with inventories and traits.

    The resource classes and traits must already exist in Placement.
    """
    hosts = [host for members in hosts for host in members]
    providers = list(make_providers(hosts))
    classes, traits = (
        known(url, model) for model in (placement_models.ResourceClass,
                                        placement_models.Trait))
    insert(url, {
        placement_models.ResourceProvider: [{
            'id': id_, 'uuid': provider['uuid'], 'name': provider['name'],
            'generation': 1, 'root_provider_id': root,
            'parent_provider_id': None if id_ == root else root,
        } for id_, root, provider in providers],
        placement_models.Inventory: [{
            'resource_provider_id': id_,
            'resource_class_id': classes[name], 'total': total,
            'reserved': reserved, 'min_unit': 1, 'max_unit': total,
            'step_size': 1, 'allocation_ratio': ratio,
        } for id_, _, provider in providers
            for name, total, reserved, ratio in provider['inventories']],
        placement_models.ResourceProviderTrait: [{
            'resource_provider_id': id_, 'trait_id': traits[name],
        } for id_, _, provider in providers for name in provider['traits']],
        placement_models.Project: [{'external_id': 'project'}],
        placement_models.User: [{'external_id': 'user'}],
        placement_models.Consumer: [{
            'uuid': consumer(root), 'project_id': 1, 'user_id': 1,
            'generation': 1,
        } for root in sorted({root for _, root, provider in providers
                              if any(provider['used'].values())})],
        placement_models.Allocation: [{
            'resource_provider_id': id_, 'consumer_id': consumer(root),
            'resource_class_id': classes[name], 'used': used,
        } for id_, root, provider in providers
            for name, used in provider['used'].items() if used],
    })


def make_providers(hosts):
    """Yield the providers of hosts: id, id of the root, and contents."""
    ids = itertools.count(1)
    for host in hosts:
        root = next(ids)
        yield root, root, {
            'uuid': host['uuid'], 'name': host['host'], 'traits': TRAITS,
            'used': host['used'],
            'inventories': [(name, host[field], reserved, ratio)
                            for name, field, reserved, ratio in INVENTORIES
                            if field in host]}
        for child in host['children']:
            yield next(ids), root, {
                **child, 'inventories': [
                    (name, total, 0, 1.0)
                    for name, total in child['inventories'].items()]}


def consumer(root):
    """Return the uuid of the consumer of a host's usage."""
    return str(uuid.UUID(int=root, version=4))


def known(url, model):
    """Return the ids of resource classes or traits by name."""
    with servers.engine(url).connect() as connection:
        return dict(connection.execute(sqlalchemy.select(
            model.name, model.id)).all())


def insert(url, rows):
    """Insert rows by model, and update the planner's statistics."""
    with servers.engine(url).connect() as connection:
        for model, values in rows.items():
            if values:
                connection.execute(
                    sqlalchemy.insert(model.__table__), values)
            if values and 'id' in values[0]:
                # Later rows must get ids after these.
                table = model.__tablename__
                connection.execute(sqlalchemy.text(
                    f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), "
                    f'max(id)) FROM {table}'))
        connection.commit()
        connection.execution_options(isolation_level='AUTOCOMMIT')
        connection.execute(sqlalchemy.text('VACUUM ANALYZE'))
