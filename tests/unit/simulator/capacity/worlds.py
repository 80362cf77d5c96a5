# SPDX-License-Identifier: Apache-2.0
"""Small scenarios for tests, and loads that are given request by request."""

import math
import pathlib

import numpy as np

from cellsched.simulator.capacity import load
from cellsched.simulator.capacity import run
from cellsched.simulator.capacity import scenario

FLAVOR = load.Flavor('one', 1, 512, 0)

#: Options of schedulers that pack, and that find the same host best.
PACK = {'ram_weight_multiplier': -1.0, 'weight_classes': ['RAMWeigher'],
        'rotate_best_same_weighed_hosts': False}


def hosts(*places):
    """Return hosts with these numbers of places for a server."""
    return [{'count': 1, 'rack': 1, 'vcpus': each, 'memory_mb': 512 * each,
             'disk_gb': 100, 'cpu_allocation_ratio': 1.0} for each in places]


def arrivals(count, at=1.0, spacing_s=1e-6, lifetime_s=math.inf):
    """Return requests of one server each."""
    return [load.Arrival(at + number * spacing_s, 'project', FLAVOR,
                         (lifetime_s,), None) for number in range(count)]


def make(requests, **keys):
    """Return a run of a scenario with these keys."""
    return run.Run(scenario.of(pathlib.Path('test.yaml'), {
        'name': 'test', 'hours': 0.05, 'hosts': hosts(10, 10), 'load': {},
        **keys}), load.Load([FLAVOR], np.ones(1), lambda: iter(requests)))
