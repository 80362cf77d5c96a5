# SPDX-License-Identifier: Apache-2.0
"""Databases of a deployment with many hosts, without agents."""

import contextlib
import datetime
import pathlib
import shutil
import tempfile
import uuid

import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.claims.sql import schema as claims_schema
from cellsched.conf import loader
from cellsched.db import api as api_schema
from cellsched.db.api import cell_mappings
from cellsched.db.api import host_mappings
from cellsched.db import cell as cell_schema
from cellsched.db.cell import models
from cellsched import objects
from cellsched.wiring import services

#: The resources of every host, by resource class.
RESOURCES = {'VCPU': 256, 'MEMORY_MB': 2 ** 19, 'DISK_GB': 10_000}

#: Rows in one INSERT statement.
CHUNK = 1000


@contextlib.contextmanager
def parts(hosts, cells, api_url=None, options=''):
    """Yield the components of a scheduler over hosts in cells, all up.

    :param api_url: the database of the API and of the claims; by default a
        file
    :param options: further text of the configuration file
    """
    with tempfile.TemporaryDirectory() as path:
        directory = pathlib.Path(path)
        api_url = api_url or f'sqlite:///{directory}/api'
        file = directory / 'benchmark.conf'
        file.write_text(
            '[DEFAULT]\nhost = benchmark\n'
            f'transport_url = local://{uuid.uuid4().hex}/api\n'
            f'[api_database]\nconnection = {api_url}\n{options}',
            encoding='utf-8')
        made = services.Components(loader.load(files=[str(file)], dirs=[]))
        try:
            api_schema.SCHEMA.sync(made.database)
            made.claims.sync()
            fill(made, directory, hosts, cells)
            yield made
        finally:
            made.close()


def fill(made, directory, hosts, cells):
    template = directory / 'template'
    url = f'sqlite:///{template}'
    database = made.databases.get(url, 'cell')
    cell_schema.SCHEMA.sync(database)
    # Write SQLite's log to the file before the file is copied.
    database.engine.dispose()
    for number in range(cells):
        name = directory / f'cell{number}'
        shutil.copy(template, name)
        mapping = objects.CellMapping(
            uuid=str(uuid.UUID(int=2 ** 64 + number)), name=f'cell{number}',
            transport_url='none:///', database_connection=f'sqlite:///{name}',
            disabled=False)
        with made.database.writer() as connection:
            cell_mappings.create(connection, mapping, made.clock.now())
            mapping = next(each for each in cell_mappings.list_all(connection)
                           if each.uuid == mapping.uuid)
        members = range(number * hosts // cells, (number + 1) * hosts // cells)
        names = [f'host{host}' for host in members]
        with made.database.writer() as connection:
            host_mappings.create_missing(
                connection, names, mapping.id, made.clock.now())
        with made.targets.database(mapping).writer() as connection:
            fill_cell(connection, members, made.clock.now())
    fill_claims(made, hosts)


def fill_cell(connection, members, now):
    for start in range(0, len(members), CHUNK):
        chunk = members[start:start + CHUNK]
        connection.execute(sa.insert(models.services), [
            {'created_at': now, 'uuid': str(uuid.uuid4()),
             'host': f'host{host}', 'binary': 'nova-compute',
             'topic': 'compute', 'report_count': 1, 'disabled': False,
             'forced_down': False, 'version': 0, 'deleted': 0,
             # The services stay up for as long as the benchmark takes.
             'last_seen_up': now + datetime.timedelta(seconds=50),
             'lane': 0, 'position': 0} for host in chunk])
        connection.execute(sa.insert(models.compute_nodes), [
            {'created_at': now, 'uuid': node(host), 'host': f'host{host}',
             'hypervisor_hostname': f'host{host}', 'vcpus': 64,
             'memory_mb': 2 ** 19, 'local_gb': 10_000, 'vcpus_used': 0,
             'memory_mb_used': 0, 'local_gb_used': 0, 'free_disk_gb': 10_000,
             'hypervisor_type': 'QEMU', 'hypervisor_version': 9_000_000,
             'cpu_info': '{"arch": "x86_64"}', 'host_ip': address(host),
             'supported_instances': '[["x86_64", "kvm", "hvm"]]',
             'stats': '{"io_workload": "%d"}' % (host % 7),
             'cpu_allocation_ratio': 4.0, 'ram_allocation_ratio': 1.0,
             'disk_allocation_ratio': 1.0, 'mapped': 1, 'deleted': 0,
             'lane': 0, 'position': 0} for host in chunk])


def fill_claims(made, hosts):
    """Write the inventories of all hosts, for SQL in large statements."""
    if made.conf.claims.store != 'sql':
        for host in range(hosts):
            made.claims.set_inventory(node(host), {
                name: claims.Inventory(total)
                for name, total in RESOURCES.items()})
        return
    url = made.conf.claims.connection or made.conf.api_database.connection
    database = made.databases.get(url, 'claims')
    with database.writer() as connection:
        for start in range(0, hosts, CHUNK):
            chunk = range(start, min(start + CHUNK, hosts))
            connection.execute(sa.insert(claims_schema.providers), [
                {'uuid': node(host), 'consumers': 0, 'lane': 0, 'position': 0}
                for host in chunk])
            connection.execute(sa.insert(claims_schema.inventories), [
                {'provider': node(host), 'resource_class': name, 'used': 0,
                 'capacity': total, **vars(claims.Inventory(total))}
                for host in chunk for name, total in RESOURCES.items()])


def node(host):
    return str(uuid.UUID(int=host + 1))


def address(host):
    return f'10.{host >> 16}.{host >> 8 & 255}.{host & 255}'
