# SPDX-License-Identifier: Apache-2.0
"""Decisions on hosts with child providers, compared with plain ones and Nova.

Parameters:

* ``hosts``, and ``cells``; fewer cells are an advantage for Nova.
* ``children`` of each host. Each has two of the six resource classes that the
  host itself lacks.
* ``requests``, the extra specs of each request by name. A plain request of the
  same size is always measured.
* ``nova``, the number of Nova's samples of each request; see ``peers``.

One sample of each request is taken in turn, on a table that does not change.
Nova's samples are complete calls of ``select_destinations``, with Placement
over the same inventories and the same usage. Nova also claims the selected
host. This is not part of a decision and is shown separately.

It is an error if a host that Placement returns does not pass here. If
Placement returns fewer hosts than the limit, it is also an error if other
hosts pass here.
"""

import json
import pathlib
import statistics
import subprocess
import tempfile
import uuid

import numpy as np

from cellsched.scheduler.decision import allocation
from cellsched.scheduler.decision import capacity
from cellsched.testing import builders
import decision
from peers import environment

#: For each kind of child provider: its classes and their totals.
KINDS = (
    {'VGPU': 8, 'CUSTOM_GPU_MEMORY_GB': 64},
    {'NET_BW_EGR_KILOBIT_PER_SEC': 10_000_000,
     'NET_BW_IGR_KILOBIT_PER_SEC': 10_000_000},
    {'CUSTOM_DEVICE': 8, 'CUSTOM_LICENCE': 16},
)

#: The usable resources of each host.
ROOM = {'VCPU': 256, 'MEMORY_MB': 262144, 'DISK_GB': 4000}

#: The size of a host for these resources: CPUs have an allocation ratio of
#: four, and some memory is reserved.
SIZE = {'vcpus': 64, 'memory_mb': 262144 + 512, 'local_gb': 4000}

FLAVOR = {'vcpus': 4, 'memory_mb': 8192, 'root_gb': 40}

SEED = 5


def run(parameters, repeat):
    """Return samples by request, in alternation, and their ratios."""
    hosts = make_hosts(parameters['hosts'], parameters['cells'],
                       parameters['children'])
    specs = {'plain': {}, **parameters['requests']}
    nova = ask_nova(hosts, specs, parameters) if parameters.get('nova') else {}
    table, made = make_table(hosts), decision.make()
    requests = {name: builders.request(**FLAVOR, extra_specs=each)
                for name, each in specs.items()}
    samples = {name: [] for name in requests}
    for name, request in requests.items():
        choose(made, table, request)
        check(made, table, request, nova.get(name, []))
    for _ in range(repeat):
        for name, request in requests.items():
            samples[name].append(decision.timed(choose, made, table, request))
    for name, theirs in nova.items():
        for part in ('whole', 'candidates', 'claim'):
            samples[f'nova {name}, {part}'] = [each[part] for each in theirs]
    return samples, ratios(samples, requests)


def choose(made, table, request):
    """Select a host and the providers of its resources."""
    hosts = table.view(builders.NOW)
    try:
        [row] = made.weigh(request, made.candidates(hosts, request)).top(1)
        amounts = request.resources()
        wants = capacity.provider_demand(hosts, request, amounts)
        if wants is not None:
            amounts = allocation.allocate(hosts, row, wants).resources
        hosts.take(row, amounts)
    finally:
        table.reuse(hosts)


def check(made, table, request, theirs):
    """Raise an error unless the same hosts pass on both sides."""
    rows = made.candidates(table.view(builders.NOW), request).rows
    names = set(table['host'][rows])
    for each in theirs:
        wrong = {each['chosen'], *each['hosts']} - names
        if each['all']:
            wrong |= names - set(each['hosts'])
        if wrong:
            raise RuntimeError(
                f'{len(wrong)} hosts pass here or with Placement, not on '
                f'both sides, among them {min(wrong)}')


def ratios(samples, requests):
    """Return the ratios of the median times."""
    medians = {name: statistics.median(times)
               for name, times in samples.items()}
    found = {f'{name} over plain': medians[name] / medians['plain']
             for name in requests if name != 'plain'}
    for name in requests:
        if f'nova {name}, whole' in medians:
            whole = medians[f'nova {name}, whole']
            claim = medians[f'nova {name}, claim']
            found[f'nova over {name}'] = whole / medians[name]
            found[f'nova over {name}, without its claim'] = (
                whole - claim) / medians[name]
    return found


def make_hosts(count, cells, children):
    """Return hosts that are partly used, in the form that both sides read."""
    random = np.random.default_rng(SEED)
    shares = random.random((count, children + 1)) * 0.9
    return [{
        'host': f'host-{row:06}', 'cell': row % cells,
        'uuid': str(uuid.UUID(int=row + 1)), **SIZE,
        'used': part(ROOM, shares[row, 0]),
        'children': [make_child(row, number, shares[row, number + 1])
                     for number in range(children)],
    } for row in range(count)]


def make_child(row, number, share):
    kind = number % len(KINDS)
    return {'uuid': str(uuid.UUID(int=(row + 1) * 1000 + 10 ** 9 + number)),
            'name': f'host-{row:06}_{number}',
            'traits': [f'CUSTOM_KIND{kind}'], 'inventories': KINDS[kind],
            'used': part(KINDS[kind], share)}


def part(amounts, share):
    return {name: int(amount * share) for name, amount in amounts.items()}


def make_table(hosts):
    """Return the table of a scheduler with these hosts."""
    table = builders.table(
        len(hosts), uuid=[host['uuid'] for host in hosts],
        host=[host['host'] for host in hosts],
        vcpus_total=SIZE['vcpus'], total_usable_ram_mb=ROOM['MEMORY_MB'],
        total_usable_disk_gb=ROOM['DISK_GB'],
        cell=[f'cell{host["cell"]}' for host in hosts],
        child_uuids=[tuple(child['uuid'] for child in host['children'])
                     for host in hosts],
        children=[tuple((0, frozenset(child['traits']))
                        for child in host['children']) for host in hosts])
    for host in hosts:
        table.set_usage(host['uuid'], ROOM, host['used'], 1)
        for child in host['children']:
            table.set_usage(
                child['uuid'], child['inventories'], child['used'], 1)
    return table


def ask_nova(hosts, specs, parameters):
    """Return Nova's samples by request."""
    cells = [[] for _ in range(parameters['cells'])]
    for host in hosts:
        cells[host['cell']].append(host)
    script = pathlib.Path(__file__).parent / 'peers' / 'nova_providers.py'
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory) / 'given.json'
        file.write_text(json.dumps(
            {'hosts': cells, 'size': FLAVOR, 'requests': specs}),
            encoding='utf-8')
        done = subprocess.run(
            [environment.make(environment.DEFAULT), script, file,
             '--repeat', str(parameters['nova'])],
            capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f'Nova failed: {done.stderr.strip()[-2000:]}')
    return json.loads(done.stdout)
