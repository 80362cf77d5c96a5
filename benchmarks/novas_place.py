# SPDX-License-Identifier: Apache-2.0
"""``select_destinations`` by the manager in Nova's place, and by Nova's own.

Parameters: ``hosts``, ``cells``, ``instances`` of each request, ``turns``, and
``nova``, how often Nova does it in each turn; this scheduler does it
``repeat`` times in all of them together. Both managers are processes of their
own over the same databases and one Placement, see
``peers/novas_place.py``; while one of them is timed, the other one stands
still.

``ours`` and ``nova`` are whole requests. Of both it is told which share of
that went by while Placement answered, how many requests to Placement that
were, how many more there were beside, for each request, how much memory the
process has at the end, and in which time it came from its start to its first
answer.
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

#: Both, as figures name them.
MANAGERS = ('ours', 'nova')


def run(parameters, repeat):
    """Return samples of both, and the figures beside them."""
    said = ask(parameters, repeat)
    samples = {name: [each['whole'] for each in said[name]['samples']]
               for name in MANAGERS}
    medians = {name: statistics.median(times)
               for name, times in samples.items()}
    figures = {'nova over ours': medians['nova'] / medians['ours']}
    for name in MANAGERS:
        figures.update({f'{name}, {what}': value for what, value
                        in figures_of(said[name]).items()})
    return samples, figures


def figures_of(said):
    """Return the figures of a manager by what they tell."""
    samples = said['samples']
    whole, placement, asked, beside = (
        sum(each[name] for each in samples)
        for name in ('whole', 'placement', 'requests', 'beside'))
    return {
        'share of Placement': placement / whole,
        'requests to Placement': asked / len(samples),
        'requests to Placement beside': beside / len(samples),
        'memory, MiB': said['memory'] / 2 ** 20,
        'start to first answer, s': said['start'],
    }


def ask(parameters, repeat):
    """Return what the peers say of both managers."""
    # This makes what plug-ins of this checkout are found by.
    environment.make()
    script = pathlib.Path(__file__).parent / 'peers' / 'novas_place.py'
    done = subprocess.run(
        [peers.make(), script, '--hosts', str(parameters['hosts']),
         '--cells', str(parameters['cells']),
         '--instances', str(parameters['instances']),
         '--turns', str(parameters['turns']),
         '--nova', str(parameters['nova']), '--ours', str(repeat)],
        env={**os.environ,
             'PYTHONPATH': os.pathsep.join(environment.paths())},
        capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f'Nova failed: {done.stderr.strip()[-2000:]}')
    return json.loads(done.stdout)
