# SPDX-License-Identifier: Apache-2.0
"""What databases keep, in a line each."""

import datetime
import uuid

import sqlalchemy as sa

from cellsched.db.api import build_requests
from cellsched.db.api import cell_mappings
from cellsched.db.api import instance_mappings
from cellsched.db.api import models as api_models
from cellsched.db.cell import instance_list
from cellsched.db.cell import models
from cellsched.listing import query
from cellsched import objects

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
LATER = NOW + datetime.timedelta(minutes=1)

#: What a compute node has.
NODE = {
    'vcpus': 8, 'vcpus_used': 0, 'memory_mb': 16384, 'memory_mb_used': 512,
    'local_gb': 100, 'local_gb_used': 1, 'hypervisor_type': 'fake',
    'hypervisor_version': 1, 'cpu_info': '', 'cpu_allocation_ratio': 4.0,
    'ram_allocation_ratio': 1.0, 'disk_allocation_ratio': 1.0}


def uuids(count):
    return [str(uuid.uuid4()) for _ in range(count)]


def flavor(**fields):
    return objects.Flavor(**{
        'id': 1, 'name': 'small', 'flavorid': 'f1', 'memory_mb': 512,
        'vcpus': 1, 'root_gb': 10, 'ephemeral_gb': 0, 'swap': 0,
        'extra_specs': {}, **fields})


def instance(uuid, **fields):
    return objects.Instance(**{
        'uuid': uuid, 'project_id': 'project', 'user_id': 'user',
        'display_name': 'server', 'vm_state': 'building',
        'task_state': 'scheduling', 'vcpus': 1, 'memory_mb': 512,
        'root_gb': 10, 'ephemeral_gb': 0, 'created_at': NOW,
        'flavor': flavor(), **fields})


def cell(name='cell', **fields):
    return objects.CellMapping(**{
        'uuid': uuids(1)[0], 'name': name, 'disabled': False,
        'transport_url': f'local://tests/{name}',
        'database_connection': f'sqlite:////nowhere/{name}.sqlite', **fields})


def set_cell_url(database, name, url='sqlite:////nowhere/gone.sqlite'):
    """Map a cell to another database, by default to one that is not there."""
    table = api_models.cell_mappings
    with database.writer() as connection:
        connection.execute(sa.update(table).where(table.c.name == name).values(
            database_connection=url))


def map_cell(database, mapping):
    """Add a cell; return it as it was read again."""
    with database.writer() as connection:
        cell_mappings.create(connection, mapping, NOW)
        return {each.uuid: each for each in cell_mappings.list_all(
            connection)}[mapping.uuid]


def accept(database, wanted, now=NOW, min_count=1, **fields):
    """Add all that an accepted build has in the API database."""
    made = [instance(uuid, **fields) for uuid in wanted]
    with database.writer() as connection:
        build_requests.create(connection, [
            objects.BuildRequest(instance_uuid=each.uuid,
                                 project_id=each.project_id, instance=each)
            for each in made], now, min_count)
        build_requests.create_specs(connection, [
            objects.RequestSpec(instance_uuid=each.uuid, flavor=flavor())
            .obj_to_primitive() for each in made], now)
        for each in made:
            instance_mappings.create(
                connection, [each.uuid], each.project_id, each.user_id, now)
    return made


def listed(connection):
    """Return the rows of servers that are not deleted, the newest first."""
    return instance_list.page(
        connection, instance_list.InstanceFilter(), query.NEWEST)


def put(connection, uuid, values, now=LATER):
    """Change a server's row as no product code may: its state too."""
    table = models.instances
    connection.execute(
        sa.update(table).where(table.c.uuid == uuid)
        .values(updated_at=now, **values))


#: Texts that say nothing of what they are to say.
UNREADABLE = ('', 'nonsense', '[]', 'null', '{"nova_object.name": "Instance"}',
              '[' * 100_000)


def spoil(connection, uuid, table, **values):
    """Change what was asked for as no product code may.

    :param values: without any, the row is removed
    """
    table = api_models.METADATA.tables[table]
    mine = table.c.instance_uuid == uuid
    connection.execute(
        sa.update(table).where(mine).values(**values) if values
        else sa.delete(table).where(mine))
