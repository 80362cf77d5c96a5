# SPDX-License-Identifier: Apache-2.0
"""Refreshing the host table after a number of hosts changed.

Parameters: ``hosts``, ``cells``, and ``changed``, the numbers of hosts that
change before a refresh. They are spread over the cells. Each change updates
the compute node and the service, like the report of an agent.

Without ``changed``, the CPU time of the first reading is measured. Its floor
is that of a plain ``SELECT *`` of the tables that it reads.
"""

import datetime
import time

import host_databases
import sqlalchemy as sa

from cellsched.claims.sql import schema as claims_schema
from cellsched import context
from cellsched.db.cell import models
from cellsched.scheduler.drivers import filter_scheduler


def run(parameters, repeat):
    if not parameters['changed']:
        return first_readings(parameters, repeat)
    samples = {f'{count} changed': [] for count in parameters['changed']}
    with host_databases.parts(
            parameters['hosts'], parameters['cells']) as parts:
        loader = filter_scheduler.FilterScheduler(parts.conf, parts).loader
        start = time.perf_counter()
        loader.refresh(context.admin())
        samples['everything'] = [time.perf_counter() - start]
        for turn in range(repeat):
            for count in parameters['changed']:
                change(parts, parameters, count, turn)
                start = time.perf_counter()
                loader.refresh(context.admin())
                samples[f'{count} changed'].append(
                    time.perf_counter() - start)
                check(loader.table, count, turn)
    return samples


def first_readings(parameters, repeat):
    """Return the CPU times of first readings and of their floor."""
    samples = {'first reading': [], 'floor': []}
    with host_databases.parts(
            parameters['hosts'], parameters['cells']) as parts:
        for _ in range(repeat):
            loader = filter_scheduler.FilterScheduler(
                parts.conf, parts).loader
            start = time.process_time()
            loader.refresh(context.admin())
            samples['first reading'].append(time.process_time() - start)
            start = time.process_time()
            rows = plain_rows(parts)
            samples['floor'].append(time.process_time() - start)
            if not len(loader.table) == parameters['hosts'] == rows // 6:
                raise RuntimeError(f'{len(loader.table)} hosts were read')
    return samples


def plain_rows(parts):
    """Read the same tables without a use for them; return the row count."""
    rows = 0
    for database, tables in (
            *((parts.targets.database(cell), (
                models.services, models.compute_nodes))
              for cell in parts.cells.enabled()),
            (parts.database, (
                claims_schema.providers, claims_schema.inventories))):
        with database.reader() as connection:
            for table in tables:
                rows += len(connection.execute(sa.select(table)).all())
    return rows


def change(parts, parameters, count, turn):
    """Change this number of hosts, in each cell its share."""
    hosts, cells = parameters['hosts'], parameters['cells']
    for number, cell in enumerate(parts.cells.enabled()):
        share = (number + 1) * count // cells - number * count // cells
        if not share:
            continue
        first = int(cell.name.removeprefix('cell')) * hosts // cells
        names = [f'host{first + place}' for place in range(share)]
        now = parts.clock.now() + datetime.timedelta(seconds=50)
        with parts.targets.database(cell).writer() as connection:
            lane = models.FEED.move(connection, names[0])
            for table, values in (
                    (models.services, {'last_seen_up': now}),
                    (models.compute_nodes, {'hypervisor_version': turn})):
                connection.execute(
                    sa.update(table).where(table.c.host.in_(names)).values(
                        {**values, **models.FEED.marks}), {'in_lane': lane})


def check(table, count, turn):
    seen = int((table['hypervisor_version'] == turn).sum())
    if seen < count:
        raise RuntimeError(f'{seen} of {count} changes were seen')
