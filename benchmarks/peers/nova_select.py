# SPDX-License-Identifier: Apache-2.0
"""Measure complete calls of Nova's select_destinations; print a JSON object.

Run this with the Python that ``environment.py`` prints. It starts PostgreSQL
and Placement as ``deployment.py`` describes. It calls Nova's SchedulerManager
in this process, as Nova's service does for a message of the conductor:
prefilters, allocation candidates from Placement over HTTP, host states from
the databases of all cells, filters, weighers, one claim over HTTP for each
server, and alternates. The instances of each host are already known, as if all
compute services had reported them (``track_instance_changes``), and are not
read.

Allocations of a sample are deleted before the next sample. The first request,
which opens all connections, is not a sample.
"""

import native  # noqa: F401

import argparse
import contextlib
import json
import logging
import sys
import time
import uuid

from nova import context
from nova import exception
from nova import objects
from nova import version
from nova.virt import hardware
import oslo_messaging

import contents
import deployment
import managers

#: Fields of a flavor with two NUMA cells and pages of 1 GB.
TELECOM = {'vcpus': 6, 'memory_mb': 8192, 'extra_specs': {
    'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '2',
    'hw:mem_page_size': '1GB'}}


def main(argv=None):
    return print_result(run, parse(argv))


def print_result(function, args):
    """Print the result of a function as JSON; return the exit status."""
    logging.basicConfig(level=logging.ERROR)
    try:
        print(json.dumps(function(args)))
    except (OSError, RuntimeError, exception.NovaException) as exc:
        print(f'{sys.argv[0]}: {exc}', file=sys.stderr)
        return 1
    except oslo_messaging.ExpectedException as exc:
        # The service wraps NoValidHost in this for its callers.
        print(f'{sys.argv[0]}: {exc.exc_info[1]}', file=sys.stderr)
        return 1
    return 0


def parse(argv):
    parser = argparse.ArgumentParser(
        description="Measure Nova's select_destinations with Placement.")
    for name, default, meaning in (
            ('hosts', 10000, 'hosts'), ('cells', 80, 'cells'),
            ('instances', 1, 'servers in a request'),
            ('repeat', 5, 'samples'),
            ('reading', 0, 'samples of reading the states of all hosts'),
            ('placement-results', 1000,
             "limit of allocation candidates")):
        parser.add_argument(
            f'--{name}', type=int, default=default, metavar='N',
            help=f'{meaning} (default {default})')
    args = parser.parse_args(argv)
    for name, value in vars(args).items():
        if value < (0 if name == 'reading' else 1):
            parser.error(f'--{name.replace("_", "-")}: expected a number '
                         'above 0')
    return args


def run(args):
    """Return the samples of requests and of reading the hosts."""
    hosts = contents.make_hosts(args.hosts, args.cells)
    with managing(hosts, args.placement_results) as manager:
        select(manager, args.instances)
        samples = [select(manager, args.instances)[0]
                   for _ in range(args.repeat)]
        reading = [read(manager, hosts) for _ in range(args.reading)]
    return {
        'samples': samples,
        'reading': reading,
        'hosts': args.hosts,
        'cells': args.cells,
        'instances': args.instances,
        'placement_results': args.placement_results,
        'databases': 'PostgreSQL, one database for each cell, fsync on',
        'nova': version.version_string(),
    }


@contextlib.contextmanager
def managing(hosts, results, own=None):
    """Yield Nova's manager over new servers with these hosts.

    See :func:`deployment.deployed`.
    """
    with deployment.deployed(hosts, results, own, workers=1, threads=4):
        yield managers.start('nova', hosts)


def select(manager, count, **flavor):
    """Return the seconds of a request, and its hosts.

    :param flavor: fields that differ from the default flavor
    """
    ctxt = context.RequestContext('user', 'project', is_admin=True)
    uuids = [str(uuid.uuid4()) for _ in range(count)]
    spec = make_request(ctxt, uuids, flavor)
    start = time.perf_counter()
    selections = manager.select_destinations(
        ctxt, spec_obj=spec, instance_uuids=uuids, return_objects=True,
        return_alternates=True)
    elapsed = time.perf_counter() - start
    if len(selections) != count:
        raise RuntimeError(f'{len(selections)} of {count} servers have a host')
    for consumer in uuids:
        if not manager.placement_client.delete_allocation_for_instance(
                ctxt, consumer, force=True):
            raise RuntimeError(f'server {consumer} had no allocation')
    return elapsed, [hosts[0].service_host for hosts in selections]


def read(manager, hosts):
    """Return the seconds to read the states of all hosts."""
    ctxt = context.get_admin_context()
    uuids = [host['uuid'] for members in hosts for host in members]
    start = time.perf_counter()
    states = list(manager.host_manager.get_host_states_by_uuids(
        ctxt, uuids, None))
    elapsed = time.perf_counter() - start
    if len(states) != len(uuids):
        raise RuntimeError(f'{len(states)} of {len(uuids)} hosts were read')
    return elapsed


def make_request(ctxt, uuids, flavor):
    ports, flavor = flavor.get('extra_specs'), objects.Flavor(**{
        'id': 1, 'flavorid': 'medium', 'name': 'medium', 'vcpus': 2,
        'memory_mb': 4096, 'root_gb': 20, 'ephemeral_gb': 0, 'swap': 0,
        'rxtx_factor': 1.0, 'is_public': True, 'disabled': False,
        'extra_specs': {}, **flavor})
    return objects.RequestSpec(
        ctxt, project_id='project', user_id='user', flavor=flavor,
        image=objects.ImageMeta.from_dict({
            'id': str(uuid.uuid4()),
            'properties': {'hw_architecture': 'x86_64'}}),
        availability_zone=None, scheduler_hints={}, instance_group=None,
        instance_uuid=uuids[0], num_instances=len(uuids), ignore_hosts=None,
        force_hosts=None, force_nodes=None, requested_destination=None,
        retry=None, numa_topology=hardware.numa_get_constraints(
            flavor, objects.ImageMeta.from_dict({})),
        pci_requests=contents.port_requests(2) if ports else None,
        limits=objects.SchedulerLimits(),
        security_groups=objects.SecurityGroupList(objects=[]),
        requested_networks=objects.NetworkRequestList(objects=[]),
        network_metadata=objects.NetworkMetadata(
            physnets=set(), tunneled=False),
        requested_resources=[], request_level_params=(
            objects.RequestLevelParams()),
        is_bfv=False)


if __name__ == '__main__':
    sys.exit(main())
