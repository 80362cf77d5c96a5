# SPDX-License-Identifier: Apache-2.0
"""Cases of topologies and devices, with the answers of Nova 34.0.0.

``cases.jsonl.gz`` has one case in each line, made for this purpose and run
through Nova's own code. ``pure_fit`` is the right answer where Nova confuses
the verdicts of several guest cells.
"""

from collections.abc import Iterator
import functools
import gzip
import json
import pathlib
from typing import Any

from cellsched.hardware import devices
from cellsched.hardware import fit
from cellsched.hardware import guest
from cellsched.hardware import host

_FILE = pathlib.Path(__file__).with_name('cases.jsonl.gz')

Case = dict[str, Any]


@functools.cache
def every() -> tuple[Case, ...]:
    """Return all cases."""
    with gzip.open(_FILE, 'rt', encoding='utf-8') as lines:
        return tuple(map(json.loads, lines))


def of_kind(kind: str) -> Iterator[Case]:
    """Yield the cases of one kind: numa, pci, fill or weigher."""
    return (each for each in every() if each['kind'] == kind)


def topology(case: Case) -> guest.GuestTopology | None:
    """Return the guest topology that the case asks for."""
    flavor = case['flavor']
    return guest.topology(flavor['vcpus'], flavor['memory_mb'],
                          flavor['extra_specs'], case.get('image', {}))


def host_topology(case: Case) -> host.HostTopology | None:
    """Return the topology of the host; None if it reports none."""
    if case.get('host') is None:
        return None
    return host.HostTopology(tuple(map(_cell, case['host'])))


def _cell(given: Case) -> host.HostCell:
    networks = 'physnets' in given or 'tunneled' in given
    return host.HostCell(
        given['id'], frozenset(given['cpus']), frozenset(given['pcpus']),
        given['memory_mb'], given.get('cpu_usage', 0),
        given.get('memory_usage', 0), frozenset(given.get('pinned', ())),
        tuple(map(frozenset, given.get('siblings', ()))),
        tuple(host.Pages(*each) for each in given.get('pages', ())),
        given.get('socket'),
        frozenset(given.get('physnets', ())) if networks else None,
        bool(given.get('tunneled')))


def requests(case: Case) -> tuple[devices.DeviceRequest, ...]:
    """Return the requests for devices."""
    return tuple(devices.DeviceRequest(
        each['count'], tuple(each['spec']), each.get('alias'),
        each.get('request_id'), each.get('numa_policy'))
        for each in case.get('pci') or ())


def pools(case: Case) -> devices.Pools | None:
    """Return the device pools of the host; None if it reports none."""
    given = case.get('pools')
    return None if given is None else devices.pools(given)


def mappings(case: Case) -> devices.Mappings | None:
    """Return the mappings of the first allocation candidate."""
    return (case.get('candidates') or [None])[0] or None


def demand(case: Case) -> fit.Demand:
    """Return what decides on the cells of a server."""
    wanted = topology(case)
    assert wanted is not None
    network = case.get('network') or {}
    return fit.Demand(wanted, requests(case), fit.Networks(
        frozenset(network.get('physnets', ())),
        bool(network.get('tunneled'))),
        bool(case.get('conf', {}).get('pack')))


def ratios(case: Case) -> fit.Ratios:
    """Return the allocation ratios of the host."""
    return fit.Ratios(*case.get('ratios', (1.0, 1.0)))
