# SPDX-License-Identifier: Apache-2.0
"""Measure the decisions of Nova's HostManager; print one JSON object.

Run this with the Python that ``environment.py`` prints. It reads the files
that ``inputs.py`` describes. It needs no database, broker or network: a
decision is a call of ``get_filtered_hosts`` and ``get_weighed_hosts`` with
HostState objects that were created once before.

The passed hosts and their weights come from a separate decision at the time in
the file of hosts. For the measured decisions, the times of the services are
moved to the present, so that Nova's clock does not have to be patched. Only
errors are logged, which is an advantage for Nova.
"""

import native  # noqa: F401

import argparse
import datetime
import json
import logging
import sys
import time
from unittest import mock

from nova import config
from nova import exception
from nova import objects
from nova.pci import stats as pci_stats
from nova.scheduler import host_manager
from nova.scheduler import weights
from nova import version
from nova.virt import hardware
from oslo_utils import timeutils

import inputs

CONF = config.CONF

#: Names that are the same in the file and in a HostState.
SAME = (
    'uuid', 'vcpus_total', 'vcpus_used', 'cpu_allocation_ratio',
    'total_usable_ram_mb', 'free_ram_mb', 'ram_allocation_ratio',
    'total_usable_disk_gb', 'free_disk_mb', 'disk_mb_used',
    'disk_allocation_ratio', 'num_instances', 'num_io_ops', 'failed_builds',
    'hypervisor_type', 'hypervisor_version', 'cpu_info',
    'supported_instances', 'stats')


class HostManager(host_manager.HostManager):
    """A HostManager that knows only what is in the file."""

    def refresh_cells_caches(self):
        self.cells, self.enabled_cells, self.host_to_cell_uuid = {}, [], {}

    def _init_aggregates(self):
        pass

    def _init_instance_info(self, computes_by_cell=None):
        pass


def main(argv=None):
    args = parse(argv)
    # Ignore configuration files of Nova on this machine.
    CONF([], project='nova', default_config_files=[], default_config_dirs=[])
    logging.basicConfig(level=logging.ERROR)
    objects.register_all()
    try:
        if args.repeat < 1:
            raise ValueError('--repeat: expected a number above 0')
        contents = inputs.load_hosts(args.hosts)
        request = inputs.load_request(args.request)
        try:
            make_request(request)
        except (ValueError, TypeError) as exc:
            raise ValueError(f'{args.request}: {exc}') from exc
        configure(args)
        manager = HostManager()
        states = make_states(contents)
        passed, ordered = verdict(manager, contents, states, request)
    except (OSError, ValueError, TypeError, exception.NovaException) as exc:
        print(f'{sys.argv[0]}: {exc}', file=sys.stderr)
        return 1
    print(json.dumps({
        'samples': [sample(manager, contents, states, request)
                    for _ in range(args.repeat)],
        'passed': [[state.host, state.nodename] for state in passed],
        'weights': {item.obj.host: item.weight for item in ordered},
        'nova': version.version_string(),
    }))
    return 0


def parse(argv):
    parser = argparse.ArgumentParser(description="Measure Nova's decisions.")
    parser.add_argument('hosts', metavar='HOSTS.json')
    parser.add_argument('request', metavar='REQUEST.json')
    parser.add_argument(
        '--filters', metavar='NAME,NAME', help="default: Nova's default")
    parser.add_argument(
        '--weighers', metavar='NAME,NAME', default='all',
        help='classes, or "all" (default)')
    parser.add_argument('--repeat', type=int, default=5, metavar='N')
    parser.add_argument(
        '--option', action='append', default=[], metavar='GROUP.NAME=VALUE',
        help='set an option of Nova; can be given several times')
    return parser.parse_args(argv)


def configure(args):
    """Set the options of Nova from the arguments."""
    for option in args.option:
        name, equals, value = option.partition('=')
        group, point, name = name.rpartition('.')
        try:
            if not (equals and point):
                raise ValueError('expected GROUP.NAME=VALUE')
            CONF.set_override(
                name, value, None if group == 'DEFAULT' else group)
        except Exception as exc:
            raise ValueError(f'--option {option}: {exc}') from exc
    if args.filters is not None:
        CONF.set_override('enabled_filters', list(filter(
            None, args.filters.split(','))), 'filter_scheduler')
    if args.weighers != 'all':
        known = {kind.__name__: f'{kind.__module__}.{kind.__name__}'
                 for kind in weights.all_weighers()}
        names = [name for name in args.weighers.split(',') if name]
        for name in names:
            if name not in known:
                raise ValueError(f'--weighers {name}: expected one of '
                                 + ', '.join(sorted(known)))
        CONF.set_override('weight_classes', [known[name] for name in names],
                          'filter_scheduler')


def make_states(contents):
    """Return a HostState for each host of the file, in its order."""
    aggregates = {
        aggregate['id']: objects.Aggregate(
            id=aggregate['id'], uuid=aggregate['uuid'],
            name=aggregate['name'], metadata=aggregate['metadata'],
            hosts=[host['host'] for host in contents['hosts']
                   if aggregate['id'] in host['aggregates']])
        for aggregate in contents['aggregates']}
    states = []
    for host in contents['hosts']:
        state = host_manager.HostState(
            host['host'], host['nodename'], host['cell_uuid'])
        for name in SAME:
            setattr(state, name, host[name])
        state.host_ip = host.get('host_ip')
        state.hypervisor_hostname = host['nodename']
        state.metrics = objects.MonitorMetricList.from_json(None)
        set_hardware(state, host)
        state.aggregates = [aggregates[id_] for id_ in host['aggregates']]
        state.instances = {uuid: objects.Instance(uuid=uuid)
                           for uuid in host['instances']}
        states.append(state)
    return states


def set_hardware(state, host):
    """Set the NUMA cells and the PCI devices of a host."""
    topology, pools = host.get('numa_topology'), host.get('pci_stats')
    cells = None
    if topology is not None:
        cells = objects.NUMATopology.obj_from_primitive(topology)
        state.numa_topology = cells
    state.pci_stats = pci_stats.PciDeviceStats(
        cells, stats=None if pools is None else
        objects.PciDevicePoolList.obj_from_primitive(pools))
    # Placement found the host itself.
    state.allocation_candidates = [{'mappings': {}}]


def set_services(contents, states, now):
    """Set the services of the hosts for a decision at a given time."""
    moved = now - contents['now']
    created = moment(now - 86400)
    for number, (host, state) in enumerate(
            zip(contents['hosts'], states), 1):
        seen = host['last_seen_up']
        state.service = host_manager.ReadOnlyDict({
            'id': number,
            'host': host['host'],
            'binary': 'nova-compute',
            'topic': 'compute',
            'report_count': 1,
            'disabled': host['disabled'],
            'disabled_reason': None,
            'forced_down': host['forced_down'],
            'last_seen_up': None if seen is None else moment(seen + moved),
            'created_at': created,
            'updated_at': None,
            'version': objects.service.SERVICE_VERSION,
        })


def moment(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)


def make_request(request):
    """Return a new RequestSpec; a decision can change it."""
    flavor, image, group = (
        request['flavor'], request['image'], request['instance_group'])
    devices = request.get('pci_requests')
    flavor = objects.Flavor(
        id=1, flavorid=flavor['name'], rxtx_factor=1.0, is_public=True,
        disabled=False, **{name: flavor[name] for name in inputs.FLAVOR})
    image = None if image is None else objects.ImageMeta.from_dict(image)
    return objects.RequestSpec(
        project_id=request['project_id'],
        user_id=request['user_id'],
        flavor=flavor, image=image,
        numa_topology=hardware.numa_get_constraints(
            flavor, image or objects.ImageMeta.from_dict({})),
        pci_requests=None if devices is None else
        objects.InstancePCIRequests.obj_from_primitive(devices),
        availability_zone=request['availability_zone'],
        scheduler_hints=request['scheduler_hints'],
        instance_group=None if group is None else objects.InstanceGroup(
            policies=[group['policy']],
            **{name: group[name] for name in inputs.GROUP}),
        instance_uuid=request['instance_uuid'],
        ignore_hosts=list(request['ignore_hosts']),
        num_instances=request['num_instances'],
        force_hosts=request.get('force_hosts'),
        force_nodes=request.get('force_nodes'),
        requested_destination=None, retry=None,
        limits=objects.SchedulerLimits(),
        requested_networks=objects.NetworkRequestList(),
        requested_resources=[], is_bfv=False)


def decide(manager, states, spec):
    passed = manager.get_filtered_hosts(states, spec) or []
    return passed, manager.get_weighed_hosts(passed, spec)


def verdict(manager, contents, states, request):
    """Return the hosts that pass, and these by weight, the best first."""
    set_services(contents, states, contents['now'])
    now = moment(contents['now']).replace(tzinfo=None)
    with mock.patch.object(timeutils, 'utcnow', return_value=now):
        return decide(manager, states, make_request(request))


def sample(manager, contents, states, request):
    """Return the seconds of one decision."""
    set_services(contents, states, time.time())
    spec = make_request(request)
    start = time.perf_counter()
    decide(manager, states, spec)
    return time.perf_counter() - start


if __name__ == '__main__':
    sys.exit(main())
