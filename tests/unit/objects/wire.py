# SPDX-License-Identifier: Apache-2.0
"""Objects as Nova sends them."""

UUID = '5f2b1c3e-0000-4000-8000-00000000000a'
CELL = '5f2b1c3e-0000-4000-8000-00000000000c'


def envelope(name, version, /, **data):
    return {'nova_object.name': name, 'nova_object.namespace': 'nova',
            'nova_object.version': version, 'nova_object.data': data}


def as_sent(name, version, /, **data):
    """Return an envelope as it is when every field was just set."""
    return {**envelope(name, version, **data),
            'nova_object.changes': sorted(data)}


def without_changes(primitive):
    """Return what is compared: the order of changes says nothing."""
    if isinstance(primitive, dict):
        return {key: without_changes(value)
                for key, value in primitive.items()
                if key != 'nova_object.changes'}
    if isinstance(primitive, list):
        return [without_changes(value) for value in primitive]
    return primitive


LIMITS = as_sent('SchedulerLimits', '1.0', numa_topology=None, vcpu=None,
                 disk_gb=None, memory_mb=None)

SELECTION = as_sent(
    'Selection', '1.1', compute_node_uuid=UUID, service_host='h1',
    nodename='n1', cell_uuid=CELL, limits=LIMITS, allocation_request='null',
    allocation_request_version=None, availability_zone='nova')

RETRIES = as_sent('SchedulerRetries', '1.1', num_attempts=1, hosts=as_sent(
    'ComputeNodeList', '1.17', objects=[as_sent(
        'ComputeNode', '1.19', host='h', hypervisor_hostname='n')]))

CELL_MAPPING = as_sent(
    'CellMapping', '1.1', id=2, uuid=CELL, name='cell1',
    transport_url='rabbit://u:s3cr3t@h/', disabled=False,
    database_connection='mysql+pymysql://u:s3cr3t@h/cell1')

DESTINATION = as_sent('Destination', '1.4', host='h', node=None,
                      allow_cross_cell_move=False, cell=CELL_MAPPING)

FLAVOR = as_sent(
    'Flavor', '1.2', id=1, name='m1', memory_mb=512, vcpus=1, root_gb=10,
    ephemeral_gb=1, flavorid='1', swap=1, rxtx_factor=1.0, vcpu_weight=None,
    disabled=False, is_public=True, extra_specs={'hw:cpu_policy': 'shared'},
    description=None)

IMAGE_PROPS = as_sent(
    'ImageMetaProps', '1.44', hw_architecture='x86_64', hw_numa_nodes=2,
    img_hidden=False, hw_numa_cpus=[[0], [1]], traits_required=[])

IMAGE = as_sent(
    'ImageMeta', '1.8', id=UUID, name='cirros', status='active',
    visibility='public', protected=False, checksum='c', owner='project',
    size=1, virtual_size=2, container_format='bare', disk_format='qcow2',
    created_at='2026-01-02T03:04:05Z', updated_at=None, tags=['a'],
    min_ram=0, min_disk=0, properties=IMAGE_PROPS)

GROUP = as_sent(
    'InstanceGroup', '1.11', id=3, user_id='user', project_id='project',
    uuid=UUID, name='group', policies=['anti-affinity'], members=[UUID],
    hosts=['h1'], policy='anti-affinity',
    _rules={'max_server_per_host': '2'})

#: What this project does not read, and passes on.
PCI_REQUESTS = as_sent('InstancePCIRequests', '1.1', requests=[])

REQUEST_SPEC = as_sent(
    'RequestSpec', '1.15', availability_zone='az1', flavor=FLAVOR,
    force_hosts=None, force_nodes=None, ignore_hosts=None, image=IMAGE,
    instance_group=GROUP, instance_uuid=UUID, limits=LIMITS, num_instances=1,
    numa_topology=None, pci_requests=PCI_REQUESTS, project_id='project',
    user_id='user', request_level_params=envelope('RequestLevelParams', '1.1'),
    requested_destination=None, requested_resources=[], retry=None,
    scheduler_hints={'group': [UUID], 'query': ['["=", "$x", 1]']},
    security_groups=as_sent('SecurityGroupList', '1.1', objects=[]))

HOST_MAPPING = as_sent('HostMapping', '1.0', host='h1',
                       cell_mapping=CELL_MAPPING)

INSTANCE_MAPPING = as_sent('InstanceMapping', '1.2', instance_uuid=UUID,
                           cell_mapping=None, project_id='project',
                           user_id='user')

BUILD_REQUEST = as_sent(
    'BuildRequest', '1.3', instance_uuid=UUID, project_id='project',
    instance=as_sent(
        'Instance', '2.8', uuid=UUID, project_id='project',
        display_name='one', created_at='2026-01-02T03:04:05Z', flavor=FLAVOR,
        vm_state='building', task_state='scheduling'),
    block_device_mappings=as_sent('BlockDeviceMappingList', '1.18',
                                  objects=[]),
    tags=as_sent('TagList', '1.1', objects=[]))

EMPTY_LIST = as_sent('ComputeNodeList', '1.17', objects=[])

#: Every sample, by the name of its object.
SAMPLES = {sample['nova_object.name']: sample for sample in (
    LIMITS, SELECTION, RETRIES, CELL_MAPPING, DESTINATION, FLAVOR,
    IMAGE_PROPS, IMAGE, GROUP, REQUEST_SPEC, HOST_MAPPING, INSTANCE_MAPPING,
    BUILD_REQUEST, EMPTY_LIST)}
