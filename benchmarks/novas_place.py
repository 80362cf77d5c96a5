# SPDX-License-Identifier: Apache-2.0
"""``select_destinations`` by the manager in Nova's place and by Nova's own.

Parameters: ``hosts``, ``cells``, ``instances`` of each request, ``turns``, and
``nova``, the number of Nova's samples in each turn. With ``shapes``, the
number of kinds of hosts with NUMA cells and PCI devices, the requests are for
dedicated CPUs and pages of 1 GB on two cells, and for two SR-IOV ports. The
manager of this project makes ``repeat`` samples in all turns together. Both
managers are processes over the same databases and the same Placement; see
``peers/novas_place.py``. While one manager is timed, the other is suspended.

``ours`` and ``nova`` are the times of complete requests, and ``decision`` is
the part of ``ours`` that selects and reserves a host. The figures of each
manager are the share of this time in which Placement answered, the number of
requests to Placement, the number of other requests to Placement for each
request, the memory of the process at the end, and the time from the start of
the process to its first answer.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))

from integrations.nova.tools import environment  # noqa: E402
from peers import environment as peers  # noqa: E402

#: The names of the managers in the figures.
MANAGERS = ('ours', 'nova')


def run(parameters, repeat):
    """Return the samples of both managers, and the figures."""
    results = ask(parameters, repeat)
    samples = {name: [each['whole'] for each in results[name]['samples']]
               for name in MANAGERS}
    samples['decision'] = [
        each['decision'] for each in results['ours']['samples']]
    medians = {name: statistics.median(times)
               for name, times in samples.items()}
    figures = {'nova over ours': medians['nova'] / medians['ours']}
    for name in MANAGERS:
        figures.update({f'{name}, {what}': value for what, value
                        in figures_of(results[name]).items()})
    return samples, figures


def figures_of(result):
    """Return the figures of a manager by name."""
    samples = result['samples']
    whole, placement, requests, beside = (
        sum(each[name] for each in samples)
        for name in ('whole', 'placement', 'requests', 'beside'))
    return {
        'share of Placement': placement / whole,
        'requests to Placement': requests / len(samples),
        'requests to Placement beside': beside / len(samples),
        'memory, MiB': result['memory'] / 2 ** 20,
        'start to first answer, s': result['start'],
    }


def ask(parameters, repeat):
    """Return the output of the peers for both managers."""
    # This also creates the entry points of this checkout's plug-ins.
    environment.make()
    script = pathlib.Path(__file__).parent / 'peers' / 'novas_place.py'
    done = subprocess.run(
        [peers.make(), script, '--hosts', str(parameters['hosts']),
         '--cells', str(parameters['cells']),
         '--instances', str(parameters['instances']),
         '--shapes', str(parameters.get('shapes', 0)),
         '--turns', str(parameters['turns']),
         '--nova', str(parameters['nova']), '--ours', str(repeat)],
        env={**os.environ,
             'PYTHONPATH': os.pathsep.join(environment.paths())},
        capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f'Nova failed: {done.stderr.strip()[-2000:]}')
    return json.loads(done.stdout)
