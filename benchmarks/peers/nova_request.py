# SPDX-License-Identifier: Apache-2.0
"""Print requests in the form that Nova's conductor sends, as a JSON object.

Run this with the Python that ``environment.py`` prints. ``plain`` is a request
for an ordinary server. ``full`` has every nested object of a request.
"""

import native  # noqa: F401

import json
import uuid

from nova import objects
from nova import version


def main():
    objects.register_all()
    print(json.dumps({
        'about': 'Made by benchmarks/peers/nova_request.py with the objects '
                 f'of Nova {version.version_string()}.',
        'plain': make().obj_to_primitive(),
        'full': make(**everything()).obj_to_primitive()}, indent=1))


def make(**fields):
    return objects.RequestSpec(**{
        'id': 1, 'project_id': number(7).replace('-', ''),
        'user_id': number(8).replace('-', ''),
        'flavor': flavor(), 'image': image(), 'numa_topology': None,
        'pci_requests': objects.InstancePCIRequests(
            instance_uuid=number(1), requests=[]),
        'availability_zone': None, 'num_instances': 1,
        'ignore_hosts': None, 'force_hosts': None, 'force_nodes': None,
        'requested_destination': None, 'retry': None,
        'limits': objects.SchedulerLimits(
            vcpu=None, disk_gb=None, memory_mb=None, numa_topology=None),
        'instance_group': None, 'scheduler_hints': {},
        'instance_uuid': number(1),
        'security_groups': objects.SecurityGroupList(objects=[]),
        'network_metadata': objects.NetworkMetadata(
            physnets=set(), tunneled=False),
        'requested_networks': objects.NetworkRequestList(objects=[
            objects.NetworkRequest(network_id=number(4))]),
        'is_bfv': False, 'requested_resources': [],
        'request_level_params': objects.RequestLevelParams(), **fields})


def everything():
    """Return the fields that a plain request leaves empty."""
    members = [number(20 + member) for member in range(10)]
    return {
        'numa_topology': objects.InstanceNUMATopology(
            instance_uuid=number(1), cells=[objects.InstanceNUMACell(
                id=0, cpuset={0, 1}, pcpuset=set(), memory=2048,
                cpu_policy='shared')]),
        'pci_requests': objects.InstancePCIRequests(
            instance_uuid=number(1), requests=[objects.InstancePCIRequest(
                count=1, spec=[{'vendor_id': '8086'}], alias_name='card',
                is_new=False, request_id=number(2), numa_policy='legacy')]),
        'availability_zone': 'nova', 'ignore_hosts': ['host7'],
        'requested_destination': objects.Destination(
            host='host1', node='host1', allow_cross_cell_move=False,
            aggregates=[number(30)], forbidden_aggregates={number(31)},
            cell=objects.CellMapping(
                id=2, uuid=number(9), name='cell1', disabled=False,
                transport_url='rabbit://user:secret@broker:5672/cell1',
                database_connection='mysql+pymysql://nova:secret@db/cell1')),
        'retry': objects.SchedulerRetries(
            num_attempts=1, hosts=objects.ComputeNodeList(objects=[
                objects.ComputeNode(host='host2',
                                    hypervisor_hostname='host2')])),
        'instance_group': objects.InstanceGroup(
            id=1, uuid=number(3), user_id='user', project_id='project',
            name='group', policy='anti-affinity', members=members,
            _rules={'max_server_per_host': '2'}, hosts=['host5', 'host6']),
        'scheduler_hints': {'group': [number(3)], 'same_host': members[:2]},
        'network_metadata': objects.NetworkMetadata(
            physnets={'physnet1'}, tunneled=True),
        'requested_resources': [objects.RequestGroup(
            requester_id=number(4), use_same_provider=True,
            resources={'NET_BW_EGR_KILOBIT_PER_SEC': 1000},
            required_traits={'CUSTOM_PHYSNET1'})],
        'request_level_params': objects.RequestLevelParams(
            root_required={'COMPUTE_NODE'})}


def flavor():
    return objects.Flavor(
        id=1, flavorid='1', name='m1.small', memory_mb=2048, vcpus=2,
        root_gb=20, ephemeral_gb=0, swap=0, rxtx_factor=1.0, vcpu_weight=0,
        disabled=False, is_public=True, projects=[], description=None,
        extra_specs={'hw:cpu_policy': 'shared', 'quota:cpu_shares': '512'})


def image():
    return objects.ImageMeta(
        id=number(5), name='image', status='active', visibility='public',
        protected=False, checksum='a' * 32, owner=number(6), size=1000,
        container_format='bare', disk_format='qcow2', tags=['a', 'b'],
        min_ram=0, min_disk=0, properties=objects.ImageMetaProps(
            hw_architecture='x86_64', hw_disk_bus='virtio',
            hw_vif_model='virtio', img_hv_type='kvm', os_distro='ubuntu'))


def number(value):
    return str(uuid.UUID(int=value))


if __name__ == '__main__':
    main()
