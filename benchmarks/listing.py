# SPDX-License-Identifier: Apache-2.0
"""Listing the servers of several cells.

Parameters: ``cells``, ``servers`` in each, ``limit``, the size of the page or
null for all servers, and ``nova``: whether Nova lists the same number of
servers in its own environment; see ``peers``.
"""

import contextlib
import json
import pathlib
import shutil
import subprocess
import tempfile
import time
import uuid

from cellsched.conf import loader
from cellsched import context
from cellsched.db import api as api_schema
from cellsched.db.api import cell_mappings
from cellsched.db import cell as cell_schema
from cellsched.db.cell import models
from cellsched.listing import query
from cellsched import objects
from cellsched.wiring import services
from peers import environment
from peers import server_rows

#: The number of Nova's listings.
NOVA_REPEAT = 3


def run(parameters, repeat):
    cells, servers = parameters['cells'], parameters['servers']
    page_query = query.ServerQuery(limit=parameters['limit'])
    samples = []
    with tempfile.TemporaryDirectory() as path, parts(
            pathlib.Path(path), server_rows.rows(cells, servers)) as made:
        made.listing.list(context.admin(), page_query)
        for _ in range(repeat):
            began = time.perf_counter()
            page = made.listing.list(context.admin(), page_query)
            samples.append(time.perf_counter() - began)
            check(page, parameters)
    if not parameters.get('nova'):
        return {'listing': samples}
    return {'listing': samples, 'nova': ask_nova(parameters)}


def ask_nova(parameters):
    """Return the seconds of Nova's listings of the same servers."""
    script = pathlib.Path(__file__).parent / 'peers' / 'nova_listing.py'
    done = subprocess.run(
        [environment.make(environment.DEFAULT), script,
         json.dumps(parameters), '--repeat', str(NOVA_REPEAT)],
        capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f'Nova failed: {done.stderr.strip()[-2000:]}')
    return json.loads(done.stdout)


def check(page, parameters):
    count = parameters['limit'] or parameters['cells'] * parameters['servers']
    times = [found.created_at for found in page.servers]
    if len(times) != count or times != sorted(times, reverse=True):
        raise RuntimeError(f'{len(times)} servers were listed, not the '
                           f'{count} newest in order')


@contextlib.contextmanager
def parts(directory, cells):
    """Yield the components of a process over cells with these servers."""
    file = directory / 'benchmark.conf'
    file.write_text(
        '[DEFAULT]\nhost = benchmark\n'
        f'transport_url = local://{uuid.uuid4().hex}/api\n'
        f'[api_database]\nconnection = sqlite:///{directory}/api\n',
        encoding='utf-8')
    made = services.Components(loader.load(files=[str(file)], dirs=[]))
    try:
        api_schema.SCHEMA.sync(made.database)
        template = directory / 'template'
        database = made.databases.get(f'sqlite:///{template}', 'cell')
        cell_schema.SCHEMA.sync(database)
        # Write SQLite's log to the file before the file is copied.
        database.engine.dispose()
        for number, servers in enumerate(cells):
            fill(made, template, directory / f'cell{number}', servers)
        yield made
    finally:
        made.close()


def fill(made, template, path, servers):
    """Create and map a cell with these servers."""
    shutil.copy(template, path)
    mapping = objects.CellMapping(
        uuid=str(uuid.uuid4()), name=path.name, transport_url='none:///',
        database_connection=f'sqlite:///{path}', disabled=False)
    with made.database.writer() as connection:
        cell_mappings.create(connection, mapping, made.clock.now())
    with made.databases.get(mapping.database_connection, 'cell').writer(
            ) as connection:
        for start in range(0, len(servers), server_rows.CHUNK):
            connection.execute(models.instances.insert(),
                               servers[start:start + server_rows.CHUNK])
