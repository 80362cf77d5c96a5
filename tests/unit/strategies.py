# SPDX-License-Identifier: Apache-2.0
"""Random hosts and requests, to compare column forms with row forms.

A row form says of one host, a :class:`~cellsched.hosts.state.HostState`, what
the plug-in's column form must say of it.
"""

import json

from hypothesis import strategies as st
import numpy as np

from cellsched.hosts import state
from cellsched.testing import builders

#: Metadata that aggregates may have, beside what a test adds.
METADATA = {'availability_zone': st.sampled_from(['zone1', 'zone2'])}

UUIDS = [f'20000000-0000-4000-8000-{number:012}' for number in range(8)]

_TEXTS = {
    'availability_zone': ['zone1', 'zone2', 'nova'],
    'cell': ['cell1', 'cell2', 'cell3'],
    'host': ['alpha', 'beta', 'Gamma', 'delta'],
    'hypervisor_type': ['', 'qemu', 'fake'],
    'stats': ['', '{}', json.dumps({'ssd': 'yes', 'count': 3, 'a': {'b': 1}})],
}

_NUMBERS = {
    'num_instances': (0, 60), 'num_io_ops': (0, 12), 'failed_builds': (0, 3),
    'vcpus_total': (0, 64), 'vcpus_used': (0, 64),
    'total_usable_ram_mb': (0, 8192), 'free_ram_mb': (-1024, 8192),
    'total_usable_disk_gb': (0, 50), 'free_disk_mb': (-1024, 51200),
    'disk_mb_used': (0, 51200), 'hypervisor_version': (0, 3),
    'free_pci_devices': (0, 120),
}


@st.composite
def hosts(draw, metadata=None, failures=None, **columns):
    """Draw what a request sees of a table, and where instances are."""
    table = draw(tables(metadata, failures, **columns))
    uuids, count = table['uuid'], len(table)
    located = draw(st.dictionaries(
        st.sampled_from(UUIDS), st.integers(0, max(count - 1, 0)))
        if count else st.just({}))
    return table.view(builders.NOW, {
        instance: uuids[row] for instance, row in located.items()})


@st.composite
def tables(draw, metadata=None, failures=None, **columns):
    """Draw up to six hosts in up to three aggregates.

    :param metadata: strategies of more metadata, by key
    :param failures: what failed just now, by cell
    :param columns: strategies of one host's value, by column, in place of or
        beside the usual ones
    """
    count = draw(st.integers(0, 6))
    keys = {**METADATA, **(metadata or {})}
    aggregates = [
        builders.aggregate(number, **draw(st.fixed_dictionaries(
            {}, optional=keys))) for number in range(1, 4)]
    values = {name: st.sampled_from(texts) for name, texts in _TEXTS.items()}
    values |= {name: st.integers(*bounds)
               for name, bounds in _NUMBERS.items()}
    values |= {'service_disabled': st.booleans(),
               'forced_down': st.booleans()}
    values |= {f'{kind}_allocation_ratio': st.sampled_from([0.5, 1.0, 4.0])
               for kind in ('cpu', 'ram', 'disk')}
    values['aggregates'] = st.lists(
        st.sampled_from(aggregates), unique=True, max_size=3).map(
        lambda some: tuple(sorted(some, key=lambda each: each.id)))
    values |= columns
    return builders.table(count, failures=failures, **{
        name: draw(st.lists(each, min_size=count, max_size=count))
        for name, each in values.items()})


@st.composite
def requests(draw, **fields):
    """Draw a request.

    :param fields: strategies of what ``builders.request`` takes, beside the
        usual ones
    """
    values = {'vcpus': st.integers(1, 16), 'memory_mb': st.integers(1, 4096),
              'root_gb': st.integers(0, 30), 'ephemeral_gb': st.integers(0, 9),
              'swap': st.integers(0, 2048),
              'project_id': st.sampled_from(['project', 'other'])} | fields
    return builders.request(
        **{name: draw(each) for name, each in values.items()})


def kept_by_rows(passes, hosts, request):
    """Return what a row form says of each host, as a list."""
    return [bool(passes(state.HostState(hosts, place), request))
            for place in range(len(hosts))]


def kept_by_columns(plugin, hosts, request):
    """Return what a filter says of each host, as the pipeline asks it."""
    mask = plugin.keep(hosts, request) if plugin.applies(request) else None
    return [True] * len(hosts) if mask is None else mask.tolist()


def kept_of_some(plugin, hosts, request):
    """Return what a filter says of each host when it sees every other one.

    Verdicts may not depend on how many hosts a filter sees.
    """
    if not plugin.applies(request):
        return [True] * len(hosts)
    mask = np.ones(len(hosts), dtype=bool)
    for start in (0, 1):
        rows = np.arange(start, len(hosts), 2)
        answer = plugin.keep(hosts.at(rows), request)
        mask[rows] = True if answer is None else answer
    return mask.tolist()


def scored_by_rows(weigh, hosts, request):
    """Return what a row form scores each host, as a list."""
    return [float(weigh(state.HostState(hosts, place), request))
            for place in range(len(hosts))]


def scored_by_columns(plugin, hosts, request, alike=0.0):
    """Return what a weigher scores each host, as the pipeline asks it.

    :param alike: the score of all where it says that they are alike
    """
    scores = (plugin.score(hosts, request) if plugin.applies(request)
              else None)
    return [alike] * len(hosts) if scores is None else scores.tolist()
