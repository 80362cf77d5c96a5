# SPDX-License-Identifier: Apache-2.0
"""``select_destinations`` in one process, compared with Nova's.

Parameters: ``hosts``, ``cells``, ``instances`` of each request, and ``nova``,
the number of samples of Nova. Claims are durable, in PostgreSQL with psycopg
3. Nova runs with Placement over PostgreSQL with the same settings and with
psycopg2; see ``peers``. The hosts are empty at the start on both sides.
"""

import json
import pathlib
import subprocess
import uuid

import decision
import host_databases
from peers import environment

from cellsched import context
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.testing import builders


def run(parameters, repeat):
    samples = {'select_destinations': ours(parameters, repeat)}
    if parameters.get('nova'):
        samples['nova'] = theirs(parameters)
    return samples


def ours(parameters, repeat):
    # The environment of the peers has this module's requirements too.
    from peers import servers
    with servers.postgresql() as (_, server):
        url = server.create('api').replace('+psycopg2:', '+psycopg:')
        with host_databases.parts(
                parameters['hosts'], parameters['cells'], url) as parts:
            driver = filter_scheduler.FilterScheduler(parts.conf, parts)
            driver.loader.refresh(context.admin())
            select(driver, parameters)
            return [decision.timed(select, driver, parameters)
                    for _ in range(repeat)]


def select(driver, parameters):
    request = builders.request(
        vcpus=2, memory_mb=2048, root_gb=20,
        num_instances=parameters['instances'])
    uuids = [str(uuid.uuid4()) for _ in range(parameters['instances'])]
    chosen = driver.select_destinations(
        context.admin(), request, uuids, alternates=2)
    if len(chosen) != len(uuids):
        raise RuntimeError(f'{len(chosen)} of {len(uuids)} servers have hosts')


def theirs(parameters):
    python = environment.make(environment.DEFAULT)
    script = pathlib.Path(__file__).parent / 'peers' / 'nova_select.py'
    done = subprocess.run(
        [python, script, '--hosts', str(parameters['hosts']),
         '--cells', str(parameters['cells']),
         '--instances', str(parameters['instances']),
         '--repeat', str(parameters['nova'])],
        capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f'Nova failed: {done.stderr.strip()[-2000:]}')
    return json.loads(done.stdout)['samples']
