# SPDX-License-Identifier: Apache-2.0
"""The same decision by this project and by Nova's own classes.

Parameters: those of ``decision.py``. Nova runs in its own environment; see
``peers``. Both sides get the same hosts and the same request. It is an error
if different hosts pass or if a weight differs.
"""

import json
import pathlib
import subprocess
import tempfile

import cloud
import decision
from peers import environment

#: Nova's decisions; each takes about a second.
NOVA_REPEAT = 5

#: Allowed difference of a weight, as a share of the largest weight.
TOLERANCE = 1e-6


def run(parameters, repeat):
    hosts = cloud.document(parameters['cloud'])
    request_document = cloud.request_document(parameters['request'])
    nova = ask_nova(hosts, request_document, parameters.get('filters'))
    ours = decision.make(parameters.get('filters'))
    table, located = cloud.table(hosts)
    request = cloud.request(request_document)
    samples = []
    for _ in range(repeat):
        samples.append(decision.timed(
            decision.choose, ours, table, located, request, 1))
    compare(nova, table, decision.choose(ours, table, located, request, 1))
    return {'decision': samples, 'nova': nova['samples']}


def ask_nova(hosts, request_document, names):
    python = environment.make(environment.DEFAULT)
    script = pathlib.Path(__file__).parent / 'peers' / 'nova_decision.py'
    with tempfile.TemporaryDirectory() as directory:
        hosts_file = pathlib.Path(directory) / 'hosts.json'
        hosts_file.write_text(json.dumps(hosts), encoding='utf-8')
        request_file = pathlib.Path(directory) / 'request.json'
        request_file.write_text(
            json.dumps(request_document), encoding='utf-8')
        command = [python, script, hosts_file, request_file, '--repeat',
                   str(NOVA_REPEAT)]
        if names:
            command += ['--filters', ','.join(names)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f'Nova failed: {done.stderr.strip()[-2000:]}')
    return json.loads(done.stdout)


def compare(nova, table, ranking):
    """Raise an error unless both sides made the same decision."""
    names = table['host'][ranking.rows]
    if sorted(names) != sorted(host for host, _ in nova['passed']):
        raise RuntimeError(
            f'{len(names)} hosts passed here and {len(nova["passed"])} with '
            'Nova, not the same ones')
    theirs = [nova['weights'][name] for name in names]
    most = max(1.0, *map(abs, theirs))
    worst = max(abs(weight - nova_weight) / most for weight, nova_weight
                in zip(ranking.weights, theirs))
    if worst > TOLERANCE:
        raise RuntimeError(f'a weight differs by {worst:.1e} of the greatest')
