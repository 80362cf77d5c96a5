# SPDX-License-Identifier: Apache-2.0
"""Builds of one project while another one floods the services with requests.

Parameters: ``cells``, the number of ``hosts`` in each, the number of
``servers`` that the measured project builds, one after the other, in each
phase, and the flood of the other project: ``requests`` of ``batch`` servers
each, that no host can take.

All services and the API are in one process, on PostgreSQL, so that the flood
also takes time from the interpreter. With ``processes`` each service is a
process, as in production, and RabbitMQ carries the messages. The API has
accepted all requests of the flood before the second phase, which ends with the
flood, if that is earlier than ``servers`` builds. ``alone`` is the time of
each server from its request to ACTIVE without the flood, ``in a flood`` the
same during it. The figure ``times as long`` is the ratio of their medians.
"""

import contextlib
import pathlib
import statistics
import sys
import tempfile
import time

import sqlalchemy

import builds
from cellsched.cmd import launch
from cellsched import context
from cellsched.db.api import models as api_models
from cellsched.db.cell import models
from cellsched.standalone import deployment

# The test suite has the code to start a server.
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))

import processes  # noqa: E402
from tests.integration import servers  # noqa: E402

NEIGHBOR = context.member('neighbor', 'neighbor')

#: The shortest time between two checks for an ACTIVE server.
INTERVAL_S = 0.002


def run(parameters, repeat):
    """Return the samples of both phases, and their ratio."""
    samples = {'alone': [], 'in a flood': []}
    for _ in range(repeat):
        with contextlib.ExitStack() as stack:
            if parameters.get('processes'):
                api = processes.World(
                    stack, {**parameters, 'callers': 1, 'ahead': 1}).api
                measure(api, parameters, samples, lambda uuid: (
                    api.servers.get(NEIGHBOR, uuid).status == 'ACTIVE'))
            else:
                world = deployed(stack, parameters)
                measure(world.api, parameters, samples,
                        lambda uuid: is_active(world, uuid))
    return samples, {'times as long': statistics.median(
        samples['in a flood']) / statistics.median(samples['alone'])}


def deployed(stack, parameters):
    """Return a deployment in this process, which the exit stack ends."""
    cells = [
        deployment.DeployedCell(f'cell{number}', [
            deployment.DeployedHost(f'cell{number}-host{place}', vcpus=512,
                                    memory_mb=2 ** 20, disk_gb=10000)
            for place in range(parameters['hosts'])])
        for number in range(parameters['cells'])]
    server = stack.enter_context(servers.PostgreSQL(durable=True))
    part = stack.enter_context(processes.Part(server))
    path = stack.enter_context(tempfile.TemporaryDirectory())
    world = stack.enter_context(deployment.Deployment(
        pathlib.Path(path), cells, database_url=part.url))
    launch.freeze_objects()
    before = sys.getswitchinterval()
    stack.callback(sys.setswitchinterval, before)
    # Each service does this after its start.
    sys.setswitchinterval(launch.SWITCH_S)
    return world


def measure(api, parameters, samples, active):
    """Add the samples of both phases.

    :param active: returns whether a server is ACTIVE
    """
    api.flavors.create(context.admin(), 'possible', 1, 512, 1)
    api.flavors.create(context.admin(), 'impossible', 2 ** 20, 512, 1)
    count = parameters['servers']
    for number in range(10):
        build(api, f'first{number}', active)
    for number in range(count):
        samples['alone'].append(build(api, f'alone{number}', active))
    ask_all(api, parameters)
    made = []
    while len(made) < count and is_flooded(api):
        made.append(build(api, f'flood{len(made)}', active))
    if not made:
        raise RuntimeError('The flood ended before the first build')
    samples['in a flood'] += made
    while is_flooded(api):
        time.sleep(builds.MOST_S)


def ask_all(api, parameters):
    """Request the servers that no host can take."""
    for number in range(parameters['requests']):
        api.servers.create(
            context.member('flood', 'flood'), f'flood{number}', 'impossible',
            min_count=parameters['batch'])


def is_flooded(api):
    """Return whether requests of the flood are not yet processed."""
    table = api_models.build_requests
    with api.parts.database.reader() as connection:
        return connection.execute(sqlalchemy.select(
            sqlalchemy.func.count()).select_from(table)).scalar() > 0


def is_active(world, uuid):
    """Return whether a cell has the server as ACTIVE."""
    return builds.ask(world, sqlalchemy.select(
        models.instances.c.uuid, models.instances.c.launched_at).where(
            models.instances.c.uuid == uuid,
            models.instances.c.vm_state == 'active'))


def build(api, name, active):
    """Build a server; return the seconds from its request to ACTIVE."""
    began = time.time()
    [uuid] = api.servers.create(NEIGHBOR, name, 'possible')
    while not active(uuid):
        if time.time() - began > builds.TIMEOUT_S:
            raise RuntimeError(f'{name} is not ACTIVE after '
                               f'{builds.TIMEOUT_S} s')
        time.sleep(INTERVAL_S)
    return time.time() - began
