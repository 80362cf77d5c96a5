# SPDX-License-Identifier: Apache-2.0
"""A request with a value for every field of a notification."""

from cellsched import exception
from cellsched import objects
from tests.unit.objects import wire

INSTANCE = '1b4b2f3e-6d8a-4f7c-9b52-0d3c5e7a9f10'
OTHER = '2c5d7e90-3b1f-4a68-8e24-6f9a0b1c2d3e'
GROUP = '7f2e4d6c-8a90-4b1c-9d3e-5f60718293a4'
CELL = '9a8b7c6d-5e4f-4a3b-8c2d-1e0f9a8b7c6d'
IMAGE = 'd3b07384-d9a0-4c9b-8f3a-2b6e5c4d3f21'
KEY = '5ec2e75e-0000-4000-8000-00000000000a'

#: Texts that no notification may contain.
SECRETS = ('s3cret', KEY)


def request(**changes):
    """Return the request as a scheduler gets it."""
    return objects.RequestSpec.obj_from_primitive(
        wire.envelope('RequestSpec', '1.15', **{**FIELDS, **changes}))


FLAVOR = wire.envelope(
    'Flavor', '1.2', id=1, name='m1.small', memory_mb=2048, vcpus=1,
    root_gb=20, ephemeral_gb=0, flavorid='2', swap=0, rxtx_factor=1.0,
    vcpu_weight=0, disabled=False, is_public=True,
    extra_specs={'hw:cpu_policy': 'dedicated'}, description=None)

IMAGE_META = wire.envelope(
    'ImageMeta', '1.8', id=IMAGE, name='debian-12', status='active',
    visibility='public', protected=False, checksum='9c1185a5c5e9fc54',
    owner='images', size=2147483648, container_format='bare',
    disk_format='qcow2', created_at='2026-01-02T03:04:05Z', updated_at=None,
    tags=['server'], direct_url='swift://images:s3cret@store.test/debian-12',
    min_ram=512, min_disk=10,
    properties=wire.envelope(
        'ImageMetaProps', '1.44', hw_architecture='x86_64', hw_numa_nodes=1,
        hw_ephemeral_encryption_secret_uuid=KEY))

NUMA_TOPOLOGY = wire.envelope(
    'InstanceNUMATopology', '1.3', emulator_threads_policy=None,
    cells=[wire.envelope(
        'InstanceNUMACell', '1.6', id=0, cpuset=[], pcpuset=[0],
        cpuset_reserved=None, memory=2048, pagesize=None,
        cpu_topology=wire.envelope(
            'VirtCPUTopology', '1.0', sockets=1, cores=1, threads=1),
        cpu_pinning_raw=None, cpu_policy='dedicated',
        cpu_thread_policy=None)])

PCI_REQUESTS = wire.envelope(
    'InstancePCIRequests', '1.1', instance_uuid=INSTANCE,
    requests=[wire.envelope(
        'InstancePCIRequest', '1.4', count=1,
        spec=[{'vendor_id': '8086', 'product_id': '154d'}], alias_name='nic',
        is_new=False, request_id=None, requester_id=None,
        numa_policy='legacy')])

SERVER_GROUP = wire.envelope(
    'InstanceGroup', '1.11', id=3, user_id='alice', project_id='shop',
    uuid=GROUP, name='web', policies=['anti-affinity'], members=[INSTANCE],
    hosts=['host7'], policy='anti-affinity',
    _rules={'max_server_per_host': '2'})

DESTINATION = wire.envelope(
    'Destination', '1.4', host='host1', node='node1',
    cell=wire.envelope(
        'CellMapping', '1.1', id=4, uuid=CELL, name='cell1', disabled=False,
        transport_url='rabbit://cell:s3cret@mq.test/cell1',
        database_connection='mysql://cell:s3cret@db.test/cell1'),
    aggregates=['1,2'], allow_cross_cell_move=False,
    forbidden_aggregates=None)

RETRY = wire.envelope(
    'SchedulerRetries', '1.1', num_attempts=2, hosts=wire.envelope(
        'ComputeNodeList', '1.17', objects=[wire.envelope(
            'ComputeNode', '1.19', host='host9',
            hypervisor_hostname='node9')]))

SECURITY_GROUPS = wire.envelope(
    'SecurityGroupList', '1.1', objects=[
        wire.envelope('SecurityGroup', '1.2', name='default'),
        wire.envelope('SecurityGroup', '1.2', name='web', uuid=OTHER)])

FIELDS = {
    'availability_zone': 'az1', 'flavor': FLAVOR, 'force_hosts': None,
    'force_nodes': None, 'ignore_hosts': ['host3'], 'image': IMAGE_META,
    'instance_group': SERVER_GROUP, 'instance_uuid': INSTANCE,
    'is_bfv': False, 'num_instances': 2, 'numa_topology': NUMA_TOPOLOGY,
    'pci_requests': PCI_REQUESTS, 'project_id': 'shop', 'user_id': 'alice',
    'requested_destination': DESTINATION, 'retry': RETRY,
    'scheduler_hints': {'group': [GROUP]},
    'security_groups': SECURITY_GROUPS,
}


INSTANCE_FIELDS = {
    'uuid': INSTANCE, 'project_id': 'shop', 'user_id': 'alice',
    'display_name': 'till', 'image_ref': IMAGE, 'launch_index': 0,
    'vm_state': 'building', 'task_state': 'scheduling', 'power_state': 0,
    'vcpus': 1, 'memory_mb': 2048, 'root_gb': 20, 'ephemeral_gb': 5,
    'instance_type_id': 1, 'host': None, 'node': None,
    'availability_zone': 'az1', 'reservation_id': 'r-a1b2c3d4',
    'created_at': '2026-01-02T03:04:05Z', 'launched_at': None,
    'terminated_at': None, 'build_attempts': 1, 'flavor': FLAVOR,
}

#: Where an error comes up, so that it looks the same everywhere.
_RAISING = compile('''\
def do():
    raise NoValidHost(reason='There are not enough hosts available.')
''', 'lib/cellsched/conductor/deciding.py', 'exec')


def instance(**changes):
    """Return a server as a conductor has it."""
    return objects.Instance.obj_from_primitive(wire.envelope(
        'Instance', '2.8', **{**INSTANCE_FIELDS, **changes}))


def reason(kind=exception.NoValidHost):
    """Return an error that was raised by a conductor."""
    module = {'__name__': 'cellsched.conductor.deciding',
              'NoValidHost': kind}
    exec(_RAISING, module)
    try:
        module['do']()
    except Exception as exc:
        return exc.with_traceback(exc.__traceback__.tb_next)
