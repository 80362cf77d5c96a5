# SPDX-License-Identifier: Apache-2.0
"""Refreshing the host table after a number of hosts changed.

Parameters: ``hosts``, ``cells``, and ``changed``, the numbers of hosts that
change before a refresh. They are spread over the cells. Each change updates
the compute node and the service, like the report of an agent.
"""

import datetime
import time

import host_databases
import sqlalchemy as sa

from cellsched import context
from cellsched.db.cell import models
from cellsched.scheduler.drivers import filter_scheduler


def run(parameters, repeat):
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
