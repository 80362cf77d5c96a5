# SPDX-License-Identifier: Apache-2.0
"""A cloud of two cells in this process, for the tests of the service.

Its databases are files, which remain after the process ends. Messages are
lost with the process.
"""

from concurrent import futures
import contextlib
import pathlib

from cellsched.conf import loader
from cellsched import embedding
from cellsched.wiring import services
from embedding_service import main

CELLS = ('cell1', 'cell2')


def url(directory, name):
    return f'sqlite:///{directory}/{name}.sqlite'


def write(directory):
    """Write all configuration files and create the databases."""
    _write(directory, 'service', 'api', f'''
host = machines-1
[api_database]
connection = {url(directory, 'api')}
sqlite_synchronous = false
[conductor]
build_lease = 1
recovery_interval = 0.2
cast_timeout = 1
cast_check_interval = 0.5
[machines]
database = {directory}/machines.sqlite
''')
    _write(directory, 'scheduler', 'api', f'''
[api_database]
connection = {url(directory, 'api')}
sqlite_synchronous = false
''')
    for cell in CELLS:
        _write(directory, cell, cell, f'''
host = {cell}-host
reserved_host_memory_mb = 0
[database]
connection = {url(directory, cell)}
sqlite_synchronous = false
''')
    conf = service_conf(directory)
    embedding.create_schemas(
        conf, [url(directory, name) for name in ('cell0', *CELLS)])
    with embedding.EmbeddedConductor(conf) as conductor:
        conductor.mappings.create_cell0(url(directory, 'cell0'))
        for cell in CELLS:
            conductor.mappings.create_cell(
                cell, _transport(directory, cell), url(directory, cell))


def service_conf(directory):
    """Return the configuration that the process of the service reads."""
    return main.configuration(
        ['--config-file', str(directory / 'service.conf')])


@contextlib.contextmanager
def running(directory):
    """Run a scheduler, and in each cell a conductor and an agent."""
    running = []
    try:
        for name, makers in (
                ('cell1', (services.conductor, services.compute)),
                ('cell2', (services.conductor, services.compute)),
                ('scheduler', (services.scheduler,))):
            for make in makers:
                conf = loader.load(
                    files=[str(directory / f'{name}.conf')], dirs=[])
                service = make(conf)
                running.append(service)
                service.start()
        yield
    finally:
        # Stop in parallel: a service takes up to a second to notice.
        with futures.ThreadPoolExecutor(len(running) or 1) as pool:
            list(pool.map(services.Service.stop, reversed(running)))


def _write(directory: pathlib.Path, name, transport, text):
    # The first lines of the text belong to [DEFAULT].
    (directory / f'{name}.conf').write_text(
        f'[DEFAULT]\ntransport_url = {_transport(directory, transport)}\n'
        f'{text}\n[claims]\nconnection = {url(directory, "claims")}\n'
        '[quota]\ninstances = -1\ncores = -1\nram = -1\n')


def _transport(directory, name):
    return f'local://{directory.name}/{name}'
