# SPDX-License-Identifier: Apache-2.0
"""Check that schedulers never give a CPU, a page or a device twice.

Schedulers in separate processes compete for the dedicated CPUs, then for the
pages of 1 GB, then for the devices of some hosts. Each client requests one
server after the other until it is refused. Everything else is plentiful, so
only the names in the claims bound the number of servers. Meanwhile an observer
looks for a state with more in use than the capacity.

The check fails if the number of servers is not the number of CPUs, pages or
devices, or if a client was refused although one was certainly free.
"""

import argparse
import contextlib
import json
import pathlib
import sys

from oslo_service import backend
import sqlalchemy as sa

from cellsched import silence_eventlet  # noqa: F401

# Every process of this project selects this backend before another library
# selects one.
backend.init_backend(backend.BackendType.THREADING)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import calls  # noqa: E402
from claims import observe  # noqa: E402
import hardware_shapes  # noqa: E402
import host_databases  # noqa: E402
import schedulers  # noqa: E402
import stores  # noqa: E402

from cellsched.claims import base as claims  # noqa: E402
from cellsched.db.cell import models  # noqa: E402
from cellsched.hardware import description  # noqa: E402
from cellsched.hardware import documents  # noqa: E402
from cellsched.hardware import fit  # noqa: E402
from cellsched.hardware import units  # noqa: E402
from cellsched.scheduler.decision import allocation  # noqa: E402

HOSTS, CELLS = 2, 2

#: The dedicated CPUs, the pages of 1 GB and the devices of each host: so many
#: that a scheduler loses several of them to others before it gets one.
PARTS = 16

#: Half of them are in each of two NUMA cells.
HARDWARE = description.read('host', {
    'cells': [{'id': cell, 'memory_mb': 65536, 'cpus': f'{first}-{first + 15}',
               'dedicated': f'{first + 16}-{first + 15 + PARTS // 2}',
               'pages': [{'size_kb': 4, 'total': 2 ** 23},
                         {'size_kb': 2 ** 20, 'total': PARTS // 2}]}
              for cell, first in ((0, 0), (1, 32))],
    'devices': [{**{name: hardware_shapes.DEVICE[name]
                    for name in ('vendor_id', 'product_id')},
                 'numa_node': cell, 'count': PARTS // 2} for cell in (0, 1)]})

#: The requests, each for one part.
REQUESTS = {
    'cpu': {'extra_specs': {'hw:cpu_policy': 'dedicated'}},
    'page': {'memory_mb': 1024, 'extra_specs': {'hw:mem_page_size': '1GB'}},
    'device': {'pci_requests': hardware_shapes.request(1)}}

OPTIONS = schedulers.OPTIONS + """\
[filter_scheduler]
enabled_filters = ComputeFilter, NUMATopologyFilter, PciPassthroughFilter
"""


def main(argv=None):
    args = parse(argv)
    wrong = False
    for name in args.stores:
        for part, found in race(name, args):
            row = {'store': name, 'processes': args.processes, 'part': part,
                   **found}
            print(json.dumps(row), flush=True)
            wrong |= (row['places'] != row['servers'] or row['oversold'] > 0
                      or row['refused_although_it_fitted'] > 0)
    return 1 if wrong else 0


def parse(argv):
    parser = argparse.ArgumentParser(
        description='Check that schedulers never give a CPU, a page or a '
                    'device twice.')
    parser.add_argument('stores', nargs='*', metavar='STORE',
                        default=['sqlite', 'postgresql', 'etcd'])
    for name, default, meaning in (
            ('processes', 16, 'schedulers at the same time'),
            ('clients', 32, 'clients of all schedulers'),
            ('rounds', 1, 'times to fill the hosts')):
        parser.add_argument(f'--{name}', type=int, default=default,
                            metavar='N', help=f'{meaning} ({default})')
    parser.add_argument(
        '--unnamed', action='store_true',
        help='claim no names; the check must fail')
    args = parser.parse_args(argv)
    for name in args.stores:
        if name not in stores.KINDS:
            parser.error(f'{name}: expected one of {", ".join(stores.KINDS)}')
    for name in 'processes', 'clients', 'rounds':
        if getattr(args, name) < 1:
            parser.error(f'--{name}: expected a number above 0')
    return args


def race(name, args):
    """Yield each part with the figures of its races."""
    kind = stores.kind(name)
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(kind.served())
        parts = stack.enter_context(host_databases.parts(
            HOSTS, CELLS, options=OPTIONS + address['options']))
        give_hardware(parts)
        kind.settle(address)
        files = [str(each) for each in parts.conf.config_file]
        observer = stack.enter_context(calls.child(observe, (name, address)))
        processes = stack.enter_context(calls.children(
            serve, (name, files, args.unnamed), args.processes))
        places = {host_databases.node(host): PARTS for host in range(HOSTS)}
        for part, fields in REQUESTS.items():
            rounds = [schedulers.fill_up(
                parts.claims, processes, observer, args.clients, places,
                fields) for _ in range(args.rounds)]
            yield part, figures(rounds)


def figures(rounds):
    """Return sums over rounds."""
    judged = [each.judged() for each in rounds]
    return {
        'places': sum(sum(each.places.values()) for each in rounds),
        'servers': sum(outcome.taken for each in rounds
                       for outcome in each.outcomes),
        **{name: sum(each[name] for each in judged) for name in judged[0]},
        'conflicts': sum(each.conflicts for each in rounds)}


def give_hardware(parts):
    """Write the cells and devices of all hosts, and their inventories."""
    values = {
        'numa_topology': json.dumps(
            documents.written_host(HARDWARE.topology)),
        'pci_stats': json.dumps(documents.written_pools(HARDWARE.devices))}
    for cell in parts.cells.all():
        with parts.targets.database(cell).writer() as connection:
            connection.execute(
                sa.update(models.compute_nodes).values(values))
    # No total bounds the servers with dedicated CPUs, only the names do.
    totals = {**host_databases.RESOURCES, 'PCPU': 1000, **units.inventory(
        *HARDWARE, fit.Ratios(4.0))}
    for host in range(HOSTS):
        parts.claims.set_inventory(host_databases.node(host), {
            name: claims.Inventory(total) for name, total in totals.items()})


def serve(pipe, given):
    """Be a scheduler; without names if that is asked for."""
    *given, unnamed = given
    if unnamed:
        allocation.with_hardware = (
            lambda hosts, row, demand, allocated: allocated)
    schedulers.serve(pipe, given)


if __name__ == '__main__':
    sys.exit(main())
