# SPDX-License-Identifier: Apache-2.0
"""Listing the servers of several cells.

Parameters: ``cells``, and ``servers`` of each; ``limit`` of the page, or null
for all of them.
"""

import contextlib
import datetime
import pathlib
import random
import shutil
import tempfile
import time
import uuid

from cellsched.assembly import services as assembly
from cellsched.conf import loader
from cellsched import context
from cellsched.db import api as api_schema
from cellsched.db.api import cell_mappings
from cellsched.db import cell as cell_schema
from cellsched.db.cell import models
from cellsched.listing import query
from cellsched import objects

#: When the first server was created; the next one follows in a second.
BEGAN = datetime.datetime(2026, 1, 1)

#: Rows that one statement inserts.
CHUNK = 5000


def run(parameters, repeat):
    cells, servers = parameters['cells'], parameters['servers']
    asked = query.ServerQuery(limit=parameters['limit'])
    samples = []
    with tempfile.TemporaryDirectory() as path, parts(
            pathlib.Path(path), rows(cells, servers)) as made:
        made.listing.list(context.admin(), asked)
        for _ in range(repeat):
            began = time.perf_counter()
            page = made.listing.list(context.admin(), asked)
            samples.append(time.perf_counter() - began)
            check(page, parameters)
    return {'listing': samples}


def check(page, parameters):
    count = parameters['limit'] or parameters['cells'] * parameters['servers']
    times = [found.created_at for found in page.servers]
    if len(times) != count or times != sorted(times, reverse=True):
        raise RuntimeError(f'{len(times)} servers were listed, not the '
                           f'{count} newest in order')


def rows(cells, servers):
    """Return the servers of each cell, as wide as what an API creates."""
    chance = random.Random(1)
    numbers = list(range(cells * servers))
    chance.shuffle(numbers)
    return [[row(number, chance) for number in numbers[cell::cells]]
            for cell in range(cells)]


def row(number, chance):
    created_at = BEGAN + datetime.timedelta(seconds=number)
    return {
        'uuid': str(uuid.UUID(int=chance.getrandbits(128))),
        'created_at': created_at, 'updated_at': created_at,
        'launched_at': created_at, 'deleted': 0, 'hidden': False,
        'project_id': uuid.UUID(int=number % 50).hex,
        'user_id': uuid.UUID(int=number % 200).hex,
        'display_name': f'server-{number}', 'image_ref': str(uuid.UUID(int=7)),
        'vm_state': 'active', 'task_state': None, 'power_state': 1,
        'vcpus': 4, 'memory_mb': 8192, 'root_gb': 40, 'ephemeral_gb': 0,
        'instance_type_id': 1, 'launch_index': 0,
        'host': f'host{number % 1000}', 'node': f'host{number % 1000}',
        'availability_zone': 'nova', 'reservation_id': f'r-{number}'}


@contextlib.contextmanager
def parts(directory, cells):
    """Yield the parts of a process over cells with these servers."""
    file = directory / 'benchmark.conf'
    file.write_text(
        '[DEFAULT]\nhost = benchmark\n'
        f'transport_url = local://{uuid.uuid4().hex}/api\n'
        f'[api_database]\nconnection = sqlite:///{directory}/api\n',
        encoding='utf-8')
    made = assembly.Parts(loader.load(files=[str(file)], dirs=[]))
    try:
        api_schema.SCHEMA.sync(made.database)
        template = directory / 'template'
        database = made.databases.get(f'sqlite:///{template}', 'cell')
        cell_schema.SCHEMA.sync(database)
        # What is in its log belongs to the file before the file is copied.
        database.engine.dispose()
        for number, servers in enumerate(cells):
            fill(made, template, directory / f'cell{number}', servers)
        yield made
    finally:
        made.close()


def fill(made, template, path, servers):
    """Map a cell that has these servers."""
    shutil.copy(template, path)
    mapping = objects.CellMapping(
        uuid=str(uuid.uuid4()), name=path.name, transport_url='none:///',
        database_connection=f'sqlite:///{path}', disabled=False)
    with made.database.writer() as connection:
        cell_mappings.create(connection, mapping, made.clock.now())
    with made.databases.get(mapping.database_connection, 'cell').writer(
            ) as connection:
        for start in range(0, len(servers), CHUNK):
            connection.execute(models.instances.insert(),
                               servers[start:start + CHUNK])
